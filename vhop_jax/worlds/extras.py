"""Adds what no link is about: a small thing in front, and things around.

An extra is an object of its own, in no other image, and of a type that no
object of its family has. It looks clearly smaller than each linked object and
hides little of it.
"""

from collections.abc import Collection, Sequence
import dataclasses
import math

import numpy as np

from vhop_jax import errors
from vhop_jax.worlds import arrange, visibility
from vhop_jax.worlds.assets import AssetPack
from vhop_jax.worlds.background import DIGITS, round_all
from vhop_jax.worlds.geometry import load_geometry
from vhop_jax.worlds.objects import Object
from vhop_jax.worlds.scene import (
  ASPECT,
  CLUTTER,
  FOREGROUND,
  SUPPORT,
  Box,
  Camera,
  Extra,
  Placement,
  Scene,
  compute_box,
  place_points,
)

# How large an extra looks, by the mean of its width and height: as a share of
# the picture's height, and at most as a share of the smaller linked object.
_FOREGROUND_SIZE = (0.18, 0.28)
_MAX_SIZE_FRAC = 0.45
_MIN_SIZE = 0.06
# Scale of a thing around, before it is made smaller for the picture's sake.
_CLUTTER_SCALE = (0.5, 0.85)
_FRAME = 0.01
_NEAR = 0.03  # Outlines are as large as the things up to this.
# Where a thing in front stands: across and down, as shares of the picture.
_FRONT_ACROSS = (0.08, 0.92)
_FRONT_DOWN = (0.85, 0.97)
# How far behind the linked objects a thing stands, and how often it stands
# beside them instead.
_BEHIND = (0.1, 2.2)
_BESIDE_PROBABILITY = 0.35
_MIN_DEPTH = 0.3
_CLEARANCE = 0.05
# What an extra may hide of a linked object, and what may be hidden of it.
_MAX_FRONT_FRAC = 0.11
_MAX_BESIDE_FRAC = 0.05
_MAX_OWN_FRAC = 0.4
_WALL_GAP = 0.1
_MAX_DRAWS = 120
_MAX_SCENES = 50


class NoRoomError(RuntimeError):
  """Says that some objects leave no room for extras."""


def sample_objects(
  rng: np.random.Generator,
  pack: AssetPack,
  *,
  uid: str,
  foreign_to: Collection[Object],
  foreground: bool,
  clutter: int,
) -> list[tuple[str, Object]]:
  """Draws the extras of one image, each an object of its own.

  Args:
    rng: is consumed.
    pack: where they come from.
    uid: what their identities begin with.
    foreign_to: objects whose types they must not have.
    foreground: whether one is to stand in front.
    clutter: how many are to stand around.

  Returns:
    The role and the object of each.

  Raises:
    UsageError: the pack has too few types.
  """
  roles = [FOREGROUND] * foreground + [CLUTTER] * clutter
  taken = {obj.type for obj in foreign_to}
  types = [name for name in pack.types if name not in taken]
  if roles and not types:
    raise errors.UsageError(
      f'asset pack {pack.name!r} has too few types for a foreground object or'
      ' clutter: every one is that of a linked object; choose another --pack'
    )
  return [
    (
      role,
      pack.sample_object(
        rng, uid=f'{uid}/{role}{i}', type=types[rng.integers(len(types))]
      ),
    )
    for i, role in enumerate(roles)
  ]


def sample_scene(
  rng: np.random.Generator,
  objects: Sequence[Object],
  style: arrange.Style,
  extras_rng: np.random.Generator,
  extras: Sequence[tuple[str, Object]],
) -> Scene:
  """Samples a scene with extras; where they find no room it is drawn again.

  Args:
    rng: decides the linked objects, camera, light and background.
    objects: the linked ones, as `arrange.sample_scene` takes them.
    style: what the world's scenes have in common.
    extras_rng: decides where the extras stand.
    extras: from `sample_objects`.

  Raises:
    NoRoomError: no scene has room.
  """
  for _ in range(_MAX_SCENES):
    scene = arrange.sample_scene(rng, objects, style)
    full: Scene | None = scene
    for role, obj in extras:
      full = full and _add_extra(extras_rng, full, role, obj)
    if full is not None:
      return full
  raise NoRoomError(
    f'no room for extras beside {[obj.uid for obj in objects]} in'
    f' {_MAX_SCENES} scenes'
  )


def _add_extra(
  rng: np.random.Generator, scene: Scene, role: str, obj: Object
) -> Scene | None:
  """Returns the scene with one more thing, or None if there is no room."""
  camera = scene.camera
  things = scene.list_things()
  standing = [
    (thing, place_points(thing, load_geometry(thing.object).positions))
    for thing in things
  ]
  boxes = [_compute_box(camera, thing) for thing in scene.placements]
  limit = _MAX_SIZE_FRAC * min(map(_measure_box, boxes))
  nearness = visibility.draw_nearness(camera, things)
  sample = _sample_front if role == FOREGROUND else _sample_around
  for _ in range(_MAX_DRAWS):
    placement = sample(rng, scene, obj, limit)
    if placement is None:
      continue
    box = _compute_box(camera, placement)
    if not (
      _is_whole(box)
      and _MIN_SIZE <= _measure_box(box) <= limit
      and not any(_has_centre(other, box) for other in boxes)
      and _stands_free(placement, standing)
    ):
      continue
    drawn = visibility.draw_nearness(camera, [placement])
    full = _insert(scene, Extra(role, placement))
    if _hides_little(np.concatenate([nearness, drawn]), full):
      return full
  return None


def _sample_front(
  rng: np.random.Generator, scene: Scene, obj: Object, limit: float
) -> Placement | None:
  """Samples where a thing stands in the lower part of the picture."""
  across, down = rng.uniform(*_FRONT_ACROSS), rng.uniform(*_FRONT_DOWN)
  size, turn = rng.uniform(*_FOREGROUND_SIZE), rng.uniform(0, 2 * np.pi)
  camera = scene.camera
  right, up, forward = camera.compute_axes()
  zoom = 0.5 / math.tan(camera.fov / 2)
  ray = forward + ((across - 0.5) * ASPECT * right + (0.5 - down) * up) / zoom
  # Along the ray the distance in the view grows with the parameter itself.
  depth = -camera.eye[1] / ray[1] if ray[1] < 0 else 0.0
  if depth < _MIN_DEPTH:
    return None
  x, _, z = np.array(camera.eye) + depth * ray
  x, z, turn = round_all((x, z, turn))
  placement = Placement(obj, x, z, turn, 1.0)
  placement = _resize(camera, placement, min(size, limit), depth / zoom)
  towards = _get_towards(camera)
  nearest = max(_compute_middle(thing, towards) for thing in scene.placements)
  is_nearer = (_get_outline(placement) @ towards).min() > nearest + _CLEARANCE
  return placement if is_nearer else None


def _sample_around(
  rng: np.random.Generator, scene: Scene, obj: Object, limit: float
) -> Placement | None:
  """Samples where a thing stands behind the linked objects, or beside them."""
  across, turn = rng.random(), rng.uniform(0, 2 * np.pi)
  scale, share, behind = rng.uniform(*_CLUTTER_SCALE), *rng.random(2)
  camera = scene.camera
  right, up, forward = camera.compute_axes()
  towards = _get_towards(camera)
  feet = [
    np.array([thing.x, 0, thing.z]) @ towards for thing in scene.placements
  ]
  if behind < _BESIDE_PROBABILITY:
    place = min(feet) + share * (max(feet) - min(feet))
  else:
    farthest = min(
      (_get_outline(thing) @ towards).min() for thing in scene.list_things()
    )
    low, high = _BEHIND
    place = farthest - low - share * (high - low)
  # The point of the ground that lies straight ahead at this distance.
  eye = np.array(camera.eye)
  ahead = eye + (place - eye @ towards) * towards
  ahead[1] = 0.0
  depth = (ahead - eye) @ forward
  if depth < _MIN_DEPTH:
    return None
  zoom = 0.5 / math.tan(camera.fov / 2)
  x, _, z = ahead + (across - 0.5) * ASPECT * depth / zoom * right
  x, z, turn, scale = round_all((x, z, turn, scale))
  placement = Placement(obj, x, z, turn, scale)
  size = _measure_box(_compute_box(camera, placement))
  if size > limit:
    placement = _resize(camera, placement, 0.97 * limit, scale / size)
  return placement


def _resize(
  camera: Camera, placement: Placement, size: float, unit: float
) -> Placement:
  """Scales a thing until it looks as large as wanted.

  Args:
    camera: sees it.
    placement: the thing at any scale.
    size: wanted, as a share of the picture's height.
    unit: about the scale at which it would fill the picture.
  """
  scale = size * unit
  for _ in range(3):
    placement = dataclasses.replace(placement, scale=round(scale, DIGITS))
    scale *= size / _measure_box(_compute_box(camera, placement))
  return placement


def _insert(scene: Scene, extra: Extra) -> Scene:
  """Returns a scene with an extra, the wall moved back behind it."""
  wall = scene.background.wall_distance
  if wall:
    behind = -_get_outline(extra.placement)[:, 2].min() + _WALL_GAP
    wall = round(max(wall, float(behind)), DIGITS)
  return dataclasses.replace(
    scene,
    extras=(*scene.extras, extra),
    background=dataclasses.replace(scene.background, wall_distance=wall),
  )


def _hides_little(nearness: np.ndarray, scene: Scene) -> bool:
  """Returns whether the last thing hides little, and no extra is hidden."""
  last = len(nearness) - 1
  linked = range(len(scene.placements))
  is_front = scene.extras[-1].role == FOREGROUND
  limit = _MAX_FRONT_FRAC if is_front else _MAX_BESIDE_FRAC
  extras = [
    i
    for i, extra in enumerate(scene.extras, start=len(linked))
    if extra.role != SUPPORT
  ]
  get_hidden = visibility.compute_hidden_frac
  return (
    all(get_hidden(nearness, i, [last]) <= limit for i in linked)
    and all(get_hidden(nearness, i) <= _MAX_OWN_FRAC for i in extras)
    and all(get_hidden(nearness, i) <= arrange.MAX_HIDDEN_FRAC for i in linked)
  )


def _get_towards(camera: Camera) -> np.ndarray:
  """Returns the level direction from what is seen towards the camera [3]."""
  return np.array([math.sin(camera.yaw), 0.0, math.cos(camera.yaw)])


def _get_outline(placement: Placement) -> np.ndarray:
  """Returns the outermost points of a thing [E, 3]."""
  return place_points(placement, load_geometry(placement.object).extremes)


def _compute_middle(placement: Placement, direction: np.ndarray) -> float:
  """Returns where the middle of a thing is along a direction."""
  along = _get_outline(placement) @ direction
  return float(along.min() + along.max()) / 2


def _compute_box(camera: Camera, placement: Placement) -> Box:
  """Returns the box on the screen around a thing's outline."""
  return compute_box(camera, _get_outline(placement))


def _measure_box(box: Box) -> float:
  """Returns the mean of a box's width and height, in the picture's height."""
  x0, y0, x1, y1 = box
  return ((x1 - x0) * ASPECT + y1 - y0) / 2


def _is_whole(box: Box) -> bool:
  """Returns whether a box lies in the frame."""
  return min(box) >= _FRAME and max(box) <= 1 - _FRAME


def _has_centre(box: Box, other: Box) -> bool:
  """Returns whether the centre of another box lies in a box, or near it."""
  x, y = (other[0] + other[2]) / 2, (other[1] + other[3]) / 2
  x0, y0, x1, y1 = box
  return x0 - _NEAR < x < x1 + _NEAR and y0 - _NEAR < y < y1 + _NEAR


def _stands_free(
  placement: Placement, others: Sequence[tuple[Placement, np.ndarray]]
) -> bool:
  """Returns whether a thing has its ground to itself, up to its height.

  Args:
    placement: the thing.
    others: what stands there, each with its vertices in the world [V, 3].
  """
  outline = _get_outline(placement)
  radius = _compute_radius(placement, outline)
  top = outline[:, 1].max()
  return all(
    math.hypot(placement.x - other.x, placement.z - other.z)
    >= radius + _compute_radius(other, points[points[:, 1] <= top])
    for other, points in others
  )


def _compute_radius(placement: Placement, points: np.ndarray) -> float:
  """Returns how far points [N, 3] reach from where a thing stands."""
  away = np.hypot(points[:, 0] - placement.x, points[:, 2] - placement.z)
  return float(away.max(initial=0.0))

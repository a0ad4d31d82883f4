"""Checks from a scene's geometry that a viewer sees what a record says.

Nothing here knows how scenes are arranged: the rules are stated once more, over
where things appear, how far away they are and what hides them. Only projection
and rasterising are shared with the rest of the package.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from vhop_jax import errors

if TYPE_CHECKING:
  from vhop_jax.worlds import scene as scene_lib
  from vhop_jax.worlds import world as world_lib

# What share of a linked object may be hidden by all things, and by the one
# thing in front.
MAX_HIDDEN_FRAC = 0.3
MAX_FOREGROUND_FRAC = 0.15
# Of what else stands there, at least this share is to be seen.
MIN_SEEN_FRAC = 0.5
# Largest size of an extra, by the smaller linked object's.
MAX_EXTRA_FRAC = 0.6
# How far a linked object may reach out of the frame, by its width or height.
MAX_OUTSIDE_FRAC = 0.02
# Side by side, the line between the centres rises less than this.
MAX_SLOPE = 1.0
# One behind the other, they share this much of the narrower one's width, and
# the nearer one reaches lower by this share of the picture's height.
MIN_OVERLAP_FRAC = 0.1
MIN_LOWER_FRAC = 0.03
# A print is at least so high in the picture, in pixels, and its side is turned
# away from the viewer no more than by the angle of this cosine.
MIN_LOGO_PX = 5.0
MIN_TEXT_PX = 6.0
MIN_FACING = 0.5
# One above the other, the line between the centres leans less than this.
MAX_LEAN = 0.4

Finding = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class _View:
  """Holds a scene with all that is measured of it.

  Attributes:
    scene: the scene.
    aspect: width of the picture over its height.
  """

  scene: 'scene_lib.Scene'
  aspect: float

  @functools.cached_property
  def points(self) -> list[np.ndarray]:
    """Returns the vertices of each thing, the linked objects first."""
    from vhop_jax.worlds import geometry
    from vhop_jax.worlds import scene as scene_lib

    return [
      scene_lib.place_points(
        thing, geometry.load_geometry(thing.object).positions
      )
      for thing in self.scene.list_things()
    ]

  @functools.cached_property
  def boxes(self) -> np.ndarray:
    """Returns x0, y0, x1, y1 of each thing in heights of the picture."""
    from vhop_jax.worlds import scene as scene_lib

    boxes = [
      scene_lib.compute_box(self.scene.camera, points, self.aspect)
      for points in self.points
    ]
    return np.array(boxes) * (self.aspect, 1, self.aspect, 1)

  @functools.cached_property
  def reach(self) -> np.ndarray:
    """Returns the least and greatest distance of each thing, level."""
    forward = self.scene.camera.compute_axes()[2] * (1, 0, 1)
    forward /= np.linalg.norm(forward)
    along = [points @ forward for points in self.points]
    return np.array([(values.min(), values.max()) for values in along])

  @functools.cached_property
  def nearness(self) -> np.ndarray:
    """Returns each thing drawn by itself."""
    from vhop_jax.worlds import visibility

    return visibility.draw_nearness(self.scene.camera, self.scene.list_things())

  def compute_sizes(self) -> np.ndarray:
    """Returns how large each thing looks: the mean of width and height."""
    return (self.boxes[:, 2:] - self.boxes[:, :2]).mean(axis=1)


def check_scene(
  spec: 'world_lib.Spec', image: 'world_lib.ImageRecord'
) -> Iterator[Finding]:
  """Yields the rules that a scene breaks, each with what was found.

  Args:
    spec: says how two objects stand and what else is in every image.
    image: a record.
  """
  from vhop_jax.worlds import scene as scene_lib  # Loads mesh code.

  try:
    scene = scene_lib.Scene.from_json(image.scene)
    view = _View(scene, scene_lib.ASPECT)
    assert len(view.boxes) == len(scene.list_things())
  except (KeyError, TypeError, ValueError, errors.VhopError) as error:
    yield 'order', f'has no readable scene ({error!r})'
    return
  linked = len(scene.placements)
  if sorted(p.object.uid for p in scene.placements) != sorted(
    thing.uid for thing in image.objects
  ) or any(p.object not in image.objects for p in scene.placements):
    yield (
      'order',
      f'has {[p.object.uid for p in scene.placements]} in its scene, not'
      f' {[o.uid for o in image.objects]}',
    )
    return
  if linked == 2:
    check = {'sides': _check_sides, 'depth': _check_depth}.get(
      spec.relations, _check_height
    )
    first, second = (
      next(i for i, p in enumerate(scene.placements) if p.object == thing)
      for thing in image.objects
    )
    yield from check(view, first, second)
  yield from _check_frame(view)
  for placement in scene.placements:
    if placement.object.logo or placement.object.text:
      yield from _check_print(scene.camera, placement, spec.resolution)
  yield from _check_extras(spec, view)
  yield from _check_hidden(view)


def _check_sides(view: _View, first: int, second: int) -> Iterator[Finding]:
  """Checks that one object is left of the other, rather than above it."""
  centres = (view.boxes[:, :2] + view.boxes[:, 2:]) / 2
  across, down = centres[second] - centres[first]
  if across <= 0:
    yield 'order', 'does not show the objects in their order, left to right'
  elif abs(down) > MAX_SLOPE * across:
    yield (
      'apart',
      f'shows one object rather above the other: the centres are {across:.2f}'
      f' apart across and {abs(down):.2f} down',
    )


def _check_depth(view: _View, first: int, second: int) -> Iterator[Finding]:
  """Checks that one object stands in front of the other, and is seen so."""
  if view.reach[first, 1] >= view.reach[second, 0]:
    yield (
      'order',
      'does not show the first object wholly nearer than the second: they'
      f' reach from {view.reach[first, 0]:.2f} to {view.reach[first, 1]:.2f}'
      f' and from {view.reach[second, 0]:.2f} to {view.reach[second, 1]:.2f}',
    )
    return
  lower = view.boxes[first, 3] - view.boxes[second, 3]
  if lower < MIN_LOWER_FRAC:
    yield 'apart', f'shows the nearer object only {lower:.3f} lower'
  left = view.boxes[[first, second], 0]
  right = view.boxes[[first, second], 2]
  shared = (right.min() - left.max()) / (right - left).min()
  if shared < MIN_OVERLAP_FRAC:
    yield (
      'apart',
      f'shows one object rather beside the other: they share {shared:.0%} of'
      ' the narrower width',
    )


def _check_height(view: _View, first: int, second: int) -> Iterator[Finding]:
  """Checks that one object is above the other, on something, and seen so."""
  foot = view.points[first][:, 1].min()
  top = view.points[second][:, 1].max()
  if foot < top:
    yield (
      'order',
      f'does not show the first object above the second: its foot is at'
      f' {foot:.2f}, the top of the second at {top:.2f}',
    )
    return
  supports = [
    self_points[:, 1].max()
    for self_points, extra in zip(
      view.points[len(view.scene.placements) :], view.scene.extras, strict=True
    )
    if extra.role == 'support'
  ]
  if len(supports) != 1 or abs(supports[0] - foot) > 1e-3:
    yield 'extras', 'does not show the first object standing on one thing'
  centres = (view.boxes[:, :2] + view.boxes[:, 2:]) / 2
  across, down = centres[second] - centres[first]
  if abs(across) > MAX_LEAN * down:
    yield (
      'apart',
      f'does not show one object straight above the other: the centres are'
      f' {abs(across):.2f} apart across and {down:.2f} down',
    )


def _check_frame(view: _View) -> Iterator[Finding]:
  """Checks that the linked objects are whole in the picture."""
  linked = len(view.scene.placements)
  boxes = view.boxes[:linked] / (view.aspect, 1, view.aspect, 1)
  outside = max(-boxes.min(), boxes.max() - 1)
  if outside > MAX_OUTSIDE_FRAC:
    yield 'frame', f'shows an object {outside:.0%} out of the picture'


def _check_print(
  camera: 'scene_lib.Camera', placement: 'scene_lib.Placement', resolution: int
) -> Iterator[Finding]:
  """Checks that what is printed on an object can be read."""
  from vhop_jax.worlds import geometry
  from vhop_jax.worlds import scene as scene_lib

  thing = placement.object
  area = geometry.load_geometry(thing).print_area
  if area is None:
    yield 'print', f'shows {thing.uid}, which has no room for a print'
    return
  if np.cos(placement.yaw + area.side - camera.yaw) < MIN_FACING:
    yield 'print', f'shows {thing.uid} with its print turned away'
  right = np.array([np.cos(area.side), 0.0, -np.sin(area.side)])
  out = np.array([np.sin(area.side), 0.0, np.cos(area.side)])
  ends = [
    area.u * right + area.depth * out + (0, area.v + sign * area.half_height, 0)
    for sign in (-1, 1)
  ]
  _, y0, _, y1 = scene_lib.compute_box(
    camera, scene_lib.place_points(placement, np.array(ends))
  )
  height_px = (y1 - y0) * resolution / scene_lib.ASPECT
  if height_px < (MIN_TEXT_PX if thing.text else MIN_LOGO_PX):
    yield 'print', f'shows the print of {thing.uid} {height_px:.1f} px high'


def _check_extras(spec: 'world_lib.Spec', view: _View) -> Iterator[Finding]:
  """Checks what no link is about: how many, how large and where."""
  scene = view.scene
  linked = len(scene.placements)
  roles = [extra.role for extra in scene.extras]
  stacked = spec.relations == 'height' and linked == 2
  wanted = {
    'foreground': int(spec.foreground),
    'clutter': spec.clutter,
    'support': int(stacked),
  }
  found = {role: roles.count(role) for role in wanted}
  if found != wanted or len(roles) != sum(wanted.values()):
    yield 'extras', f'holds {roles}, not {wanted}'
  sizes = view.compute_sizes()
  centres = (view.boxes[:, :2] + view.boxes[:, 2:]) / 2
  for i, role in enumerate(roles, start=linked):
    if role == 'support':
      continue
    uid = scene.list_things()[i].object.uid
    if sizes[i] > MAX_EXTRA_FRAC * sizes[:linked].min():
      yield (
        'extras',
        f'shows {uid} as large as {sizes[i]:.2f}, a linked object as'
        f' {sizes[:linked].min():.2f}',
      )
    x, y = centres[i]
    if any(
      x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in view.boxes[:linked]
    ):
      yield 'extras', f'shows {uid} in the middle of a linked object'
    seen = 1 - _compute_hidden(view, i, range(len(sizes)))
    if seen < MIN_SEEN_FRAC:
      yield 'extras', f'shows only {seen:.0%} of {uid}'
    if role == 'foreground' and (
      view.reach[i, 1] >= view.reach[:linked].mean(axis=1).min() or y < 0.5
    ):
      yield 'extras', f'does not show {uid} in front, in the lower half'


def _check_hidden(view: _View) -> Iterator[Finding]:
  """Checks how much of each linked object is hidden, and by what."""
  linked = len(view.scene.placements)
  front = [
    i
    for i, extra in enumerate(view.scene.extras, start=linked)
    if extra.role == 'foreground'
  ]
  for i, placement in enumerate(view.scene.placements):
    for others, limit, name in (
      (range(len(view.boxes)), MAX_HIDDEN_FRAC, 'all'),
      (front, MAX_FOREGROUND_FRAC, 'what stands in front'),
    ):
      hidden = _compute_hidden(view, i, others)
      if hidden > limit:
        yield (
          'hidden',
          f'hides {hidden:.0%} of {placement.object.uid} behind {name}',
        )


def _compute_hidden(
  view: _View, thing: int, others: range | list[int]
) -> float:
  """Returns the share of a thing that others hide; draws only if need be."""
  from vhop_jax.worlds import visibility

  x0, y0, x1, y1 = view.boxes[thing]
  meets = [
    i
    for i in others
    if i != thing
    and view.boxes[i, 0] < x1
    and view.boxes[i, 2] > x0
    and view.boxes[i, 1] < y1
    and view.boxes[i, 3] > y0
  ]
  if not meets:
    return 0.0
  return visibility.compute_hidden_frac(view.nearness, thing, meets)

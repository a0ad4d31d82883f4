"""Samples scenes: who stands where, from where it is seen and how it is lit.

Nothing is drawn. The outlines of the objects are projected, and a few
corrections bring each to its place.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from vhop_jax.worlds import visibility
from vhop_jax.worlds.assets import stands
from vhop_jax.worlds.background import DIGITS, round_all, sample_background
from vhop_jax.worlds.geometry import load_geometry
from vhop_jax.worlds.objects import COLOURS, Object
from vhop_jax.worlds.scene import (
  ASPECT,
  SUPPORT,
  Camera,
  Extra,
  Light,
  Placement,
  Scene,
  compute_box,
  place_points,
)

Range = tuple[float, float]

# Free space between the objects and the frame, and between the objects, as
# shares of the picture's height and width.
_MARGIN = 0.035
_GAP = (0.015, 0.09)
# An object counts as large as it is high, or as this share of its width.
_WIDTH_WEIGHT = 0.62
# 0: an object's size is that of its mesh; 1: all objects look equally large.
_EVENNESS = 0.5
_NUM_CORRECTIONS = 8
_MIN_DISTANCE = 1.2
# How far a printed side is turned away from the viewer at most.
_PRINT_TURN = 0.45

# One behind the other: free ground between them, and how far the line from
# one to the other may be turned off the line of sight.
_DEPTH_GAP = (0.1, 0.5)
_DEPTH_ANGLE = (math.radians(8), math.radians(30))
# How much of the narrower one's width lies before or behind the other, and how
# much lower in the picture the nearer one stands, of the picture's height.
_MIN_OVERLAP_FRAC = 0.2
_MIN_LOWER = 0.05
# One above the other: air above the lower one, and how far the board juts out.
_AIR = (0.08, 0.2)
_BOARD_MARGIN = (0.14, 0.2)  # Also keeps the lower one from the legs.
_SLIVER = 0.015  # So much of an object may lie outside, all the same.
_FRAME = 0.01  # At least this is free at the frame, where all is drawn again.
# Of each the mean of width and height, as a share of the picture's height.
_MIN_SIZE = 0.17
# How much of a linked object the other one, or the stand, may hide: less than
# the verifier allows, so that no rounding decides.
MAX_HIDDEN_FRAC = 0.24
_MAX_DRAWS = 400
# What is left free for things in front and around.
_FOREGROUND_ROOM = 0.12
_CLUTTER_SHRINK = 0.82


@dataclasses.dataclass(frozen=True)
class Style:
  """Fixes what the scenes of a world have in common.

  Attributes:
    relations: how two objects stand to each other: 'sides', 'depth' or
      'height' (see `level.PAIRS`).
    variation: 'standard', or 'strong' for more light and camera changes.
    has_foreground: whether room is left in front for a small thing.
    has_clutter: whether room is left around for further things.
  """

  relations: str = 'sides'
  variation: str = 'standard'
  has_foreground: bool = False
  has_clutter: bool = False


@dataclasses.dataclass(frozen=True)
class _Variation:
  """Holds what is drawn from where.

  Attributes:
    yaw: of the camera, to the left.
    pitch: of the camera, downwards, by the kind of relation.
    fov: vertical field of view.
    size: of the largest object, as a share of the picture's height.
    azimuth: of the light, from where the camera stands.
    elevation: of the light.
    tint: factor by which red is more and blue is less at the warmest.
    ambient: share of light from all around.
    softness: of shadows.
    is_textured: whether ground and wall always are there and have a texture.
  """

  yaw: Range
  pitch: dict[str, Range]
  fov: Range
  size: Range
  azimuth: Range
  elevation: Range
  tint: tuple[float, float]
  ambient: Range
  softness: Range
  is_textured: bool


_VARIATIONS = {
  'standard': _Variation(
    yaw=(-0.5, 0.5),
    pitch={'sides': (0.14, 0.6), 'depth': (0.32, 0.65), 'height': (0.06, 0.34)},
    fov=(0.42, 0.85),
    size=(0.5, 0.75),
    azimuth=(-1.25, 1.25),
    elevation=(0.6, 1.2),
    tint=(0.05, 0.06),
    ambient=(0.34, 0.5),
    softness=(0.02, 0.08),
    is_textured=False,
  ),
  'strong': _Variation(
    yaw=(-0.8, 0.8),
    pitch={'sides': (0.06, 0.8), 'depth': (0.28, 0.85), 'height': (0.03, 0.42)},
    fov=(0.26, 1.2),
    size=(0.4, 0.75),
    azimuth=(-1.9, 1.9),
    elevation=(0.4, 1.35),
    tint=(0.16, 0.2),
    ambient=(0.2, 0.55),
    softness=(0.005, 0.03),
    is_textured=True,
  ),
}


def _compute_measure(wide: Any, tall: Any) -> Any:
  """Says how large an object looks, in the unit of its width and height."""
  return np.maximum(tall, _WIDTH_WEIGHT * wide)


@dataclasses.dataclass(frozen=True)
class _Arrangement:
  """Holds who stands where, and from where it is seen.

  Attributes:
    wall_from: the least distance of a wall behind.
  """

  camera: Camera
  placements: tuple[Placement, ...]
  extras: tuple[Extra, ...]
  wall_from: float


@dataclasses.dataclass(frozen=True)
class _Group:
  """Holds things that stand about a pivot on the ground.

  Attributes:
    outlines: points of each thing [n, E, 3], turned and scaled, around the
      middle of its foot.
    depths: how far each stands towards the camera [n].
    lifts: how high each stands [n].
    sides: how far each stands to the right [n]; where they are to be moved
      apart, -0.5 and 0.5.
    gap: wanted between the first two, as a share of the picture's width; None
      leaves `sides` as they are.
    count: how many of them are linked objects; the others follow.
  """

  outlines: np.ndarray
  depths: np.ndarray
  lifts: np.ndarray
  sides: np.ndarray
  gap: float | None
  count: int


def _solve_view(
  camera: Camera,
  group: _Group,
  size: float,
  centre: np.ndarray,
  room: float,
) -> tuple[Camera, np.ndarray]:
  """Moves the things apart and the camera about until all is in its place.

  Args:
    camera: gives yaw, pitch and field of view.
    group: the things.
    size: largest measure of an object, as a share of the picture's height.
    centre: where the group sits in the free space, 0 to 1: across, down.
    room: to leave free below, as a share of the picture's height.

  Returns:
    The camera and the positions x, y, z of the things [n, 3].
  """
  axes = camera.compute_axes()
  zoom = 0.5 / math.tan(camera.fov / 2)
  per_depth = zoom / np.array([ASPECT, -1.0])
  margin = np.array([_MARGIN / ASPECT, _MARGIN])
  free = 1 - 2 * margin - (0.0, room)
  # In the camera's frame: right, up, forward, measured from the pivot.
  points = np.stack([axes @ outline.T for outline in group.outlines])
  towards = np.array([math.sin(camera.yaw), 0.0, math.cos(camera.yaw)])
  points += (group.depths[:, None] * (axes @ towards))[:, :, None]
  points += (group.lifts[:, None] * axes[:, 1])[:, :, None]
  apart = 1.0
  distance = zoom / size + 0.5
  pan = np.array([0.0, 0.5])
  for _ in range(_NUM_CORRECTIONS):
    seen = points[:, :2] - pan[:, None]
    seen[:, 0] += (group.sides * apart)[:, None]
    seen *= per_depth[:, None] / (points[:, 2:] + distance)
    low, high = seen.min(axis=2) + 0.5, seen.max(axis=2) + 0.5
    corner = low.min(axis=0)
    extent = high.max(axis=0) - corner
    measures = _compute_measure(*((high - low) * (ASPECT, 1)).T)
    ratio = max(measures[: group.count].max() / size, *(extent / free))
    ratio = max(ratio, _MIN_DISTANCE / distance)
    distance *= ratio
    # Going back shrinks the picture towards the middle of the frame.
    corner = 0.5 + (corner - 0.5) / ratio
    wanted = margin + centre * np.maximum(free - extent / ratio, 0)
    # Lengths in the world per share of the picture at the pivot's distance.
    length = distance / per_depth
    pan = pan + (corner - wanted) * length
    if group.gap is not None:
      apart += (group.gap - (low[1, 0] - high[0, 0]) / ratio) * length[0]
  eye = pan @ axes[:2] - distance * axes[2]
  positions = (group.sides * apart)[:, None] * axes[0] + group.depths[
    :, None
  ] * towards
  positions[:, 1] += group.lifts
  return dataclasses.replace(camera, eye=tuple(eye)), positions


def sample_scene(
  rng: np.random.Generator,
  objects: Sequence[Object],
  style: Style | None = None,
) -> Scene:
  """Samples a scene in which one or two objects stand.

  Every object is whole in the frame. Side by side, their boxes do not overlap;
  otherwise little of one is hidden by the other or by what it stands on, and
  what is not so is drawn again.

  Args:
    rng: is consumed.
    objects: one or two, in the order of the pair of relations: the left one,
      the one in front or the one on top first.
    style: what the world's scenes have in common; None is the default.

  Raises:
    RuntimeError: two objects cannot be arranged without hiding each other.
  """
  style = style or Style()
  n = len(objects)
  if n not in (1, 2):
    raise ValueError(f'a scene shows one or two objects, not {n}')
  ranges = _VARIATIONS[style.variation]
  relations = style.relations if n == 2 else 'sides'
  for _ in range(_MAX_DRAWS):
    yaw = rng.uniform(*ranges.yaw)
    found = _sample_arrangement(rng, objects, style, relations, yaw)
    if (relations, style.variation) == ('sides', 'standard'):
      # Plain scenes are good as they are, unless an object is so low and wide
      # that the corrections do not bring it into the frame.
      if _is_in_frame(found):
        break
    elif _is_clear(found, style, relations):
      break
  else:
    raise RuntimeError(
      f'no arrangement ({relations}) of {[obj.uid for obj in objects]} in'
      f' {_MAX_DRAWS} draws'
    )
  warm, cold = ranges.tint
  light = Light(
    azimuth=round(yaw + rng.uniform(*ranges.azimuth), DIGITS),
    elevation=round(rng.uniform(*ranges.elevation), DIGITS),
    colour=round_all(1 + rng.uniform(-1, 1) * np.array([warm, 0.0, -cold])),
    ambient=round(rng.uniform(*ranges.ambient), DIGITS),
    softness=round(rng.uniform(*ranges.softness), DIGITS),
  )
  return Scene(
    placements=found.placements,
    camera=found.camera,
    light=light,
    background=sample_background(
      rng,
      np.array([COLOURS[obj.colour] for obj in objects]),
      found.wall_from,
      is_textured=ranges.is_textured,
    ),
    extras=found.extras,
  )


def _sample_turns(
  rng: np.random.Generator, objects: Sequence[Object], yaw: float
) -> list[float]:
  """Samples how each object is turned.

  Args:
    rng: is consumed.
    objects: are seen from any side, but what is printed on one from ahead.
    yaw: of the camera.
  """
  turns = []
  for obj, turn in zip(
    objects, rng.uniform(0, 2 * np.pi, len(objects)), strict=True
  ):
    area = load_geometry(obj).print_area
    if area is not None:
      away = _PRINT_TURN * (turn / np.pi - 1)
      turn = (yaw - area.side + away) % (2 * np.pi)
    turns.append(float(turn))
  return turns


def _sample_arrangement(
  rng: np.random.Generator,
  objects: Sequence[Object],
  style: Style,
  relations: str,
  yaw: float,
) -> _Arrangement:
  """Samples who stands where, and the camera."""
  ranges = _VARIATIONS[style.variation]
  camera = Camera(
    eye=(0.0, 0.0, 0.0),
    yaw=round(yaw, DIGITS),
    pitch=round(rng.uniform(*ranges.pitch[relations]), DIGITS),
    fov=round(rng.uniform(*ranges.fov), DIGITS),
  )
  n = len(objects)
  turns = _sample_turns(rng, objects, camera.yaw)
  scales = rng.uniform(0.9, 1.1, n)
  depths = rng.uniform(-0.25, 0.25, n)
  size, gap = rng.uniform(*ranges.size), rng.uniform(*_GAP)
  if style.has_clutter:
    size *= _CLUTTER_SHRINK
  placements, outlines = [], []
  for obj, turn, scale in zip(objects, turns, scales, strict=True):
    placement = Placement(obj, 0.0, 0.0, *round_all((turn, 1.0)))
    outline = place_points(placement, load_geometry(obj).extremes)
    # What looks small from here, such as a low or a narrow object, is made
    # somewhat larger, so that its partner does not dwarf it.
    across = outline @ camera.compute_axes()[0]
    measure = _compute_measure(np.ptp(across), np.ptp(outline[:, 1]))
    scale = round(float(scale / measure**_EVENNESS), DIGITS)
    placements.append(dataclasses.replace(placement, scale=scale))
    outlines.append(scale * outline)
  supports: list[Placement] = []
  if relations == 'depth':
    group = _line_up(rng, camera, outlines)
  elif relations == 'height':
    group, supports = _stack(rng, camera, placements, outlines)
  else:
    group = _Group(
      outlines=np.stack(outlines),
      depths=depths,
      lifts=np.zeros(n),
      sides=np.array([-0.5, 0.5]) if n > 1 else np.zeros(1),
      gap=gap if n > 1 else None,
      count=n,
    )
  camera, positions = _solve_view(
    camera,
    group,
    size,
    rng.random(2),
    _FOREGROUND_ROOM if style.has_foreground else 0.0,
  )
  moved = [
    dataclasses.replace(placement, x=x, z=z, y=y)
    for placement, (x, y, z) in zip(
      [*placements, *supports], map(round_all, positions), strict=True
    )
  ]
  return _Arrangement(
    camera=dataclasses.replace(camera, eye=round_all(camera.eye)),
    placements=tuple(moved[:n]),
    extras=tuple(Extra(SUPPORT, support) for support in moved[n:]),
    wall_from=max(
      -(points[:, 2] + placement.z).min()
      for points, placement in zip(group.outlines, moved, strict=True)
    ),
  )


def _line_up(
  rng: np.random.Generator, camera: Camera, outlines: Sequence[np.ndarray]
) -> _Group:
  """Puts the first object before the second, somewhat to one side."""
  towards = np.array([math.sin(camera.yaw), 0.0, math.cos(camera.yaw)])
  reach = [outline @ towards for outline in outlines]
  depth = rng.uniform(*_DEPTH_GAP) + reach[1].max() - reach[0].min()
  side = depth * math.tan(rng.uniform(*_DEPTH_ANGLE))
  side *= (-1, 1)[rng.integers(2)]
  return _Group(
    outlines=np.stack(outlines),
    depths=np.array([0.5, -0.5]) * depth,
    lifts=np.zeros(2),
    sides=np.array([0.5, -0.5]) * side,
    gap=None,
    count=2,
  )


def _stack(
  rng: np.random.Generator,
  camera: Camera,
  placements: Sequence[Placement],
  outlines: Sequence[np.ndarray],
) -> tuple[_Group, list[Placement]]:
  """Puts the second object under a stand and the first one on top of it."""
  turn = round(camera.yaw + rng.uniform(-0.3, 0.3), DIGITS)
  cos, sin = math.cos(turn), math.sin(turn)
  both = np.concatenate(outlines)
  margin = rng.uniform(*_BOARD_MARGIN)
  width = 2 * (np.abs(both @ (cos, 0, -sin)).max() + margin)
  depth = 2 * (np.abs(both @ (sin, 0, cos)).max() + margin)
  height = outlines[1][:, 1].max() + rng.uniform(*_AIR)
  height += stands.BOARD_FRAC * min(width, depth)
  stand, scale = stands.sample_stand(
    rng,
    uid=f'under {placements[0].object.uid}',
    width=width,
    depth=depth,
    height=height,
  )
  placement = Placement(stand, 0.0, 0.0, turn, round(scale, DIGITS))
  outline = place_points(placement, load_geometry(stand).extremes)
  return (
    _Group(
      outlines=np.stack([*outlines, outline]),
      depths=np.zeros(3),
      lifts=np.array([height, 0.0, 0.0]),
      sides=np.zeros(3),
      gap=None,
      count=2,
    ),
    [placement],
  )


def _compute_boxes(found: _Arrangement) -> np.ndarray:
  """Returns x0, y0, x1, y1 of each linked object, as shares of the picture."""
  return np.array(
    [
      compute_box(
        found.camera,
        place_points(placement, load_geometry(placement.object).extremes),
      )
      for placement in found.placements
    ]
  )


def _is_in_frame(found: _Arrangement) -> bool:
  """Returns whether no object is cut off by the frame, but for a sliver."""
  boxes = _compute_boxes(found)
  return bool(boxes.min() > -_SLIVER and boxes.max() < 1 + _SLIVER)


def _is_clear(found: _Arrangement, style: Style, relations: str) -> bool:
  """Returns whether both objects are seen well, and in their relation."""
  x0, y0, x1, y1 = _compute_boxes(found).T
  # From nearby the corrections do not bring everything to its place.
  room = _FOREGROUND_ROOM if style.has_foreground else 0.0
  if min(*x0, *y0) < _FRAME or max(*x1, *(y1 + room)) > 1 - _FRAME:
    return False
  if relations == 'sides':
    return bool(x0[-1] > x1[0] or len(x0) == 1)
  if ((x1 - x0) * ASPECT + y1 - y0).min() < 2 * _MIN_SIZE:
    return False
  if relations == 'depth' and (
    x1.min() - x0.max() < _MIN_OVERLAP_FRAC * (x1 - x0).min()
    or y1[0] - y1[1] < _MIN_LOWER
  ):
    return False
  nearness = visibility.draw_nearness(
    found.camera,
    [*found.placements, *(extra.placement for extra in found.extras)],
  )
  return all(
    visibility.compute_hidden_frac(nearness, i) <= MAX_HIDDEN_FRAC
    for i in range(len(found.placements))
  )

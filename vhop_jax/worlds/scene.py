"""Describes a picture by numbers: who stands where, seen and lit from where.

The world's frame has y up; the ground is y = 0. The wall, if there is one, is
the plane z = -wall_distance. The camera looks towards -z, turned by its yaw.
All angles are in radians, all lengths in units of a typical object's size.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from vhop_jax.worlds import prints
from vhop_jax.worlds.background import (
  DIGITS,
  Background,
  Surface,
  Triple,
  round_all,
  sample_background,
)
from vhop_jax.worlds.geometry import load_geometry
from vhop_jax.worlds.objects import COLOURS, Object

# Placement reckons with this shape of picture; `render.size_from_resolution`
# gives it up to rounding.
ASPECT = 1.5

# Free space between the objects and the frame, and between the objects, as
# shares of the picture's height and width.
_MARGIN = 0.035
_GAP = (0.015, 0.09)
# An object counts as large as it is high, or as this share of its width.
_WIDTH_WEIGHT = 0.62
_SIZE = (0.5, 0.75)
# 0: an object's size is that of its mesh; 1: all objects look equally large.
_EVENNESS = 0.5
_NUM_CORRECTIONS = 8
_MIN_DISTANCE = 1.2
# How far a printed side is turned away from the viewer at most.
_PRINT_TURN = 0.45

Box = tuple[float, float, float, float]


def _compute_axes(yaw: float, pitch: float) -> np.ndarray:
  """Returns right, up and forward of a view that is turned left and down."""
  cos_yaw, sin_yaw = math.cos(yaw), math.sin(yaw)
  cos_pitch, sin_pitch = math.cos(pitch), math.sin(pitch)
  return np.array(
    [
      [cos_yaw, 0, -sin_yaw],
      [-sin_yaw * sin_pitch, cos_pitch, -cos_yaw * sin_pitch],
      [-sin_yaw * cos_pitch, -sin_pitch, -cos_yaw * cos_pitch],
    ]
  )


@dataclasses.dataclass(frozen=True)
class Placement:
  """Stands an object on the ground.

  Attributes:
    object: what stands there.
    x: to the right, in the world's frame.
    z: towards the viewer, in the world's frame.
    yaw: turn about the vertical axis, counter-clockwise seen from above.
    scale: size relative to the asset pack's mesh.
  """

  object: Object
  x: float
  z: float
  yaw: float
  scale: float


@dataclasses.dataclass(frozen=True)
class Camera:
  """Is a perspective camera without roll.

  Attributes:
    eye: where it stands.
    yaw: turn to the left about the vertical axis.
    pitch: turn downwards.
    fov: vertical field of view.
  """

  eye: Triple
  yaw: float
  pitch: float
  fov: float

  def compute_axes(self) -> np.ndarray:
    """Returns the rows right, up and forward [3, 3] in the world's frame."""
    return _compute_axes(self.yaw, self.pitch)


@dataclasses.dataclass(frozen=True)
class Light:
  """Is a far light plus the light of the surroundings.

  Attributes:
    azimuth: from which side it shines; 0 is from +z, pi/2 from +x.
    elevation: height above the ground.
    colour: linear RGB factors, about 1.
    ambient: share of the light that comes from all around, 0 to 1.
    softness: blur of the shadow's edge, in units of length.
  """

  azimuth: float
  elevation: float
  colour: Triple
  ambient: float
  softness: float

  def compute_axes(self) -> np.ndarray:
    """Returns the light's view, rows right, up and forward [3, 3]."""
    return _compute_axes(self.azimuth, self.elevation)


@dataclasses.dataclass(frozen=True)
class Scene:
  """Holds everything that a picture depends on.

  Attributes:
    placements: one or two, from left to right as the viewer sees them.
  """

  placements: tuple[Placement, ...]
  camera: Camera
  light: Light
  background: Background

  def to_json(self) -> dict[str, Any]:
    """Returns the scene as a JSON-compatible dict."""
    values = _to_lists(dataclasses.asdict(self))
    for value, placement in zip(
      values['placements'], self.placements, strict=True
    ):
      value['object'] = placement.object.to_json()
    return values

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'Scene':
    """Makes a scene from what `to_json` returned."""
    background = values['background']
    return cls(
      placements=tuple(
        Placement(**{**value, 'object': Object.from_json(value['object'])})
        for value in values['placements']
      ),
      camera=Camera(**_to_tuples(values['camera'])),
      light=Light(**_to_tuples(values['light'])),
      background=Background(
        ground=Surface(**_to_tuples(background['ground'])),
        wall=Surface(**_to_tuples(background['wall'])),
        wall_distance=background['wall_distance'],
      ),
    )


def _to_lists(value: Any) -> Any:
  """Turns tuples into lists, at any depth."""
  if isinstance(value, dict):
    return {key: _to_lists(entry) for key, entry in value.items()}
  if isinstance(value, (list, tuple)):
    return [_to_lists(entry) for entry in value]
  return value


def _to_tuples(values: dict[str, Any]) -> dict[str, Any]:
  """Turns the lists among the values into tuples."""
  return {
    key: tuple(value) if isinstance(value, list) else value
    for key, value in values.items()
  }


def place_points(placement: Placement, points: np.ndarray) -> np.ndarray:
  """Moves points [N, 3] of an object to where the object stands."""
  cos, sin = math.cos(placement.yaw), math.sin(placement.yaw)
  turn = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
  shift = np.array([placement.x, 0, placement.z])
  return points @ (placement.scale * turn.T) + shift


def compute_box(
  camera: Camera, points: np.ndarray, aspect: float = ASPECT
) -> Box:
  """Computes the box on the screen around points of the world.

  Args:
    camera: the camera that sees them.
    points: [N, 3].
    aspect: width of the picture over its height.

  Returns:
    (x0, y0, x1, y1) as shares of the width and the height; (0, 0) is the upper
    left corner of the picture.
  """
  x, y, depth = camera.compute_axes() @ (points - np.array(camera.eye)).T
  zoom = 0.5 / math.tan(camera.fov / 2)
  x = 0.5 + zoom / aspect * x / depth
  y = 0.5 - zoom * y / depth
  return float(x.min()), float(y.min()), float(x.max()), float(y.max())


def project(scene: Scene, aspect: float = ASPECT) -> list[Box]:
  """Computes where each object of a scene appears, from all its vertices.

  Returns:
    One box (x0, y0, x1, y1) per placement, in shares of the width and height.
  """
  return [
    compute_box(
      scene.camera,
      place_points(placement, load_geometry(placement.object).positions),
      aspect,
    )
    for placement in scene.placements
  ]


def _compute_measure(wide: Any, tall: Any) -> Any:
  """Says how large an object looks, in the unit of its width and height."""
  return np.maximum(tall, _WIDTH_WEIGHT * wide)


def _solve_view(
  camera: Camera,
  outlines: Sequence[np.ndarray],
  depths: np.ndarray,
  size: float,
  gap: float,
  centre: np.ndarray,
) -> tuple[Camera, np.ndarray]:
  """Moves the objects apart and the camera about until all is in its place.

  Args:
    camera: gives yaw, pitch and field of view.
    outlines: points of each object [E, 3], turned, around the origin.
    depths: how far each object stands towards the camera [n].
    size: largest measure of an object, as a share of the picture's height.
    gap: between the objects, as a share of the picture's width.
    centre: where the group sits in the free space, 0 to 1: across, down.

  Returns:
    The camera and the positions x, y, z of the objects [n, 3].
  """
  axes = camera.compute_axes()
  zoom = 0.5 / math.tan(camera.fov / 2)
  per_depth = zoom / np.array([ASPECT, -1.0])
  margin = np.array([_MARGIN / ASPECT, _MARGIN])
  free = 1 - 2 * margin
  # In the camera's frame: right, up, forward, measured from the pivot.
  points = np.stack([axes @ outline.T for outline in outlines])
  towards = np.array([math.sin(camera.yaw), 0.0, math.cos(camera.yaw)])
  points += (depths[:, None] * (axes @ towards))[:, :, None]
  sides = np.array([-0.5, 0.5]) if len(outlines) > 1 else np.zeros(1)
  apart = 1.0
  distance = zoom / size + 0.5
  pan = np.array([0.0, 0.5])
  for _ in range(_NUM_CORRECTIONS):
    seen = points[:, :2] - pan[:, None]
    seen[:, 0] += (sides * apart)[:, None]
    seen *= per_depth[:, None] / (points[:, 2:] + distance)
    low, high = seen.min(axis=2) + 0.5, seen.max(axis=2) + 0.5
    corner = low.min(axis=0)
    extent = high.max(axis=0) - corner
    measure = _compute_measure(*((high - low) * (ASPECT, 1)).T).max()
    ratio = max(measure / size, *(extent / free))
    ratio = max(ratio, _MIN_DISTANCE / distance)
    distance *= ratio
    # Going back shrinks the picture towards the middle of the frame.
    corner = 0.5 + (corner - 0.5) / ratio
    wanted = margin + centre * np.maximum(free - extent / ratio, 0)
    # Lengths in the world per share of the picture at the pivot's distance.
    length = distance / per_depth
    pan = pan + (corner - wanted) * length
    if len(outlines) > 1:
      apart += (gap - (low[1, 0] - high[0, 0]) / ratio) * length[0]
  eye = pan @ axes[:2] - distance * axes[2]
  positions = (sides * apart)[:, None] * axes[0] + depths[:, None] * towards
  return dataclasses.replace(camera, eye=tuple(eye)), positions


def _face_viewer(
  turn: float, camera_yaw: float, area: prints.PrintArea | None
) -> float:
  """Turns a printed side to the viewer.

  Args:
    turn: drawn evenly from [0, 2 pi).
    camera_yaw: of the camera.
    area: where the print is; None leaves the turn as it was drawn.
  """
  if area is None:
    return turn
  away = _PRINT_TURN * (turn / math.pi - 1)
  return (camera_yaw - area.side + away) % (2 * math.pi)


def sample_scene(rng: np.random.Generator, objects: Sequence[Object]) -> Scene:
  """Samples a scene in which one or two objects stand side by side.

  Every object is whole in the frame and the objects' boxes do not overlap.
  Their outlines are projected and a few corrections bring each to its place, so
  that nothing is drawn twice or rejected by its pixels.

  Args:
    rng: is consumed.
    objects: one or two, from left to right as the viewer sees them.
  """
  n = len(objects)
  if n not in (1, 2):
    raise ValueError(f'a scene shows one or two objects, not {n}')
  yaw = rng.uniform(-0.5, 0.5)
  camera = Camera(
    eye=(0.0, 0.0, 0.0),
    yaw=round(yaw, DIGITS),
    pitch=round(rng.uniform(0.14, 0.6), DIGITS),
    fov=round(rng.uniform(0.42, 0.85), DIGITS),
  )
  turns = [
    _face_viewer(turn, yaw, load_geometry(obj).print_area)
    for turn, obj in zip(rng.uniform(0, 2 * np.pi, n), objects, strict=True)
  ]
  scales = rng.uniform(0.9, 1.1, n)
  depths = rng.uniform(-0.25, 0.25, n)
  size, gap = rng.uniform(*_SIZE), rng.uniform(*_GAP)
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
  camera, positions = _solve_view(
    camera, outlines, depths, size, gap, rng.random(2)
  )
  placements = [
    dataclasses.replace(placement, x=x, z=z)
    for placement, (x, _, z) in zip(
      placements, map(round_all, positions), strict=True
    )
  ]
  wall_from = max(
    -(points[:, 2] + placement.z).min()
    for points, placement in zip(outlines, placements, strict=True)
  )
  light = Light(
    azimuth=round(yaw + rng.uniform(-1.25, 1.25), DIGITS),
    elevation=round(rng.uniform(0.6, 1.2), DIGITS),
    colour=round_all(1 + rng.uniform(-1, 1) * np.array([0.05, 0.0, -0.06])),
    ambient=round(rng.uniform(0.34, 0.5), DIGITS),
    softness=round(rng.uniform(0.02, 0.08), DIGITS),
  )
  return Scene(
    placements=tuple(placements),
    camera=dataclasses.replace(camera, eye=round_all(camera.eye)),
    light=light,
    background=sample_background(
      rng, np.array([COLOURS[obj.colour] for obj in objects]), wall_from
    ),
  )

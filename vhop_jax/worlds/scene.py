"""Describes a picture by numbers: who stands where, seen and lit from where.

The world's frame has y up; the ground is y = 0. The wall, if there is one, is
the plane z = -wall_distance. The camera looks towards -z, turned by its yaw.
All angles are in radians, all lengths in units of a typical object's size.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from vhop_jax.worlds.background import Background, Surface, Triple
from vhop_jax.worlds.geometry import load_geometry
from vhop_jax.worlds.objects import Object

# Placement reckons with this shape of picture; `render.size_from_resolution`
# gives it up to rounding.
ASPECT = 1.5

# What stands in a picture beside the objects that its links are about: a small
# thing in front, things around, and what an object stands on.
ROLES = FOREGROUND, CLUTTER, SUPPORT = 'foreground', 'clutter', 'support'

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
  """Stands an object on the ground, or on another thing.

  Attributes:
    object: what stands there.
    x: to the right, in the world's frame.
    z: towards the viewer, in the world's frame.
    yaw: turn about the vertical axis, counter-clockwise seen from above.
    scale: size relative to the asset pack's mesh.
    y: height of its foot above the ground.
  """

  object: Object
  x: float
  z: float
  yaw: float
  scale: float
  y: float = 0.0

  def to_json(self) -> dict[str, Any]:
    """Returns the placement as a JSON-compatible dict."""
    values = {
      'object': self.object.to_json(),
      'x': self.x,
      'z': self.z,
      'yaw': self.yaw,
      'scale': self.scale,
    }
    # Scenes of before heights were added are to keep their text.
    return {**values, 'y': self.y} if self.y else values

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'Placement':
    """Makes a placement from what `to_json` returned."""
    return cls(**{**values, 'object': Object.from_json(values['object'])})


@dataclasses.dataclass(frozen=True)
class Extra:
  """Holds a thing in a picture that no link is about.

  Attributes:
    role: one of `ROLES`.
    placement: where it stands.
  """

  role: str
  placement: Placement

  def to_json(self) -> dict[str, Any]:
    """Returns the extra as a JSON-compatible dict."""
    return {'role': self.role, 'placement': self.placement.to_json()}

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'Extra':
    """Makes an extra from what `to_json` returned."""
    return cls(values['role'], Placement.from_json(values['placement']))


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
    placements: one or two, in the order of `ImageRecord.objects`.
    extras: what else stands there.
  """

  placements: tuple[Placement, ...]
  camera: Camera
  light: Light
  background: Background
  extras: tuple[Extra, ...] = ()

  def list_things(self) -> list[Placement]:
    """Lists all that stands there, the linked objects first."""
    return [*self.placements, *(extra.placement for extra in self.extras)]

  def to_json(self) -> dict[str, Any]:
    """Returns the scene as a JSON-compatible dict."""
    values = {
      'placements': [placement.to_json() for placement in self.placements],
      'camera': _to_lists(dataclasses.asdict(self.camera)),
      'light': _to_lists(dataclasses.asdict(self.light)),
      'background': _to_lists(dataclasses.asdict(self.background)),
    }
    if self.extras:
      values['extras'] = [extra.to_json() for extra in self.extras]
    return values

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'Scene':
    """Makes a scene from what `to_json` returned."""
    background = values['background']
    return cls(
      placements=tuple(map(Placement.from_json, values['placements'])),
      camera=Camera(**_to_tuples(values['camera'])),
      light=Light(**_to_tuples(values['light'])),
      background=Background(
        ground=Surface(**_to_tuples(background['ground'])),
        wall=Surface(**_to_tuples(background['wall'])),
        wall_distance=background['wall_distance'],
      ),
      extras=tuple(map(Extra.from_json, values.get('extras', ()))),
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
  shift = np.array([placement.x, placement.y, placement.z])
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


def project_placement(
  camera: Camera, placement: Placement, aspect: float = ASPECT
) -> Box:
  """Computes where a thing appears, from all its vertices.

  Returns:
    The box (x0, y0, x1, y1) in shares of the width and height.
  """
  points = load_geometry(placement.object).positions
  return compute_box(camera, place_points(placement, points), aspect)


def project(scene: Scene, aspect: float = ASPECT) -> list[Box]:
  """Computes where each linked object of a scene appears.

  Returns:
    One box (x0, y0, x1, y1) per placement, in shares of the width and height.
  """
  return [
    project_placement(scene.camera, placement, aspect)
    for placement in scene.placements
  ]

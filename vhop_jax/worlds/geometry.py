"""Derives from a mesh what placing and painting an object needs to know."""

import functools
from dataclasses import dataclass

import numpy as np

from vhop_jax.errors import DataError
from vhop_jax.worlds.assets import AssetPack, Mesh, Part
from vhop_jax.worlds.assets.procedural import PROCEDURAL
from vhop_jax.worlds.objects import Object

PACKS: dict[str, AssetPack] = {PROCEDURAL.name: PROCEDURAL}

_NUM_DIRECTIONS = 96
_TWO_TONE_FRAC = 0.32
_BASE_HEIGHT = 0.06


def _make_directions(count: int) -> np.ndarray:
  """Spreads unit vectors evenly over the sphere (a Fibonacci lattice)."""
  i = np.arange(count) + 0.5
  y = 1 - 2 * i / count
  angle = i * np.pi * (3 - np.sqrt(5))
  ring = np.sqrt(1 - y * y)
  points = np.stack([np.cos(angle) * ring, y, np.sin(angle) * ring])
  return points.astype(np.float32)


_DIRECTIONS = _make_directions(_NUM_DIRECTIONS)


@dataclass(frozen=True)
class Geometry:
  """A mesh in the form in which the renderer and the placement use it.

  Attributes:
    positions: every vertex, float32 [V, 3], as the asset pack gave it.
    extremes: the vertices that lie farthest out in some direction [E, 3]; the
      outline of these few is, to about a hundredth, the outline of all.
    vertices: position, normal and part of each vertex, float32 [V, 7], bytes.
    indices: three uint32 per triangle, bytes.
    num_indices: how many indices there are.
    body_low: lowest corner of the box around the patterned part [3].
    body_size: extents of that box [3].
    two_tone_y: height above which the second colour covers about a third of
      the body's surface.
    base_radius: how far the part that touches the ground reaches out.
  """

  positions: np.ndarray
  extremes: np.ndarray
  vertices: bytes
  indices: bytes
  num_indices: int
  body_low: np.ndarray
  body_size: np.ndarray
  two_tone_y: float
  base_radius: float


def _compute_two_tone_y(positions: np.ndarray, faces: np.ndarray) -> float:
  """Finds the height above which a third of these triangles' area lies."""
  a, b, c = (positions[faces[:, k]] for k in range(3))
  area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
  # A tall triangle lies at many heights: spread its area over three of them.
  y = np.concatenate([(4 * p + a + b + c)[:, 1] / 7 for p in (a, b, c)])
  order = np.argsort(y)[::-1]
  cumulated = np.cumsum(np.tile(area, 3)[order])
  index = np.searchsorted(cumulated, _TWO_TONE_FRAC * cumulated[-1])
  return float(y[order[min(index, len(y) - 1)]])


def make_geometry(mesh: Mesh) -> Geometry:
  """Prepares one mesh for placement and rendering."""
  positions = np.ascontiguousarray(mesh.positions, np.float32)
  faces = np.ascontiguousarray(mesh.faces, np.uint32)
  part = np.asarray(mesh.part)
  vertices = np.concatenate(
    [positions, mesh.normals, part[:, None]], axis=1, dtype=np.float32
  )
  body = positions[part == Part.BODY]
  body_faces = faces[part[faces[:, 0]] == Part.BODY]
  if not len(body_faces):
    body, body_faces = positions, faces
  low = body.min(axis=0)
  base = positions[positions[:, 1] < _BASE_HEIGHT]
  extremes = np.unique((positions @ _DIRECTIONS).argmax(axis=0))
  return Geometry(
    positions=positions,
    extremes=positions[extremes],
    vertices=vertices.tobytes(),
    indices=faces.tobytes(),
    num_indices=faces.size,
    body_low=low,
    body_size=np.maximum(body.max(axis=0) - low, 1e-3),
    two_tone_y=_compute_two_tone_y(positions, body_faces),
    base_radius=float(np.hypot(base[:, 0], base[:, 2]).max(initial=0.05)),
  )


@functools.lru_cache(maxsize=256)
def load_geometry(obj: Object) -> Geometry:
  """Makes the geometry of an object; remembers those used last."""
  if obj.pack not in PACKS:
    raise DataError(
      f'object {obj.uid} is of the asset pack {obj.pack!r}, which is not'
      f' installed; there are: {", ".join(PACKS)}'
    )
  return make_geometry(PACKS[obj.pack].mesh(obj))

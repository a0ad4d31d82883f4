"""Makes the primitive pieces that procedural meshes are composed of.

A piece carries positions, normals and faces; `assemble` joins pieces into one
normalised `Mesh`. Normals may have any length until then. All faces are
counter-clockwise seen from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
from typing import NamedTuple

import numpy as np

from vhop_jax.worlds.assets import Mesh, Part

_TINY = 1e-9
_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


class Piece(NamedTuple):
  """Holds one primitive: positions [V, 3], normals [V, 3], faces [F, 3]."""

  positions: np.ndarray
  normals: np.ndarray
  faces: np.ndarray

  def move(self, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Piece:
    """Returns the piece shifted."""
    return self._replace(positions=self.positions + (x, y, z))

  def scale(self, x: float, y: float, z: float) -> Piece:
    """Returns the piece stretched about the origin; negative mirrors it."""
    factors = np.array([x, y, z])
    faces = self.faces if x * y * z > 0 else self.faces[:, ::-1]
    return Piece(self.positions * factors, self.normals / factors, faces)

  def turn(self, axis: str, degrees: float) -> Piece:
    """Returns the piece turned about an axis by the right-hand rule."""
    angle = np.radians(degrees)
    first, second = {'x': (1, 2), 'y': (2, 0), 'z': (0, 1)}[axis]
    turned = np.eye(3)
    turned[first, first] = turned[second, second] = np.cos(angle)
    turned[second, first] = np.sin(angle)
    turned[first, second] = -np.sin(angle)
    return Piece(self.positions @ turned.T, self.normals @ turned.T, self.faces)


Pieces = list[tuple[Part, Piece]]


def mix(low: float, high: float, t: float) -> float:
  """Interpolates from low (t = 0) to high (t = 1)."""
  return low + (high - low) * t


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Returns cross products along the last axis, faster than np.cross."""
  return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]


@functools.lru_cache(maxsize=256)
def grid_faces(rows: int, columns: int, every: int = 1) -> np.ndarray:
  """Makes faces between rows of a grid that wraps around in its columns.

  Args:
    rows: Number of vertex rows.
    columns: Number of vertices in a row.
    every: Step from one row to be joined with its successor to the next one.
  """
  low = np.arange(0, rows - 1, every)[:, None] * columns
  here = np.arange(columns)
  there = np.roll(here, -1)
  a, b = low + here, low + there
  c, d = a + columns, b + columns
  lower, upper = np.stack([a, c, b], -1), np.stack([c, d, b], -1)
  return np.concatenate([lower, upper]).reshape(-1, 3).astype(np.uint32)


@functools.lru_cache(maxsize=32)
def circle(segments: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns cosines and sines of evenly spaced angles."""
  angles = np.arange(segments) * (2 * np.pi / segments)
  return np.cos(angles), np.sin(angles)


def curve(points: Sequence[Sequence[float]], steps: int = 4) -> np.ndarray:
  """Returns a smooth curve through points (Catmull-Rom).

  Args:
    points: At least two points, of any dimension.
    steps: Pieces each stretch between two points is cut into.
  """
  p = np.asarray(points, float)
  p = np.concatenate([2 * p[:1] - p[1:2], p, 2 * p[-1:] - p[-2:-1]])
  t = (np.arange(steps) / steps)[:, None]
  a, b, c, d = (p[i : len(p) - 3 + i, None] for i in range(4))
  stretches = b + 0.5 * t * (
    c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a))
  )
  return np.concatenate([stretches.reshape(-1, p.shape[1]), p[-2:-1]])


def arc(
  radius: float, start_deg: float, end_deg: float, steps: int = 12
) -> np.ndarray:
  """Returns points [steps + 1, 3] of an arc in the plane z = 0."""
  angles = np.radians(np.linspace(start_deg, end_deg, steps + 1))
  return np.stack(
    [radius * np.cos(angles), radius * np.sin(angles), 0 * angles], -1
  )


def lathe(
  profile: Sequence[Sequence[float]] | Sequence[np.ndarray] | np.ndarray,
  segments: int = 20,
  crease_deg: float = 40.0,
) -> Piece:
  """Turns a profile around the y axis.

  Args:
    profile: (radius, height) points; going up, the outside is to the right.
    segments: Number of sides.
    crease_deg: Bends sharper than this stay edges.
  """
  p = np.asarray(profile, float)
  along = p[1:] - p[:-1]
  along /= np.maximum(np.hypot(along[:, 0], along[:, 1]), _TINY)[:, None]
  out = np.stack([along[:, 1], -along[:, 0]], -1)
  ends = np.repeat(out, 2, axis=0)
  bend = (out[1:] * out[:-1]).sum(-1)
  smooth = np.where(bend[:, None] > np.cos(np.radians(crease_deg)), 1.0, 0.0)
  ends[1:-1:2] += smooth * out[1:]
  ends[2::2] += smooth * out[:-1]
  points = np.repeat(p, 2, axis=0)[1:-1]
  cosines, sines = circle(segments)

  def turn(radii: np.ndarray, heights: np.ndarray) -> np.ndarray:
    turned = np.empty((len(radii), segments, 3))
    turned[..., 0] = radii[:, None] * cosines
    turned[..., 1] = heights[:, None]
    turned[..., 2] = radii[:, None] * sines
    return turned.reshape(-1, 3)

  return Piece(
    turn(points[:, 0], points[:, 1]),
    turn(ends[:, 0], ends[:, 1]),
    grid_faces(len(points), segments, every=2),
  )


@functools.lru_cache(maxsize=32)
def _unit_cylinder(segments: int) -> tuple[Piece, np.ndarray]:
  """Makes a cylinder, and tells which of its vertices belong to the side."""
  piece = lathe([(0, 0), (1, 0), (1, 1), (0, 1)], segments)
  side = np.zeros((6 * segments, 1))
  side[2 * segments : 4 * segments] = 1.0
  return piece, side


def cylinder(
  radius: float,
  height: float,
  top_radius: float | None = None,
  segments: int = 20,
) -> Piece:
  """Makes a closed cylinder or a truncated cone, standing on y = 0."""
  unit, side = _unit_cylinder(segments)
  top = radius if top_radius is None else top_radius
  spread = radius + (top - radius) * unit.positions[:, 1:2]
  widths = np.concatenate([spread, np.full_like(spread, height), spread], -1)
  normals = unit.normals
  if top != radius:
    normals = normals + side * (0.0, (radius - top) / height, 0.0)
  return Piece(unit.positions * widths, normals, unit.faces)


@functools.lru_cache(maxsize=8)
def _sphere(segments: int, rows: int) -> Piece:
  """Makes a unit sphere around the origin."""
  angles = np.linspace(-np.pi / 2, np.pi / 2, rows + 1)
  rings, sines = np.cos(angles), np.sin(angles)
  rings[[0, -1]] = 0.0
  x, z = circle(segments)
  heights = np.repeat(sines[:, None], segments, 1)
  positions = np.stack([rings[:, None] * x, heights, rings[:, None] * z], -1)
  positions = positions.reshape(-1, 3)
  return Piece(positions, positions, grid_faces(rows + 1, segments))


def ellipsoid(
  x: float,
  y: float | None = None,
  z: float | None = None,
  segments: int = 16,
  rows: int = 10,
) -> Piece:
  """Makes an ellipsoid around the origin, a ball of radius x by default."""
  y = x if y is None else y
  return _sphere(segments, rows).scale(x, y, x if z is None else z)


_CORNERS = np.array(
  [[x, y, z] for x in (-0.5, 0.5) for y in (0.0, 1.0) for z in (-0.5, 0.5)]
)
_SIDES = np.array(
  [
    [0, 1, 3, 2],
    [4, 6, 7, 5],
    [0, 4, 5, 1],
    [2, 3, 7, 6],
    [0, 2, 6, 4],
    [1, 5, 7, 3],
  ]
)
_BOX_FACES = (
  (np.arange(6)[:, None, None] * 4 + np.array([[0, 1, 2], [0, 2, 3]]))
  .reshape(-1, 3)
  .astype(np.uint32)
)


_BOX_CORNERS = _CORNERS[_SIDES].reshape(-1, 3)
_BOX_NORMALS = np.repeat(
  np.array(
    [[-1, 0, 0], [1, 0, 0], [0, -1, 0], [0, 1, 0], [0, 0, -1], [0, 0, 1]]
  ),
  4,
  axis=0,
).astype(float)


def box(
  width: float,
  height: float,
  depth: float,
  taper: float | tuple[float, float] = 1.0,
) -> Piece:
  """Makes a box standing on y = 0.

  Args:
    width: Extent along x.
    height: Extent along y.
    depth: Extent along z.
    taper: Size of the top relative to the bottom; or the two of x and z.
  """
  size = np.array([width, height, depth])
  if taper == 1.0:
    return Piece(_BOX_CORNERS * size, _BOX_NORMALS, _BOX_FACES)
  corners = _CORNERS * size
  corners[[2, 3, 6, 7]] *= (
    (taper[0], 1, taper[1]) if isinstance(taper, tuple) else (taper, 1, taper)
  )
  quads = corners[_SIDES]
  # Diagonals, since an edge may have shrunk to nothing.
  normals = cross(quads[:, 2] - quads[:, 0], quads[:, 3] - quads[:, 1])
  return Piece(quads.reshape(-1, 3), np.repeat(normals, 4, axis=0), _BOX_FACES)


@functools.lru_cache(maxsize=8)
def _rounded_cube(steps: int) -> Piece:
  """Makes a sphere cut into octants; positions hold the octants' signs."""
  quarter = np.linspace(0, np.pi / 2, steps + 1)
  angles = np.concatenate([quarter + k * np.pi / 2 for k in range(4)])
  sign_x = np.repeat([1, -1, -1, 1], steps + 1)
  sign_z = np.repeat([1, 1, -1, -1], steps + 1)
  heights = np.concatenate([quarter - np.pi / 2, quarter])
  sign_y = np.repeat([-1, 1], steps + 1)
  shape = (len(heights), len(angles))
  normals = np.stack(
    [
      np.cos(heights)[:, None] * np.cos(angles),
      np.broadcast_to(np.sin(heights)[:, None], shape),
      np.cos(heights)[:, None] * np.sin(angles),
    ],
    -1,
  )
  signs = np.stack(
    [
      np.broadcast_to(sign_x, shape),
      np.broadcast_to(sign_y[:, None], shape),
      np.broadcast_to(sign_z, shape),
    ],
    -1,
  )
  columns = len(angles)
  a, b, c, d = np.arange(4) * (steps + 1)
  bottom = np.array([[a, b, c], [a, c, d]])
  top = np.array([[a, c, b], [a, d, c]]) + (len(heights) - 1) * columns
  faces = np.concatenate([grid_faces(len(heights), columns), bottom, top])
  return Piece(
    signs.reshape(-1, 3).astype(float),
    normals.reshape(-1, 3),
    faces.astype(np.uint32),
  )


def rounded_box(
  width: float, height: float, depth: float, radius: float, steps: int = 3
) -> Piece:
  """Makes a box with rounded edges, standing on y = 0."""
  radius = min(radius, width / 2, height / 2, depth / 2)
  unit = _rounded_cube(steps)
  core = np.array([width, height, depth]) / 2 - radius
  positions = unit.normals * radius + unit.positions * core
  return unit._replace(positions=positions + (0, height / 2, 0))


def to_unit(vectors: np.ndarray) -> np.ndarray:
  """Scales vectors to unit length."""
  lengths = np.sqrt(np.einsum('...i,...i->...', vectors, vectors))
  return vectors / np.maximum(lengths, _TINY)[..., None]


def assemble(pieces: Pieces) -> Mesh:
  """Joins pieces into one mesh on the ground, centred, of largest extent 1."""
  counts = [len(piece.positions) for _, piece in pieces]
  offsets = np.concatenate([[0], np.cumsum(counts[:-1])])
  positions = np.concatenate([piece.positions for _, piece in pieces])
  low, high = positions.min(0), positions.max(0)
  middle = (low + high) / 2
  middle[1] = low[1]
  positions = (positions - middle) / (high - low).max()
  normals = to_unit(np.concatenate([piece.normals for _, piece in pieces]))
  faces = [
    piece.faces + offset
    for (_, piece), offset in zip(pieces, offsets, strict=True)
  ]
  part = np.repeat(np.array([part for part, _ in pieces], np.uint8), counts)
  return Mesh(
    positions.astype(np.float32),
    normals.astype(np.float32),
    part,
    np.concatenate(faces).astype(np.uint32),
  )

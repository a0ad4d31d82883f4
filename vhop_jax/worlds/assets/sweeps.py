"""Makes pieces that follow a path or an outline."""

from collections.abc import Sequence
import functools

import numpy as np

from vhop_jax.worlds.assets.shapes import (
  Piece,
  arc,
  circle,
  cross,
  cylinder,
  grid_faces,
  to_unit,
)

Points = np.ndarray | Sequence[Sequence[float]] | Sequence[np.ndarray]


def _rod(
  start: np.ndarray,
  end: np.ndarray,
  radius: float,
  end_radius: float,
  segments: int,
) -> Piece:
  """Makes a cylinder or a truncated cone from one point to another."""
  along = end - start
  length = float(np.sqrt(along @ along))
  along = along / length
  x, y, z = along
  # The shortest rotation that takes +y to the direction.
  k = 1 / (1 + y) if y > -0.999 else 0.0
  turned = np.array(
    [
      [1 - k * x * x, x, -k * x * z],
      [-x, y, -z],
      [-k * x * z, z, 1 - k * z * z],
    ]
  )
  if not k:
    turned = np.diag([1.0, -1.0, -1.0])
  piece = cylinder(radius, length, end_radius, segments)
  return Piece(
    piece.positions @ turned.T + start,
    piece.normals @ turned.T,
    piece.faces,
  )


@functools.lru_cache(maxsize=32)
def _fan_faces(corners: int) -> np.ndarray:
  """Makes the faces of a convex polygon, all from its first corner."""
  fan = np.arange(corners - 2)[:, None] + np.array([0, 1, 2])
  fan[:, 0] = 0
  return fan


def tube(
  path: Points,
  radius: float | Sequence[float] | np.ndarray,
  segments: int = 8,
  closed: bool = False,
) -> Piece:
  """Sweeps a circle along a path that lies in a plane.

  Args:
    path: Points [n, 3].
    radius: One radius, or one for each point.
    segments: Number of sides.
    closed: Joins the end to the start; else both ends are capped.
  """
  p = np.asarray(path, float)
  if len(p) == 2:
    radii = np.broadcast_to(radius, 2)
    return _rod(p[0], p[1], float(radii[0]), float(radii[1]), segments)
  if closed:
    p = np.concatenate([p[-1:], p, p[:1]])
    along = to_unit(p[2:] - p[:-2])
    p = p[1:-1]
  else:
    steps = p[1:] - p[:-1]
    along = to_unit(np.concatenate([steps[:1], p[2:] - p[:-2], steps[-1:]]))
  bends = cross(along[:-1], along[1:])
  across = bends[np.einsum('ij,ij->i', bends, bends).argmax()]
  if across @ across < 1e-6:
    across = cross(along[0], np.eye(3)[np.argmin(np.abs(along[0]))])
  across = across / np.sqrt(across @ across)
  side = cross(across[None], along)
  cosines, sines = circle(segments)
  # In a plane the side is across the path and of unit length.
  normals = cosines[:, None] * side[:, None] + sines[:, None] * across
  radii = np.broadcast_to(np.asarray(radius, float), len(p))[:, None, None]
  rings = p[:, None] + radii * normals
  if closed:
    rings = np.concatenate([rings, rings[:1]])
    normals = np.concatenate([normals, normals[:1]])
  positions = rings.reshape(-1, 3)
  normals = normals.reshape(-1, 3)
  faces = grid_faces(len(rings), segments)[:, ::-1]
  if not closed:
    fan = _fan_faces(segments)
    start = len(positions)
    positions = np.concatenate([positions, rings[0], rings[-1]])
    caps = np.repeat(np.stack([-along[0], along[-1]]), segments, axis=0)
    normals = np.concatenate([normals, caps])
    faces = np.concatenate(
      [faces, fan[:, ::-1] + start, fan + start + segments]
    )
  return Piece(positions, normals, faces)


def torus(radius: float, thickness: float, segments: int = 24) -> Piece:
  """Makes a ring around the z axis, centred at the origin."""
  path = arc(radius, 0, 360, segments)[:-1]
  return tube(path, thickness, segments=10, closed=True)


def extrude(
  outline: Points,
  depth: float,
  crease_deg: float = 40.0,
) -> Piece:
  """Gives an outline in the xy plane a depth, centred at z = 0.

  Args:
    outline: Counter-clockwise points [n, 2], star-shaped about their mean.
    depth: Extent along z.
    crease_deg: Bends sharper than this stay edges.
  """
  p = np.asarray(outline, float)
  n = len(p)
  along = to_unit(np.roll(p, -1, 0) - p)
  out = np.stack([along[:, 1], -along[:, 0]], -1)
  after = np.roll(out, -1, 0)
  before = np.roll(out, 1, 0)
  limit = np.cos(np.radians(crease_deg))
  start = out + before * ((out * before).sum(-1) > limit)[:, None]
  end = out + after * ((out * after).sum(-1) > limit)[:, None]
  here = np.arange(n)
  there = np.roll(here, -1)
  flat = np.zeros((n, 1))
  half = np.full((n, 1), depth / 2)
  centre = np.append(p.mean(0), depth / 2)[None]
  front = np.concatenate([np.concatenate([p, half], -1), centre])
  positions = np.concatenate(
    [
      front,
      front * (1, 1, -1),
      np.concatenate([p, half], -1),
      np.concatenate([p, -half], -1),
      np.concatenate([p[there], half], -1),
      np.concatenate([p[there], -half], -1),
    ]
  )
  start3, end3 = (np.concatenate([v, flat], -1) for v in (start, end))
  normals = np.concatenate(
    [
      np.tile([0.0, 0.0, 1.0], (n + 1, 1)),
      np.tile([0.0, 0.0, -1.0], (n + 1, 1)),
      start3,
      start3,
      end3,
      end3,
    ]
  )
  middle = np.full(n, n)
  k = n + 1
  a, b, c, d = (2 * k + i * n + here for i in range(4))
  faces = np.concatenate(
    [
      np.stack([middle, here, there], -1),
      np.stack([middle + k, there + k, here + k], -1),
      np.stack([a, b, c], -1),
      np.stack([b, d, c], -1),
    ]
  )
  return Piece(positions, normals, faces)


def loft(rings: np.ndarray, flat: bool = False) -> Piece:
  """Spans a skin over closed cross-sections and caps both ends.

  Args:
    rings: Points [m, k, 3]; seen from the last ring towards the first one,
      each runs counter-clockwise.
    flat: Gives each side its own normal instead of smooth shading.
  """
  p = np.asarray(rings, float)
  m, k, _ = p.shape
  if flat:
    q = np.roll(p, -1, 1)
    quads = np.stack([p[:-1], q[:-1], q[1:], p[1:]], 2).reshape(-1, 4, 3)
    out = cross(quads[:, 2] - quads[:, 0], quads[:, 3] - quads[:, 1])
    positions = quads.reshape(-1, 3)
    normals = np.repeat(out, 4, axis=0)
    corner = np.arange(len(quads))[:, None, None] * 4
    faces = corner + np.array([[0, 1, 2], [0, 2, 3]])
    faces = faces.reshape(-1, 3)
  else:
    around = np.roll(p, -1, 1) - np.roll(p, 1, 1)
    along = np.concatenate([p[1:2] - p[:1], p[2:] - p[:-2], p[-1:] - p[-2:-1]])
    positions = p.reshape(-1, 3)
    normals = cross(around, along).reshape(-1, 3)
    faces = grid_faces(m, k)[:, ::-1]
  ends, outs, caps = [positions], [normals], [faces]
  fan = np.arange(k)
  fan = np.stack([np.full(k, k), fan, np.roll(fan, -1)], -1)
  for i, ring in enumerate((p[0], p[-1])):
    start = sum(map(len, ends))
    ends.append(np.concatenate([ring, ring.mean(0)[None]]))
    out = cross(ring, np.roll(ring, -1, 0)).sum(0) * (1 if i else -1)
    outs.append(np.tile(out, (k + 1, 1)))
    caps.append((fan if i else fan[:, ::-1]) + start)
  return Piece(np.concatenate(ends), np.concatenate(outs), np.concatenate(caps))

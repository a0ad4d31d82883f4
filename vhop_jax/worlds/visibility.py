"""Measures how much of each thing in a scene is hidden behind others.

A small rasteriser in NumPy, so that a world can be checked where no OpenGL is
installed. Things are drawn as the renderer draws them, at pixel centres and
without smoothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from vhop_jax.worlds.geometry import load_geometry
from vhop_jax.worlds.scene import ASPECT, Camera, Placement, place_points

# Enough for shares: an object of a usual picture covers about 1,000 pixels.
HEIGHT_PX = 80
WIDTH_PX = round(ASPECT * HEIGHT_PX)


def draw_nearness(
  camera: Camera, placements: Sequence[Placement]
) -> np.ndarray:
  """Draws each thing by itself.

  Args:
    camera: sees the things; all of them are in front of it.
    placements: the things.

  Returns:
    For each thing one over its distance along the view, 0 where it is not
    [n, `HEIGHT_PX`, `WIDTH_PX`].
  """
  return np.stack([_draw(camera, placement) for placement in placements])


def compute_hidden_frac(
  nearness: np.ndarray, thing: int, others: Iterable[int] | None = None
) -> float:
  """Computes what share of a thing's pixels lies behind others.

  Args:
    nearness: of all things, from `draw_nearness`.
    thing: which one.
    others: the things that may hide it; None takes all.

  Returns:
    From 0 to 1; 1 where the thing is so small that it has no pixel.
  """
  if others is None:
    others = range(len(nearness))
  rest = [i for i in others if i != thing]
  own = nearness[thing]
  area = np.count_nonzero(own)
  if not area:
    return 1.0
  front = nearness[rest].max(axis=0, initial=0.0)
  return float(np.count_nonzero((own > 0) & (front > own)) / area)


def _draw(camera: Camera, placement: Placement) -> np.ndarray:
  """Returns the nearness of one thing [`HEIGHT_PX`, `WIDTH_PX`]."""
  geometry = load_geometry(placement.object)
  points = place_points(placement, geometry.positions)
  across, up, depth = camera.compute_axes() @ (points - np.array(camera.eye)).T
  focal_px = HEIGHT_PX / 2 / np.tan(camera.fov / 2)
  # A pixel's centre has whole coordinates.
  seen = np.stack(
    [
      WIDTH_PX / 2 - 0.5 + focal_px * across / depth,
      HEIGHT_PX / 2 - 0.5 - focal_px * up / depth,
      1 / depth,
    ],
    axis=1,
  )
  corners = seen[np.frombuffer(geometry.indices, np.uint32).reshape(-1, 3)]
  a, b, c = corners.transpose(1, 0, 2)
  # Twice the area on the screen, negative where the back is seen.
  area = _cross(b - a, c - a)
  size = np.array([WIDTH_PX, HEIGHT_PX])
  low = np.maximum(np.ceil(corners[..., :2].min(axis=1)), 0).astype(int)
  high = np.minimum(np.floor(corners[..., :2].max(axis=1)), size - 1)
  extent = np.maximum(high.astype(int) - low + 1, 0)
  extent[(area >= 0) if geometry.closed else (area == 0)] = 0
  # One entry for each pixel of the box around each triangle.
  count = extent.prod(axis=1)
  face = np.repeat(np.arange(len(count)), count)
  rank = np.arange(len(face)) - np.repeat(count.cumsum() - count, count)
  x = low[face, 0] + rank % extent[face, 0]
  y = low[face, 1] + rank // extent[face, 0]
  # Barycentric coordinates.
  offset = np.stack([x, y], axis=1) - a[face, :2]
  at_b = _cross(offset, (c - a)[face]) / area[face]
  at_c = _cross((b - a)[face], offset) / area[face]
  is_inside = (at_b >= 0) & (at_c >= 0) & (at_b + at_c <= 1)
  # What is linear on the screen is one over the distance.
  change = corners[face, 1:, 2] - a[face, 2:]
  value = a[face, 2] + at_b * change[:, 0] + at_c * change[:, 1]
  drawn = np.zeros((HEIGHT_PX, WIDTH_PX))
  np.maximum.at(drawn, (y[is_inside], x[is_inside]), value[is_inside])
  return drawn


def _cross(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns the third entry of the cross products of vectors [..., 2 or 3]."""
  return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]

"""Finds where on an object there is room to print, and draws what is printed.

A print is a white label with a logo or a text in black. It lies on the body,
on the one of the four upright sides that has most room for it.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from PIL import Image

from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds.assets import Mesh, Part, logos, texts
from vhop_jax.worlds.objects import Object

# Every second logo or word is kept for worlds on which routers are measured.
PRINT_SETS = {
  'all': slice(None),
  'train': slice(0, None, 2),
  'test': slice(1, None, 2),
}

# Of the picture that is laid onto the object, whatever the label's shape.
SIZE_PX = 128

# Width of a label over its height.
LOGO_ASPECT = 1.0
TEXT_ASPECT = 1.9

# A label is at least this high, as a share of the object's largest extent...
MIN_LOGO_HEIGHT = 0.22
MIN_TEXT_HEIGHT = 0.15
# ... and covers no more than this share of what one sees of that side's body,
# so that the object's colour still shows.
_MAX_SHARE = 0.45

# Sides as turns about the vertical axis: front, right, back, left.
_SIDES = tuple(k * math.pi / 2 for k in range(4))
_CELLS = 32
_SAMPLES_PER_CELL = 4
_MIN_FACING = 0.75
_MAX_HOLES_FRAC = 0.02
_MAX_RELIEF = 0.22
# The plastic sequence in two dimensions: M. Roberts, "The unreasonable
# effectiveness of quasirandom sequences" (2018).
_STEPS = np.array([0.7548776662466927, 0.5698402909980532])


@dataclasses.dataclass(frozen=True)
class PrintArea:
  """Is a rectangle on one side of a mesh, in the mesh's frame.

  Attributes:
    side: turn about the vertical axis; 0 is the side of +z, pi/2 that of +x.
    u: centre to the right, as one sees that side.
    v: centre upwards.
    half_width: half of its extent to the right.
    half_height: half of its extent upwards.
    depth: how far out the innermost point of it lies.
  """

  side: float
  u: float
  v: float
  half_width: float
  half_height: float
  depth: float


def list_prints(level: int, prints: str) -> Sequence[str]:
  """Lists what may be printed in a world of a level.

  Args:
    level: from `level.LOGO_LEVEL` on.
    prints: 'all', or 'train' or 'test' for the halves that share none.
  """
  printed = level_lib.find_print(level)
  pool = logos.list_logos() if printed == 'logo' else texts.WORDS
  return pool[PRINT_SETS[prints]]


def has_print(obj: Object) -> bool:
  """Returns whether something is printed on an object."""
  return bool(obj.logo or obj.text)


def find_print_area(mesh: Mesh, *, text: bool) -> PrintArea | None:
  """Finds the largest label that fits onto the body of a mesh.

  Args:
    mesh: of the object.
    text: whether the label is for a text, else for a logo.

  Returns:
    The area, or None if no side has room for a legible label.
  """
  aspect = TEXT_ASPECT if text else LOGO_ASPECT
  least = MIN_TEXT_HEIGHT if text else MIN_LOGO_HEIGHT
  points, normals, is_body = _sample_surface(mesh)
  best = None
  for side in _SIDES:
    out = np.array([math.sin(side), 0.0, math.cos(side)])
    right = np.array([math.cos(side), 0.0, -math.sin(side)])
    facing = normals @ out
    # What is turned away lies behind something that is not.
    seen = facing > 0
    free, depth = _look_from_side(
      points[seen] @ right,
      points[seen, 1],
      points[seen] @ out,
      is_body[seen] & (facing[seen] > _MIN_FACING),
    )
    found = _find_rectangle(free, depth, aspect, least)
    # A later side must be better by more than the sampling's chance.
    if found and (best is None or found[0] > best[0] + 1):
      best = (found[0], side, found)
  if best is None:
    return None
  _, side, (rows, columns, row, column, depth_min) = best
  return PrintArea(
    side=side,
    u=(column + columns / 2) / _CELLS - 0.5,
    v=(row + rows / 2) / _CELLS,
    half_width=columns / 2 / _CELLS,
    half_height=rows / 2 / _CELLS,
    depth=depth_min,
  )


def _sample_surface(mesh: Mesh) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Spreads points evenly over a mesh.

  Returns:
    Points [P, 3], normals of the triangles they lie on [P, 3], and whether
    these belong to the body [P].
  """
  corners = mesh.positions[mesh.faces].astype(np.float64)
  crosses = np.cross(
    corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
  )
  twice = np.linalg.norm(crosses, axis=1)
  count = np.ceil(0.5 * twice * _CELLS**2 * _SAMPLES_PER_CELL).astype(int)
  face = np.repeat(np.arange(len(count)), count)
  weights = (np.arange(len(face))[:, None] * _STEPS) % 1
  beyond = weights.sum(axis=1) > 1
  weights[beyond] = 1 - weights[beyond]
  a, b = weights.T[:, :, None]
  points = corners[face, 0] * (1 - a - b) + corners[face, 1] * a
  points += corners[face, 2] * b
  normals = crosses[face] / np.maximum(twice[face], 1e-12)[:, None]
  return points, normals, mesh.part[mesh.faces[face, 0]] == Part.BODY


def _look_from_side(
  u: np.ndarray,
  v: np.ndarray,
  depth: np.ndarray,
  is_free: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns where one sees the body from ahead, and how far out it lies.

  Args:
    u: to the right [P].
    v: upwards [P].
    depth: towards the viewer [P].
    is_free: whether one could print there [P].

  Returns:
    Two grids [_CELLS, _CELLS], rows upwards.
  """
  order = np.argsort(depth)
  row = np.clip((v[order] * _CELLS).astype(int), 0, _CELLS - 1)
  column = np.clip(((u[order] + 0.5) * _CELLS).astype(int), 0, _CELLS - 1)
  free = np.zeros((_CELLS, _CELLS), bool)
  nearest = np.full((_CELLS, _CELLS), -1.0)
  # Of several points in a cell the nearest is written last.
  free[row, column] = is_free[order]
  nearest[row, column] = depth[order]
  return free, nearest


def _find_rectangle(
  free: np.ndarray, depth: np.ndarray, aspect: float, least: float
) -> tuple[int, int, int, int, float] | None:
  """Finds the largest rectangle of free cells of a given shape.

  Returns:
    Rows, columns, first row, first column and the least depth in it.
  """
  sums = np.zeros((_CELLS + 1, _CELLS + 1))
  sums[1:, 1:] = free.cumsum(axis=0).cumsum(axis=1)
  area = sums[-1, -1]
  middle = np.argwhere(free).mean(axis=0) if area else np.zeros(2)
  for rows in range(_CELLS, math.ceil(least * _CELLS) - 1, -1):
    columns = round(rows * aspect)
    if columns > _CELLS or rows * columns > _MAX_SHARE * area:
      continue
    inside = (
      sums[rows:, columns:]
      - sums[:-rows, columns:]
      - sums[rows:, :-columns]
      + sums[:-rows, :-columns]
    )
    fits = np.argwhere(inside >= (1 - _MAX_HOLES_FRAC) * rows * columns)
    away = np.abs(fits + (rows / 2, columns / 2) - middle).sum(axis=1)
    for row, column in fits[np.argsort(away, kind='stable')]:
      window = np.s_[row : row + rows, column : column + columns]
      depths = depth[window][free[window]]
      if np.ptp(depths) <= _MAX_RELIEF:
        return rows, columns, int(row), int(column), float(depths.min())
  return None


@functools.lru_cache(maxsize=256)
def draw_print(logo: str, text: str, font: str) -> bytes:
  """Draws a label.

  Args:
    logo: name of a logo, or '' for a text.
    text: what is written.
    font: in which of `texts.FONTS`.

  Returns:
    uint8 [SIZE_PX, SIZE_PX], the lower row first: 0 is the label's white, 255
    its ink. The label's shape is that of the area it is laid onto.
  """
  if logo:
    ink = logos.load_logo(logo)
  else:
    ink = texts.draw_text(text, font, aspect=TEXT_ASPECT)
  picture = Image.fromarray(ink).resize(
    (SIZE_PX, SIZE_PX), Image.Resampling.BICUBIC
  )
  return np.flipud(np.asarray(picture)).tobytes()

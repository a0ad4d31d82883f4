"""Derives from a mesh what placing and painting an object needs to know."""

import dataclasses
import functools

import numpy as np

from vhop_jax.errors import DataError, UsageError
from vhop_jax.worlds import prints
from vhop_jax.worlds.assets import AssetPack, Mesh, Part, household, meshes
from vhop_jax.worlds.assets.procedural import PROCEDURAL
from vhop_jax.worlds.assets.stands import STANDS
from vhop_jax.worlds.objects import Object

# The packs that are always there.
PACKS: dict[str, AssetPack] = {PROCEDURAL.name: PROCEDURAL}

_NUM_DIRECTIONS = 64
_TWO_TONE_FRAC = 0.32
_BASE_HEIGHT = 0.06
_LEVEL = 0.004
_MAX_LEAK_FRAC = 1e-3


def _make_directions(count: int) -> np.ndarray:
  """Spreads unit vectors evenly over the sphere (a Fibonacci lattice)."""
  i = np.arange(count) + 0.5
  y = 1 - 2 * i / count
  angle = i * np.pi * (3 - np.sqrt(5))
  ring = np.sqrt(1 - y * y)
  points = np.stack([np.cos(angle) * ring, y, np.sin(angle) * ring], axis=1)
  return points.astype(np.float32)


def _make_views(count: int, pitch: float) -> np.ndarray:
  """Returns directions from which an object is seen, all around [3, count]."""
  angle = 2 * np.pi * np.arange(count) / count
  ring = np.cos(pitch) * np.stack([np.cos(angle), np.sin(angle)])
  views = np.stack([ring[0], np.full(count, np.sin(pitch)), ring[1]])
  return views.astype(np.float32)


_DIRECTIONS = _make_directions(_NUM_DIRECTIONS)
_VIEWS = _make_views(count=8, pitch=0.4)


@dataclasses.dataclass(frozen=True)
class Geometry:
  """A mesh in the form in which the renderer and the placement use it.

  Attributes:
    positions: every vertex, float32 [V, 3], as the asset pack gave it.
    extremes: the vertices that lie farthest out in some direction [E, 3]; the
      outline of these few is, to about a hundredth, the outline of all.
    vertices: position, normal and part of each vertex, float32 [V, 7], bytes;
      of a mesh with a skin also its place in the texture and its base colour,
      [V, 13].
    indices: three uint32 per triangle, bytes.
    num_indices: how many indices there are.
    body_low: lowest corner of the box around the patterned part [3].
    body_size: extents of that box [3].
    two_tone_y: height above which the second colour covers about a third of
      what one sees of the body; if negative, below which.
    base_radius: how far the part that touches the ground reaches out.
    closed: whether no back face can be seen, so that they need not be drawn.
    textures: of a mesh with a skin, uint8 [T, size, size, 4], else None.
    print_area: where the object's logo or text goes; None if it has none, or no
      room for it.
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
  closed: bool
  textures: np.ndarray | None = None
  print_area: prints.PrintArea | None = None


def _compute_two_tone_y(y: np.ndarray, seen: np.ndarray) -> float:
  """Finds the height above which a third of what one sees lies.

  Args:
    y: heights of each triangle's corners [F, 3].
    seen: how much of each triangle one sees [F].

  Returns:
    The height. It is negative if that part lies below and not above: a table's
    top cannot be cut by height, but what is under it can be set off.
  """
  # A tall triangle lies at many heights: spread its area over three of them.
  heights = ((4 * y + y.sum(axis=1, keepdims=True)) / 7).ravel()
  order = heights.argsort()
  heights = heights[order]
  cumulated = seen.repeat(3)[order].cumsum()
  wanted = _TWO_TONE_FRAC * cumulated[-1]
  index = cumulated.searchsorted(cumulated[-1] - wanted)
  # A level face at the height itself stays on the larger side.
  cut = float(heights[min(index, len(heights) - 1)]) + _LEVEL
  above = cumulated[-1] - cumulated[heights.searchsorted(cut) - 1]
  if above > 0.4 * wanted:
    return cut
  index = cumulated.searchsorted(wanted)
  return -max(float(heights[min(index, len(heights) - 1)]) - _LEVEL, _LEVEL)


def _compute_crosses(corners: np.ndarray) -> np.ndarray:
  """Computes twice the area vector of triangles [F, 3 corners, 3]."""
  a, b = (corners[:, k] - corners[:, 0] for k in (1, 2))
  crosses = np.empty_like(a)
  for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    crosses[:, i] = a[:, j] * b[:, k] - a[:, k] * b[:, j]
  return crosses


def make_geometry(mesh: Mesh) -> Geometry:
  """Prepares one mesh for placement and rendering."""
  positions = np.ascontiguousarray(mesh.positions, np.float32)
  faces = np.ascontiguousarray(mesh.faces, np.uint32)
  skin = mesh.skin
  width = 7 if skin is None else 13
  vertices = np.empty((len(positions), width), np.float32)
  vertices[:, :3] = positions
  vertices[:, 3:6] = mesh.normals
  vertices[:, 6] = mesh.part
  if skin is not None:
    vertices[:, 7:10] = skin.uv
    vertices[:, 10:13] = skin.base
  is_body = mesh.part == Part.BODY
  if not is_body.any():
    is_body = np.ones(len(positions), bool)
  body = positions[is_body]
  low = body.min(axis=0)
  base = positions[positions[:, 1] < _BASE_HEIGHT]
  corners = positions[faces]
  crosses = _compute_crosses(corners)
  area = np.sqrt((crosses * crosses).sum(axis=1))
  # The area vectors of a closed surface cancel out; turned inside out, it has
  # a negative volume.
  leak = np.abs(crosses.sum(axis=0)).max()
  volume = np.vdot(corners[:, 0], crosses)
  body_face = is_body[faces[:, 0]]
  seen = np.maximum(crosses[body_face] @ _VIEWS, 0).sum(axis=1)
  return Geometry(
    positions=positions,
    extremes=positions[(_DIRECTIONS @ positions.T).argmax(axis=1)],
    vertices=vertices.tobytes(),
    indices=faces.tobytes(),
    num_indices=faces.size,
    body_low=low,
    body_size=np.maximum(body.max(axis=0) - low, 1e-3),
    two_tone_y=_compute_two_tone_y(corners[body_face, :, 1], seen),
    base_radius=float(np.hypot(base[:, 0], base[:, 2]).max(initial=0.05)),
    closed=skin is None
    and bool(leak < _MAX_LEAK_FRAC * area.sum() and volume > 0),
    textures=None if skin is None else skin.textures,
  )


@functools.cache
def get_pack(name: str) -> AssetPack:
  """Returns an asset pack by its name; one with files is read once.

  Args:
    name: a key of `PACKS`, 'household', or 'meshes:' and a folder.

  Raises:
    UsageError: there is no such pack, or what it needs is not there.
    DataError: its files are broken.
  """
  if name in PACKS:
    return PACKS[name]
  if name == household.NAME:
    return household.load_pack()
  if name.startswith(meshes.PREFIX):
    return meshes.load_pack(name)
  raise UsageError(
    f'no asset pack {name!r}: choose one of {", ".join(PACKS)},'
    f' {household.NAME}, {meshes.PREFIX}FOLDER'
  )


@functools.lru_cache(maxsize=256)
def load_geometry(obj: Object) -> Geometry:
  """Makes the geometry of an object; remembers those used last.

  Raises:
    DataError: its asset pack is not there.
  """
  if obj.pack == STANDS.name:  # No pack that a world could be made of.
    return make_geometry(STANDS.mesh(obj))
  try:
    pack = get_pack(obj.pack)
  except UsageError as error:
    raise DataError(
      f'object {obj.uid} is of the asset pack {obj.pack!r}: {error}'
    ) from None
  mesh = pack.mesh(obj)
  geometry = make_geometry(mesh)
  if not prints.has_print(obj):
    return geometry
  area = prints.find_print_area(mesh, text=bool(obj.text))
  return dataclasses.replace(geometry, print_area=area)

"""Reads models by artists (OBJ, GLB and whatever else trimesh reads)."""

from collections.abc import Iterator
import dataclasses
import importlib.util
import os
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from vhop_jax import errors

_MIN_OPACITY = 0.05  # What is fainter is left out, the rest is solid.
_MIN_AREA = 1e-12
_NO_TRIMESH = (
  'models can only be read with the package trimesh: install it with'
  " `pip install 'vhop_jax[assets]'`, or by `make assets`"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Material:
  """Holds what one material of a model looks like.

  Attributes:
    name: as the artist called it.
    colour: sRGB in [0, 1], [3].
    texture: uint8 sRGB and alpha [H, W, 4], the upper row first, or None.
  """

  name: str
  colour: np.ndarray
  texture: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """Holds a model as loose triangles, in the position of a `Mesh`.

  Attributes:
    corners: positions of each triangle's corners [F, 3, 3].
    uv: places in the texture, right and up, of the corners [F, 3, 2].
    material: index of each triangle's material [F].
    materials: what the triangles are made of.
  """

  corners: np.ndarray
  uv: np.ndarray
  material: np.ndarray
  materials: tuple[Material, ...]


def check_reader() -> None:
  """Checks that models can be read.

  Raises:
    UsageError: trimesh is not installed.
  """
  if importlib.util.find_spec('trimesh') is None:
    raise errors.UsageError(_NO_TRIMESH)


def read_model(
  path: str | os.PathLike[str], turn: np.ndarray | None = None
) -> Model:
  """Reads a model and stands it on the ground, its largest extent 1.

  Args:
    path: a file in a format that trimesh knows; materials and textures are
      looked for beside it.
    turn: rotation [3, 3] that brings it upright: y up, the front towards +z.

  Raises:
    UsageError: trimesh is not installed.
    DataError: the file cannot be read or shows nothing.
  """
  check_reader()
  import trimesh  # An extra, that only those need who bring models.

  path = pathlib.Path(path)
  try:
    scene = trimesh.load_scene(path, process=False)
    pieces = list(_list_pieces(scene))
  except Exception as error:  # Each format's reader raises errors of its own.
    raise errors.DataError(
      f'model {path} cannot be read ({error!r}): repair it or leave it out'
    ) from None
  if not pieces:
    raise errors.DataError(
      f'model {path} has no visible triangle: leave it out'
    )
  corners = np.concatenate([piece[0] for piece in pieces])
  if turn is not None:
    corners = corners @ np.asarray(turn, float).T
  low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
  middle = (low + high) / 2
  corners = (corners - [middle[0], low[1], middle[2]]) / (high - low).max()
  return Model(
    corners=corners,
    uv=np.concatenate([piece[1] for piece in pieces]),
    material=np.repeat(
      np.arange(len(pieces)), [len(piece[0]) for piece in pieces]
    ),
    materials=tuple(piece[2] for piece in pieces),
  )


def _list_pieces(
  scene: Any,
) -> Iterator[tuple[np.ndarray, np.ndarray, Material]]:
  """Yields the visible triangles of each part of a scene, and its material."""
  for node in sorted(scene.graph.nodes_geometry):
    transform, name = scene.graph[node]
    part = scene.geometry[name]
    if not hasattr(part, 'faces') or not len(part.faces):
      continue  # Lines and points.
    material, opacity = _read_material(part.visual, name)
    vertices = part.vertices @ transform[:3, :3].T + transform[:3, 3]
    corners = vertices[part.faces]
    sides = corners[:, 1:] - corners[:, :1]
    areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1)
    kept = areas > _MIN_AREA * np.ptp(vertices, axis=0).max() ** 2
    if opacity < _MIN_OPACITY or not kept.any():
      continue
    uv = getattr(part.visual, 'uv', None)
    if uv is None or len(uv) != len(vertices):
      uv = np.zeros((len(vertices), 2))
      material = dataclasses.replace(material, texture=None)
    yield corners[kept], np.asarray(uv, float)[part.faces][kept], material


def _read_material(visual: Any, name: str) -> tuple[Material, float]:
  """Reads a material and how solid it is, 0 to 1."""
  found = getattr(visual, 'material', None)
  if found is None:  # Colours by vertex or by face: their mean has to do.
    colour = np.asarray(visual.main_color, float) / 255
    return Material(name, colour[:3], None), float(colour[3])
  own_name = getattr(found, 'name', None) or name
  if hasattr(found, 'baseColorFactor'):  # As glTF describes it.
    factor, image = found.baseColorFactor, found.baseColorTexture
    colour = np.ones(4) if factor is None else np.asarray(factor, float) / 255
    opacity = 1.0 if found.alphaMode in (None, 'OPAQUE') else float(colour[3])
  else:
    colour = np.asarray(found.diffuse, float) / 255
    image = found.image
    opacity = float((found.kwargs.get('d') or [1.0])[0])
  if image is None:
    return Material(own_name, colour[:3], None), opacity
  texture = np.asarray(_shrink(image).convert('RGBA'))
  # Many a writer leaves some grey as the colour of a textured material.
  brightest = colour[:3].max()
  tint = colour[:3] / brightest if brightest > 0 else np.ones(3)
  return Material(own_name, tint, texture), opacity


def _shrink(image: Image.Image, largest_px: int = 1024) -> Image.Image:
  """Returns an image, made smaller if it is very large."""
  image = image.copy()
  image.thumbnail((largest_px, largest_px))
  return image


def compute_normals(corners: np.ndarray, crease: float = 0.75) -> np.ndarray:
  """Smooths the surface except at its edges.

  A corner's normal is the mean over the triangles that meet there, by their
  areas, of those that face nearly as its own does. Triangles that are wound
  the other way round count as turned over. The normals of the file are not
  used: half the models have none, and some have wrong ones.

  Args:
    corners: of each triangle [F, 3, 3].
    crease: cosine of the least angle between triangles that is an edge.

  Returns:
    Unit normals of the corners [F, 3, 3].
  """
  crosses = np.cross(
    corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
  )
  facing = crosses / np.linalg.norm(crosses, axis=1, keepdims=True)
  places = np.round(corners.reshape(-1, 3) * 1e5).astype(np.int64)
  _, place, counts = np.unique(
    places, axis=0, return_inverse=True, return_counts=True
  )
  order = np.argsort(place.ravel(), kind='stable')
  starts = np.cumsum(counts) - counts
  # The r-th rotation of each group pairs every corner with its r-th next one,
  # so that all pairs are met without a loop over corners.
  group = np.repeat(np.arange(len(counts)), counts)
  rank = np.arange(len(order)) - starts[group]
  face = order // 3
  total = crosses[face].copy()
  for shift in range(1, int(counts.max())):
    chosen = np.flatnonzero(counts[group] > shift)
    partner = starts[group[chosen]] + (
      (rank[chosen] + shift) % counts[group[chosen]]
    )
    cosines = (facing[face[chosen]] * facing[face[partner]]).sum(axis=1)
    smooth = np.abs(cosines) > crease
    total[chosen[smooth]] += (
      np.sign(cosines[smooth])[:, None] * crosses[face[partner[smooth]]]
    )
  normals = np.empty_like(total)
  normals[order] = total / np.maximum(
    np.linalg.norm(total, axis=1, keepdims=True), 1e-30
  )
  return normals.reshape(-1, 3, 3)

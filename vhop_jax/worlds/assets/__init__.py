"""Defines what an asset pack is: a source of objects and of their meshes."""

from collections.abc import Collection
import dataclasses
import enum
from typing import Protocol

import numpy as np

from vhop_jax.worlds.objects import Object


class Part(enum.IntEnum):
  """Names the material of a vertex; the renderer maps it to a colour."""

  BODY = 0  # The named colour, with the pattern.
  TRIM = 1  # The second colour.
  DARK = 2  # Dark neutral.
  LIGHT = 3  # Light neutral.
  WOOD = 4
  METAL = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
  """Holds a triangle mesh in object space: y up, x right, z to the viewer.

  The mesh stands on y = 0, is centred on the y axis, and the largest extent
  of its bounding box is 1.

  Attributes:
    positions: float32 [V, 3].
    normals: float32 [V, 3], of unit length.
    part: uint8 [V], values of `Part`.
    faces: uint32 [F, 3], counter-clockwise seen from outside.
  """

  positions: np.ndarray
  normals: np.ndarray
  part: np.ndarray
  faces: np.ndarray


class AssetPack(Protocol):
  """Makes objects and their meshes."""

  name: str
  types: tuple[str, ...]
  # Types on which a logo or a text can be printed.
  printable_types: tuple[str, ...]

  def sample_object(
    self,
    rng: np.random.Generator,
    *,
    uid: str,
    type: str | None = None,
    colour: str | None = None,
  ) -> Object:
    """Draws an object; a type or colour that is given is kept."""
    ...

  def sample_twin(
    self,
    rng: np.random.Generator,
    obj: Object,
    *,
    uid: str,
    avoid: Collection[str] = (),
  ) -> Object:
    """Draws a look-alike: type, colour and pattern are the object's.

    Its `change` names the one thing in which it differs, none of `avoid`.
    """
    ...

  def mesh(self, obj: Object) -> Mesh:
    """Makes the mesh of an object of this pack."""
    ...

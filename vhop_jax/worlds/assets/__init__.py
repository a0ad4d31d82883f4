"""Defines what an asset pack is: a source of objects and of their meshes."""

from collections.abc import Collection, Iterable
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
  OWN = 6  # Keeps the colour and texture of the mesh's skin.


@dataclasses.dataclass(frozen=True, eq=False)
class Skin:
  """Holds the colours of a model by an artist.

  What is seen of a vertex is `base` times the texture, in linear RGB, and times
  one of the object's two colours where its part is `BODY` or `TRIM`. There the
  texture is grey and, together with `base`, 1 in the mean, so that the named
  colour is seen and the texture can still be read.

  Attributes:
    uv: float32 [V, 3]: right and up in the texture, which repeats beyond
      [0, 1], and the texture's number, or -1 for none.
    base: float32 [V, 3], linear RGB.
    textures: uint8 [T, size, size, 4], the lower row first; RGB holds square
      roots of linear values. Where alpha is below a half nothing is drawn.
  """

  uv: np.ndarray
  base: np.ndarray
  textures: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
  """Holds a triangle mesh in object space: y up, x right, z to the viewer.

  The mesh stands on y = 0, is centred on the y axis, and the largest extent
  of its bounding box is 1.

  Attributes:
    positions: float32 [V, 3].
    normals: float32 [V, 3], of unit length.
    part: uint8 [V], values of `Part`.
    faces: uint32 [F, 3], counter-clockwise seen from outside, unless there is
      a skin: artists do not always care.
    skin: colours and textures of its own, or None.
  """

  positions: np.ndarray
  normals: np.ndarray
  part: np.ndarray
  faces: np.ndarray
  skin: Skin | None = None


class AssetPack(Protocol):
  """Makes objects and their meshes.

  Attributes:
    name: what a spec calls it.
    version: changes when the same object would look different.
    types: the names of what it can make.
  """

  name: str
  version: str
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

  def attribute(self, objects: Iterable[Object]) -> str:
    """Names the authors and licences of what is used; empty if there are none.

    The text is written beside every world that shows the objects.
    """
    ...

"""Makes objects from models by artists."""

from collections.abc import Callable, Collection, Iterable, Sequence
import dataclasses
import functools

import numpy as np

from vhop_jax import errors
from vhop_jax.worlds.assets import Mesh, Part, Skin, twins
from vhop_jax.worlds.assets.procedural import SECOND_COLOURS, pick
from vhop_jax.worlds.objects import (
  COLOURS,
  PATTERN_PARAMETERS,
  PATTERNS,
  SHAPE_PARAMETERS,
  Object,
)

# The first geometry parameter says which model of its type an object is, the
# other three stretch it along x, y and z by up to this factor or its inverse.
_MODEL_PARAMETER = PATTERN_PARAMETERS
_MAX_STRETCH = 1.2
_CHANGES = 'Changed: recoloured, patterned, stretched and normalised in size.'


@dataclasses.dataclass(frozen=True)
class Entry:
  """Names one model of a pack.

  Attributes:
    id: name of the model, unique in its pack.
    type: what a person calls the thing; several models may share it.
    title: what its author calls it.
    author: who made it; empty if unknown.
    licence: under which it may be used; empty if unknown.
  """

  id: str
  type: str
  title: str
  author: str
  licence: str


class ModelPack:
  """Draws, colours and stretches models.

  Several models of one type are its variants: which one an object is stands in
  its shape, as the middle of one of as many equal parts of [0, 1], so that a
  small change of the number changes nothing. A model that shows the second
  colour by a material of its own has no pattern beside it.
  """

  def __init__(
    self,
    name: str,
    version: str,
    entries: Sequence[Entry],
    load: Callable[[str], Mesh],
  ):
    """Sorts the models by type.

    Args:
      name: of the pack.
      version: of the models and of how they are prepared.
      entries: the models.
      load: makes the unstretched mesh of a model, by its id.
    """
    self.name = name
    self.version = version
    self._variants: dict[str, tuple[Entry, ...]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.type, entry.id)):
      self._variants[entry.type] = (*self._variants.get(entry.type, ()), entry)
    self.types = tuple(self._variants)
    # Which have room for a print is not known before one tries.
    self.printable_types = self.types
    # Textures are the largest part of a model; objects of one model share it.
    self._load = functools.lru_cache(maxsize=128)(load)

  def sample_object(
    self,
    rng: np.random.Generator,
    *,
    uid: str,
    type: str | None = None,
    colour: str | None = None,
  ) -> Object:
    """Draws an object.

    The number of draws does not depend on what is given.

    Args:
      rng: source of all randomness.
      uid: identity of the object.
      type: keeps the type; else it is drawn.
      colour: keeps the colour; else it is drawn.

    Raises:
      UsageError: the type or the colour is unknown.
    """
    picks = rng.random(5)
    shape = rng.random(SHAPE_PARAMETERS)
    if type is None:
      type = pick(self.types, picks[0])
    variants = self._get_variants(type, f'unknown type {type!r}')
    if colour is None:
      colour = pick(tuple(COLOURS), picks[1])
    errors.check_choice('colour', colour, tuple(COLOURS))
    variant = int(picks[4] * len(variants))
    shape[_MODEL_PARAMETER] = (variant + 0.5) / len(variants)
    mesh = self._load(variants[variant].id)
    has_trim = bool((mesh.part == Part.TRIM).any())
    return Object(
      uid=uid,
      type=type,
      colour=colour,
      second_colour=pick(SECOND_COLOURS[colour], picks[2]),
      pattern='plain' if has_trim else pick(PATTERNS, picks[3]),
      shape=tuple(round(float(value), 6) for value in shape),
      pack=self.name,
    )

  def sample_twin(
    self,
    rng: np.random.Generator,
    obj: Object,
    *,
    uid: str,
    avoid: Collection[str] = (),
  ) -> Object:
    """Draws a look-alike: the same model with another stretch or trim.

    See `twins.sample_twin`.
    """
    return twins.sample_twin(
      rng,
      obj,
      uid=uid,
      proportions={
        name: _MODEL_PARAMETER + 1 + i
        for i, name in enumerate(('width', 'height', 'depth'))
      },
      second_colours=SECOND_COLOURS[obj.colour],
      make_mesh=self.mesh,
      avoid=avoid,
    )

  def mesh(self, obj: Object) -> Mesh:
    """Makes the mesh of an object; only type and shape matter for it.

    Raises:
      UsageError: the object's type is unknown.
    """
    mesh = self._load(self.get_entry(obj).id)
    stretch = np.array(obj.shape[_MODEL_PARAMETER + 1 :])
    factors = _MAX_STRETCH ** (2 * stretch - 1)
    positions = mesh.positions * factors
    size = np.ptp(positions, axis=0).max()
    normals = mesh.normals / factors
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return dataclasses.replace(
      mesh,
      positions=(positions / size).astype(np.float32),
      normals=normals.astype(np.float32),
    )

  def get_entry(self, obj: Object) -> Entry:
    """Returns which model an object is.

    Raises:
      UsageError: the object's type is unknown.
    """
    problem = f'object {obj.uid} has the unknown type {obj.type!r}'
    variants = self._get_variants(obj.type, problem)
    share = obj.shape[_MODEL_PARAMETER]
    return variants[min(int(share * len(variants)), len(variants) - 1)]

  def attribute(self, objects: Iterable[Object]) -> str:
    """Lists the models that are used, with author and licence."""
    entries = {entry.id: entry for entry in map(self.get_entry, objects)}
    lines = [
      f'"{entry.title}" ({entry.id})'
      f' by {entry.author or "an unnamed author"},'
      f' {entry.licence or "licence not stated"}'
      for _, entry in sorted(entries.items())
    ]
    head = f'Models of the asset pack {self.name} ({self.version}).'
    return '\n'.join([head, _CHANGES, '', *lines, ''])

  def _get_variants(self, type: str, problem: str) -> tuple[Entry, ...]:
    """Returns the models of a type.

    Raises:
      UsageError: there is none; the message begins with the problem.
    """
    if type not in self._variants:
      raise errors.UsageError(
        f'{problem}; pack {self.name!r} has {", ".join(self.types)}'
      )
    return self._variants[type]


def save_mesh(mesh: Mesh, path: str) -> None:
  """Writes a mesh with its skin into an .npz file."""
  assert mesh.skin is not None
  np.savez_compressed(
    path,
    positions=mesh.positions,
    normals=mesh.normals,
    part=mesh.part,
    faces=mesh.faces,
    uv=mesh.skin.uv,
    base=mesh.skin.base,
    textures=mesh.skin.textures,
  )


def load_mesh(path: str) -> Mesh:
  """Reads what `save_mesh` wrote."""
  with np.load(path, allow_pickle=False) as file:
    return Mesh(
      positions=file['positions'],
      normals=file['normals'],
      part=file['part'],
      faces=file['faces'],
      skin=Skin(file['uv'], file['base'], file['textures']),
    )

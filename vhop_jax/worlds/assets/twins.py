"""Makes look-alikes: objects that differ from another in one named thing."""

from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses

import numpy as np

from vhop_jax.worlds.assets import Mesh, Part
from vhop_jax.worlds.objects import Object

TRIM = 'trim'

# A look-alike has one proportion at the other end of its range, as long as that
# moves a tenth of the surface by this share of the object's largest extent...
_MIN_CHANGE = 0.06
_CHANGED_QUANTILE = 0.9
# ... or another second colour, where that covers this share of the surface.
_MIN_TRIM_FRAC = 0.08
_COMPARED_POINTS = 400


def sample_twin(
  rng: np.random.Generator,
  obj: Object,
  *,
  uid: str,
  proportions: Mapping[str, int],
  second_colours: Sequence[str],
  make_mesh: Callable[[Object], Mesh],
  avoid: Collection[str] = (),
) -> Object:
  """Draws a look-alike: type, colour and pattern are the object's.

  It differs in one proportion or in the colour of its trim, enough that a
  person sees it; which one is drawn among those that can be seen.

  Args:
    rng: source of all randomness.
    obj: the object to be taken for.
    uid: identity of the look-alike.
    proportions: where in its shape each proportion stands, by name.
    second_colours: what its trim may have.
    make_mesh: makes the mesh of an object.
    avoid: changes that it must not have.

  Returns:
    The look-alike; its `change` is the proportion's name or 'trim'.
  """
  names = (*proportions, TRIM)
  order = rng.permutation(len(names))
  others = [name for name in second_colours if name != obj.second_colour]
  second = others[int(rng.random() * len(others))]
  mesh = make_mesh(obj)
  best, best_seen = obj, -1.0
  for name in (names[i] for i in order if names[i] not in avoid):
    if name == TRIM:
      twin = dataclasses.replace(
        obj, uid=uid, second_colour=second, change=TRIM
      )
      seen = _compute_trim_frac(mesh) / _MIN_TRIM_FRAC
      seen = max(seen, float(obj.pattern != 'plain'))
    else:
      twin = _stretch(obj, uid, name, proportions[name])
      seen = _compute_shift(mesh, make_mesh(twin)) / _MIN_CHANGE
    if seen >= 1:
      return twin
    if seen > best_seen:  # Where nothing is seen well: what is seen best.
      best, best_seen = twin, seen
  return best


def _stretch(obj: Object, uid: str, name: str, place: int) -> Object:
  """Returns an object with one proportion at the other end of its range."""
  shape = list(obj.shape)
  shape[place] = 1.0 if shape[place] < 0.5 else 0.0
  return dataclasses.replace(obj, uid=uid, shape=tuple(shape), change=name)


def _compute_trim_frac(mesh: Mesh) -> float:
  """Returns the share of a mesh's surface that has the second colour."""
  corners = mesh.positions[mesh.faces]
  area = np.linalg.norm(
    np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]),
    axis=1,
  )
  is_trim = mesh.part[mesh.faces[:, 0]] == Part.TRIM
  return float(area[is_trim].sum() / area.sum())


def _compute_shift(mesh: Mesh, other: Mesh) -> float:
  """Returns how far a tenth of the surface moved, at least."""
  if len(mesh.positions) == len(other.positions):
    shift = np.linalg.norm(mesh.positions - other.positions, axis=1)
  else:
    # A count of parts changed: the way from each point to the nearest.
    a, b = (
      m.positions[:: -(-len(m.positions) // _COMPARED_POINTS)]
      for m in (mesh, other)
    )
    away = np.linalg.norm(a[:, None] - b[None], axis=-1)
    shift = np.concatenate([away.min(axis=0), away.min(axis=1)])
  return float(np.quantile(shift, _CHANGED_QUANTILE))

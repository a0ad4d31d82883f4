"""Describes what a training run consists of and what it carries along."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, Protocol

import flax.struct
import jax
import numpy as np

from vhop_jax.typing import Array, Float, Int, Params, UInt32, ndarray

Batch = Mapping[str, Any]
Path = tuple[str, ...]


class TrainState(flax.struct.PyTreeNode):
  """Holds everything that an update reads and writes."""

  step: Int[Array, '']  # Updates made so far.
  params: Params  # All parameters, the frozen ones too.
  opt_state: Any  # Of the trainable parameters only.
  rng: UInt32[Array, '2']  # Key data; an update folds its step into it.


class Batches(Protocol):
  """Is an iterator over batches whose position can be saved and restored.

  A batch maps names to arrays with a leading batch axis; progress counts the
  rows of its first array. Grain's iterators are of this kind.
  """

  def __next__(self) -> dict[str, ndarray]:
    """Returns the next batch."""
    ...

  def get_state(self) -> Any:
    """Returns the position, as something JSON can hold."""
    ...

  def set_state(self, state: Any) -> None:
    """Goes to a position that `get_state` returned."""
    ...


def _train_all(path: Path) -> bool:
  del path
  return True


@dataclasses.dataclass(frozen=True)
class Stage:
  """Is what one stage of training adds to the loop.

  Attributes:
    init: makes the parameters from a key; leaves may be boxed with logical
      axes (`nn.with_logical_partitioning`). Called once, not traced.
    loss: maps (params, batch, rng, step) to the loss and to named scalars.
    batches: the data, endless or at least as long as the run.
    evaluate: maps the parameters to named numbers, or None without any.
    prepare: called with the parameters before each batch is drawn; for data
      that the model makes itself.
    trainable: tells by its path whether a parameter is trained. The others
      are neither differentiated nor given optimizer state.
  """

  init: Callable[[Array], Params]
  loss: Callable[
    [Params, Batch, Array, Int[Array, '']],
    tuple[Float[Array, ''], dict[str, Float[Array, '']]],
  ]
  batches: Batches
  evaluate: Callable[[Params], Mapping[str, float] | None] | None = None
  trainable: Callable[[Path], bool] = _train_all
  prepare: Callable[[Params], None] | None = None


def start_from(params: Params) -> Callable[[Array], Params]:
  """Returns a `Stage.init` that starts with parameters made before."""
  return lambda rng: params


def make_path(key_path: tuple[Any, ...]) -> Path:
  """Turns JAX's key path into names, e.g. ('decoder', 'norm', 'scale')."""
  return tuple(
    str(getattr(key, 'key', getattr(key, 'name', getattr(key, 'idx', key))))
    for key in key_path
  )


def compute_trainable_mask(
  params: Params, trainable: Callable[[Path], bool]
) -> Params:
  """Returns a tree of bools, True where a parameter is trained."""
  return jax.tree_util.tree_map_with_path(
    lambda key_path, _: bool(trainable(make_path(key_path))), params
  )


def select_trainable(params: Params, mask: Params) -> Params:
  """Returns the trained parameters, None in place of the others."""
  return jax.tree.map(lambda leaf, keep: leaf if keep else None, params, mask)


def select_frozen(params: Params, mask: Params) -> Params:
  """Returns the frozen parameters, None in place of the trained ones."""
  return jax.tree.map(lambda leaf, drop: None if drop else leaf, params, mask)


def merge_trainable(trained: Params, params: Params) -> Params:
  """Returns `params` with the leaves of `trained` put in."""
  return jax.tree.map(
    lambda new, old: old if new is None else new,
    trained,
    params,
    is_leaf=lambda leaf: leaf is None,
  )


def count_params(params: Params) -> int:
  """Returns the number of scalars in a tree of arrays."""
  return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))

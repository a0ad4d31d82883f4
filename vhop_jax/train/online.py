"""Holds the data that a router makes itself: its rollouts, kept for a while."""

import collections
from collections.abc import Callable, Mapping
import copy
from typing import Any

import jax
import numpy as np

from vhop_jax.train import state as state_lib
from vhop_jax.typing import Params

# (params, batch, key) -> arrays that replace or join those of the batch.
Collect = Callable[[Params, state_lib.Batch, jax.Array], Mapping[str, Any]]


class OnlineBatches:
  """Draws batches from a bounded replay of rollouts.

  A source gives batches of queries; the current policy rolls each out, and
  what it did joins the batch. The newest ones are kept, so that the data
  aggregate (DAgger, Ross et al., 2011).
  """

  def __init__(
    self,
    source: state_lib.Batches,
    collect: Collect,
    *,
    seed: int,
    capacity: int,
    collect_every: int,
  ):
    """Starts with an empty replay.

    Args:
      source: batches as `routes.make_batches` gives.
      collect: rolls the policy out.
      seed: of the rollouts and of what is drawn from the replay.
      capacity: batches that are kept.
      collect_every: batches drawn between two collections.
    """
    self._source, self._collect = source, collect
    self._seed, self._collect_every = seed, collect_every
    self._count = 0
    # Where the source stood before each batch, the batch, and what joined it.
    self._replay: collections.deque[
      tuple[Any, dict[str, Any], dict[str, np.ndarray]]
    ] = collections.deque(maxlen=capacity)

  def prepare(self, params: Params) -> None:
    """Rolls the policy out when it is time."""
    if self._count % self._collect_every:
      return
    position = copy.deepcopy(self._source.get_state())
    batch = next(self._source)
    key = jax.random.fold_in(jax.random.key(self._seed), self._count)
    made = jax.device_get(self._collect(params, batch, key))
    self._replay.append((position, dict(batch), dict(made)))

  def __next__(self) -> dict[str, Any]:
    """Draws a batch; the newest first of all."""
    rng = np.random.default_rng([self._seed, self._count])
    newest = self._count % self._collect_every == 0
    self._count += 1
    index = len(self._replay) - 1 if newest else rng.integers(len(self._replay))
    _, batch, made = self._replay[index]
    return {**batch, **made}

  def get_state(self) -> dict[str, Any]:
    """Returns all that is needed to make the replay again."""
    return {
      'count': self._count,
      'source': self._source.get_state(),
      'replay': [
        [position, {k: _to_json(x) for k, x in made.items()}]
        for position, _, made in self._replay
      ],
    }

  def set_state(self, state: dict[str, Any]) -> None:
    """Makes the replay of a saved state again."""
    self._replay.clear()
    for position, made in state['replay']:
      self._source.set_state(position)
      self._replay.append(
        (
          position,
          dict(next(self._source)),
          {k: _from_json(x) for k, x in made.items()},
        )
      )
    self._source.set_state(state['source'])
    self._count = state['count']


def _to_json(array: np.ndarray) -> list[Any]:
  """Returns an array's type and values; float32 is exact in JSON."""
  return [str(array.dtype), array.tolist()]


def _from_json(saved: list[Any]) -> np.ndarray:
  dtype, values = saved
  return np.array(values, dtype)

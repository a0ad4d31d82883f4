"""Holds the expert equal to a search that tries every action."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env import oracle
from vhop_jax.env import action as action_lib
from vhop_jax.env import expert
from vhop_jax.env import state as state_lib

BATCH, IMAGES, BUDGET, CHAINS, LONGEST = 40, 9, 8, 3, 4


def make_chains(rows, *, longest=LONGEST):
  """Packs each row's list of chains."""
  count = max(map(len, rows))
  rows = [[*row, *[()] * (count - len(row))] for row in rows]
  return expert.Chains(
    images=jnp.asarray(
      [oracle.np_pad(row, longest, state_lib.PAD) for row in rows], jnp.int32
    ),
    length=jnp.asarray([[len(c) for c in row] for row in rows], jnp.int32),
  )


@pytest.mark.parametrize('rejection', state_lib.REJECTIONS)
def test_labels_are_what_a_search_finds(rejection):
  rng = np.random.default_rng(state_lib.REJECTIONS.index(rejection))
  step = jax.jit(state_lib.step, static_argnames='rejection')
  label = jax.jit(expert.label, static_argnames='rejection')
  kinds = {'unlabelled': 0, 'detour': 0, 0: 0, 1: 0, 2: 0}
  for _ in range(8):
    query = rng.integers(IMAGES, size=BATCH)
    rows = [
      oracle.make_chains(
        rng, IMAGES, q, count=rng.integers(1, CHAINS + 1), longest=LONGEST
      )
      for q in query
    ]
    chains = make_chains([*rows[:-1], [*rows[-1], *[()] * (CHAINS)][:CHAINS]])
    state = state_lib.start(query, num_images=IMAGES, budget=BUDGET)
    walks = [
      oracle.Walk(int(q), IMAGES, BUDGET, rejection=rejection) for q in query
    ]
    for _ in range(BUDGET + 1):
      made = jax.device_get(label(state, chains, rejection=rejection))
      actions = []
      for b, walk in enumerate(walks):
        best = oracle.list_best(walk, [c for c in rows[b] if c])
        assert bool(made.mask[b]) == (best is not None)
        chosen = np.flatnonzero(made.select_mask[b]).tolist()
        if best is None:
          kinds['unlabelled'] += 1
        else:
          kind = {oracle.BACK: 1, oracle.STOP: 2}.get(best[0], 0)
          assert made.kind[b] == kind
          kinds[kind] += 1
          assert chosen == (best if kind == action_lib.SELECT else [])
          depth = len(walk.stack)
          stack = tuple(walk.stack)
          ahead = {c[depth] for c in rows[b] if c[:depth] == stack != c}
          is_detour = kind == action_lib.SELECT and not ahead & set(best)
          assert bool(made.is_detour[b]) == is_detour
          kinds['detour'] += is_detour
        # Mostly what the expert says, so that chains get long.
        legal = walk.list_legal() or [0]
        if best and rng.random() < 0.6:
          legal = best
        act = legal[rng.integers(len(legal))]
        walk.take(act)
        actions.append(oracle.make_number(act, IMAGES))
      state = step(state, jnp.asarray(actions), rejection=rejection)
  if rejection != 'selection':
    assert kinds.pop('detour') == 0
  assert min(kinds.values()) > 25


def test_replay_gives_the_states_before_each_decision():
  state = state_lib.start(np.array([0]), num_images=IMAGES, budget=4)
  back, stop = action_lib.make_backtrack(IMAGES), action_lib.make_stop(IMAGES)
  states = state_lib.replay(
    state, jnp.array([[3, back, 5, stop]]), rejection='final'
  )
  assert states.depth.tolist() == [[0, 1, 0, 1]]
  assert states.stack[0, :, 0].tolist() == [-1, 3, -1, 5]
  assert states.rejected_depth[0, :, 3].tolist() == [-1, -1, 0, 0]
  assert states.decisions.tolist() == [[0, 1, 2, 3]]
  assert not states.stopped.any()

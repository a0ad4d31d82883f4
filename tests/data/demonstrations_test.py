"""Tests demonstrations by walking them."""

import numpy as np
import pytest

from tests.env import oracle
from vhop_jax.data import demonstrations

CHAIN, EQUALS, OTHERS = (1, 2, 3), ((4,), (5, 6), ()), (1, 2, 3, 4, 5, 6, 7, 8)
LENGTH = 12


def sample(rng, **changes):
  settings = {
    'length': LENGTH,
    'wrong_frac': 0.5,
    'equal_frac': 0.5,
    'deeper_frac': 0.3,
  }
  return demonstrations.sample_decisions(
    rng, CHAIN, EQUALS, OTHERS, **{**settings, **changes}
  )


def test_every_decision_is_legal_and_the_chain_is_what_stays():
  rng = np.random.default_rng(0)
  names = {
    demonstrations.BACKTRACK: oracle.BACK,
    demonstrations.STOP: oracle.STOP,
  }
  lengths, equal, deeper = set(), 0, 0
  for _ in range(300):
    walk = oracle.Walk(0, 10, LENGTH, rejection='final')
    made = sample(rng)
    assert len(made) == LENGTH
    for decision in made:
      act = names.get(decision, decision)
      if walk.stopped:
        assert act == oracle.STOP
        continue
      assert act in walk.list_legal()
      # Stop comes at the end of the chain and there alone.
      assert (act == oracle.STOP) == (tuple(walk.stack) == CHAIN)
      if act not in (oracle.BACK, oracle.STOP) and act not in CHAIN:
        hop = len(walk.stack)
        on_gold = tuple(walk.stack) == CHAIN[:hop]
        equal += on_gold and act in EQUALS[hop]
        deeper += not on_gold
      walk.take(act)
    assert walk.stopped
    lengths.add(made.index(demonstrations.STOP))
  assert lengths == {3, 5, 7, 9, 11}
  assert equal > 100
  assert deeper > 30


def test_without_wrong_turns_it_is_the_chain():
  made = sample(np.random.default_rng(0), wrong_frac=0.0, length=5)
  assert made == [*CHAIN, demonstrations.STOP, demonstrations.STOP]


@pytest.mark.parametrize('length', [3, 4, 5])
def test_wrong_turns_that_do_not_fit_are_not_taken(length):
  for seed in range(30):
    made = sample(np.random.default_rng(seed), wrong_frac=1.0, length=length)
    assert made == [*CHAIN, demonstrations.STOP, demonstrations.STOP][:length]

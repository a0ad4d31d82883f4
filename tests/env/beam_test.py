"""Holds the beam equal to a plain Python search, and to trying everything."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env import oracle
from tests.env.random_policy import RandomPolicy
from vhop_jax.env import beam, policy
from vhop_jax.env import state as state_lib

BATCH, IMAGES, BUDGET = 10, 8, 5


def search(random_policy, query, start, *, width, budget=BUDGET, depth=None):
  return jax.device_get(
    beam.search(
      random_policy.make(),
      jnp.asarray(start),
      state_lib.start(query, num_images=IMAGES, budget=budget),
      width=width,
      stop_depth=None if depth is None else jnp.full(len(query), depth),
    )
  )


def search_plainly(random_policy, query, memory, *, width, depth=None):
  """Returns the best stopped chains with their log-probabilities."""
  first = oracle.Walk(query, IMAGES, BUDGET, rejection='final')
  alive, found = [(0.0, first, memory)], []
  for _ in range(BUDGET):
    longer = []
    for log_prob, walk, memory in alive:
      legal, scores = walk.list_legal(depth), random_policy.look_up(memory)
      for act in legal:
        total = log_prob + oracle.compute_log_prob(act, legal, *scores)
        if act == oracle.STOP:
          found.append((total, tuple(walk.stack)))
        elif act != oracle.BACK:
          ahead = walk.copy()
          ahead.take(act)
          longer.append((total, ahead, random_policy.remember(memory, act)))
    alive = sorted(longer, key=lambda x: -x[0])[:width]
  return sorted(found, reverse=True)[:width]


@pytest.mark.parametrize('depth', [None, 2])
@pytest.mark.parametrize('width', [1, 4])
def test_beam_equals_a_plain_search(width, depth):
  random_policy = RandomPolicy(width, IMAGES)
  query = np.random.default_rng(0).integers(IMAGES, size=BATCH)
  made = search(
    random_policy, query, np.arange(BATCH), width=width, depth=depth
  )
  for row in range(BATCH):
    expected = search_plainly(
      random_policy, int(query[row]), row, width=width, depth=depth
    )
    stacks = [
      tuple(int(i) for i in stack if i != state_lib.PAD)
      for stack in made.stack[row]
    ]
    assert stacks == [chain for _, chain in expected] + [()] * (
      width - len(expected)
    )
    np.testing.assert_allclose(
      made.log_prob[row, : len(expected)],
      [log_prob for log_prob, _ in expected],
      atol=1e-4,
    )


def test_scores_are_those_of_the_images_on_the_chain():
  random_policy = RandomPolicy(0, IMAGES)
  made = search(random_policy, np.zeros(3, int), np.arange(3), width=3)
  for row, k in itertools.product(range(3), range(3)):
    memory = row
    for t, image in enumerate(made.stack[row, k]):
      if image == state_lib.PAD:
        assert made.score[row, k, t] == 0
        continue
      select, _, _ = random_policy.look_up(memory)
      np.testing.assert_allclose(made.score[row, k, t], select[image])
      memory = random_policy.remember(memory, int(image))


def test_a_wide_beam_finds_the_best_of_all_chains():
  random_policy = RandomPolicy(3, IMAGES)
  made = search(random_policy, np.array([0]), np.array([5]), width=900)
  best = (-np.inf, ())
  for length in range(1, BUDGET):
    for chain in itertools.permutations(range(1, IMAGES), length):
      walk = oracle.Walk(0, IMAGES, BUDGET, rejection='final')
      memory, total = 5, 0.0
      for act in (*chain, oracle.STOP):
        total += oracle.compute_log_prob(
          act, walk.list_legal(), *random_policy.look_up(memory)
        )
        memory = random_policy.remember(memory, oracle.make_number(act, IMAGES))
        walk.take(act)
      best = max(best, (total, chain))
  assert tuple(made.stack[0, 0][made.stack[0, 0] >= 0].tolist()) == best[1]
  np.testing.assert_allclose(made.log_prob[0, 0], best[0], atol=1e-4)


def test_an_image_is_weighed_against_absence():
  scores = policy.Scores(
    select=jnp.array([[2.0, 1.0, 5.0]]),
    stop=jnp.array([-1.0]),
    backtrack=jnp.array([-2.0]),
    absence=jnp.array([1.5]),
  )
  legal = jnp.array([[True, True, False, True, True]])
  # The backtrack gate does not count.
  goes_on = np.log(oracle.sigmoid(1))
  expected = [goes_on + np.log(oracle.sigmoid(x)) for x in (0.5, -0.5)]
  np.testing.assert_allclose(
    policy.compute_extension(scores, legal), [[*expected, -np.inf]], rtol=1e-5
  )
  without = dataclasses.replace(scores, absence=None)
  np.testing.assert_array_equal(
    policy.compute_extension(without, legal),
    policy.compute_log_probs(without, legal)[:, :3],
  )

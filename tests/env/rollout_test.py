"""Holds the scanned rollout equal to a plain Python loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env import oracle
from tests.env.random_policy import RandomPolicy
from vhop_jax import errors
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout
from vhop_jax.env import state as state_lib

BATCH, IMAGES, BUDGET = 24, 14, 13


def run_oracle(random_policy, query, memory, choose, *, rejection, stop_depth):
  """Returns actions, log-probabilities, gates and the walk at the end."""
  walk = oracle.Walk(query, IMAGES, BUDGET, rejection=rejection)
  taken = []
  for t in range(BUDGET):
    legal = walk.list_legal(stop_depth)
    if not legal:
      break
    scores = random_policy.look_up(memory)
    act = choose(t, legal, *scores)
    number = oracle.make_number(act, IMAGES)
    taken.append(
      {
        'action': number,
        'log_prob': oracle.compute_log_prob(act, legal, *scores),
        'stop': oracle.sigmoid(scores[1]) if oracle.STOP in legal else 0,
        'backtrack': oracle.sigmoid(scores[2]) if oracle.BACK in legal else 0,
      }
    )
    memory = random_policy.remember(memory, number)
    walk.take(act)
  return taken, walk


def compare(made, row, taken, walk):
  """Asserts that one row of a rollout is what the oracle did."""
  count = len(taken)
  assert made.mask[row].tolist() == [t < count for t in range(BUDGET)]
  assert made.action[row, :count].tolist() == [t['action'] for t in taken]
  for name in ('log_prob', 'stop', 'backtrack'):
    np.testing.assert_allclose(
      getattr(made, name)[row, :count], [t[name] for t in taken], atol=1e-5
    )
  np.testing.assert_array_equal(made.log_prob[row, count:], 0)
  # Nothing changes after Stop.
  state = made.state
  depth = int(state.depth[row])
  assert state.stack[row].tolist() == walk.stack + [state_lib.PAD] * (
    BUDGET - depth
  )
  assert depth == len(walk.stack)
  assert bool(state.stopped[row]) == walk.stopped
  assert int(state.decisions[row]) == count
  rejected = np.flatnonzero(state.rejected_depth[row] >= 0)
  assert set(rejected.tolist()) == set(walk.rejected)


@pytest.mark.parametrize('stop_depth', [None, 2])
@pytest.mark.parametrize('rejection', state_lib.REJECTIONS)
@pytest.mark.parametrize('mode', ['greedy', 'select', 'sample', 'cool'])
def test_scan_equals_a_plain_loop(mode, rejection, stop_depth):
  rng = jax.random.key(5)
  keys = jax.random.split(rng, BUDGET)
  noise = [
    np.asarray(jax.random.gumbel(key, (BATCH, IMAGES + 2))) for key in keys
  ]
  tau = {'cool': 0.5}.get(mode, 1.0)
  choose = {
    'greedy': rollout.choose_greedily,
    'select': rollout.choose_selects,
  }.get(mode, rollout.make_sampler(tau))
  seen = set()
  for seed in range(2):
    random_policy = RandomPolicy(seed, IMAGES)
    query = np.random.default_rng(seed).integers(IMAGES, size=BATCH)
    start = np.arange(BATCH)
    made = jax.device_get(
      rollout.roll_out(
        random_policy.make(),
        jnp.asarray(start),
        state_lib.start(query, num_images=IMAGES, budget=BUDGET),
        choose=choose,
        rng=rng,
        rejection=rejection,
        stop_depth=None if stop_depth is None else jnp.full(BATCH, stop_depth),
      )
    )
    for row in range(BATCH):

      def decide(t, legal, select, stop, back, row=row):
        if mode == 'greedy':
          return oracle.choose_greedily(legal, select, stop, back)
        if mode == 'select':
          return oracle.choose_image(legal, select)
        tempered = [x / tau for x in select], stop / tau, back / tau
        return oracle.choose_noisily(legal, *tempered, noise[t][row])

      taken, walk = run_oracle(
        random_policy,
        int(query[row]),
        int(start[row]),
        decide,
        rejection=rejection,
        stop_depth=stop_depth,
      )
      compare(made, row, taken, walk)
      seen |= {max(t['action'] - IMAGES, -1) for t in taken}
  # The policies did all that the mode allows.
  assert seen == ({-1} if mode == 'select' else {-1, 0, 1})


def test_more_decisions_than_candidates_are_refused():
  with pytest.raises(errors.UsageError, match='14 decisions'):
    rollout.roll_out(
      RandomPolicy(0, IMAGES).make(),
      jnp.zeros(2, int),
      state_lib.start(np.zeros(2, int), num_images=IMAGES, budget=IMAGES),
      choose=rollout.choose_greedily,
      rng=jax.random.key(0),
      rejection='final',
    )


def test_illegal_actions_have_probability_zero_and_the_rest_sums_to_one():
  rng = np.random.default_rng(0)
  scores = policy_lib.Scores(
    select=jnp.asarray(rng.normal(size=(6, 4)), jnp.float32),
    stop=jnp.asarray(rng.normal(size=6), jnp.float32),
    backtrack=jnp.asarray(rng.normal(size=6), jnp.float32),
  )
  legal = np.ones((6, 6), bool)
  legal[0, 4:] = False  # An empty stack.
  legal[1, :3] = False  # One candidate.
  legal[2, 5] = False  # Stop alone is illegal.
  legal[3, :4] = False  # No candidate.
  legal[4] = False  # Done.
  log_probs = policy_lib.compute_log_probs(scores, jnp.asarray(legal))
  probs = np.exp(np.asarray(log_probs))
  assert (probs[~legal] == 0).all()
  assert (probs[legal] > 0).all()
  np.testing.assert_allclose(probs[[0, 1, 2, 5]].sum(axis=1), 1, rtol=1e-5)
  assert probs[4].sum() == 0


@pytest.mark.parametrize('complements', [True, False])
def test_one_action_has_the_probability_and_the_gradient_that_it_has_among_all(
  complements,
):
  rng = np.random.default_rng(1)
  scores = policy_lib.Scores(
    select=jnp.asarray(rng.normal(size=(5, 4)), jnp.float32),
    stop=jnp.asarray(rng.normal(size=5), jnp.float32),
    backtrack=jnp.asarray(rng.normal(size=5), jnp.float32),
    discount=jnp.asarray(-rng.random(size=(5, 4)), jnp.float32),
  )
  legal = np.ones((5, 6), bool)
  legal[0, 4:] = False  # An empty stack.
  legal[1, :3] = False  # One candidate.
  legal[2, :4] = False  # No candidate.
  legal[3] = False  # Done.
  settings = {'temperature': 0.7, 'gate_complements': complements}

  def take_all(scores, action):
    made = policy_lib.compute_log_probs(scores, legal, **settings)
    return jnp.take_along_axis(made, action[:, None], axis=1)[:, 0]

  def take_one(scores, action):
    return policy_lib.compute_log_prob(scores, legal, action, **settings)

  def total(scores, action, take):
    values = take(scores, action)
    is_legal = jnp.take_along_axis(jnp.asarray(legal), action[:, None], axis=1)
    return jnp.sum(jnp.where(is_legal[:, 0], values, 0.0))

  for number in range(6):
    action = jnp.full(5, number)
    made = take_one(scores, action)
    np.testing.assert_allclose(made, take_all(scores, action), rtol=1e-5)
    np.testing.assert_array_equal(made == -np.inf, ~legal[:, number])
    grads = [
      jax.grad(total)(scores, action, take) for take in (take_all, take_one)
    ]
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *grads
    )


def test_the_temperature_divides_all_logits():
  scores = policy_lib.Scores(
    select=jnp.array([[1.0, 2.0]]),
    stop=jnp.array([3.0]),
    backtrack=jnp.array([-1.0]),
  )
  legal = jnp.ones((1, 4), bool)
  np.testing.assert_allclose(
    policy_lib.compute_log_probs(scores, legal, temperature=0.5),
    policy_lib.compute_log_probs(jax.tree.map(lambda x: 2 * x, scores), legal),
  )


def test_basic_terms_keep_the_last_summand_alone():
  scores = policy_lib.Scores(
    select=jnp.zeros((1, 4)), stop=jnp.array([0.0]), backtrack=jnp.array([1.0])
  )
  basic = policy_lib.compute_log_probs(
    scores, jnp.ones((1, 6), bool), gate_complements=False
  )
  back = np.log(1 / (1 + np.exp(-1.0)))
  np.testing.assert_allclose(
    basic[0], [*[np.log(0.25)] * 4, back, np.log(0.5)], rtol=1e-6
  )

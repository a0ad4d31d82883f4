"""Tests the policy-gradient objectives against plain loops."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.losses import policy_gradient

CLIP = {'clip_low': 0.2, 'clip_high': 0.28}
SETTINGS = [
  {'aggregation': aggregation, 'ratio': ratio}
  for aggregation, ratio in itertools.product(
    policy_gradient.AGGREGATIONS, policy_gradient.RATIOS
  )
]
every_setting = pytest.mark.parametrize(
  'settings', SETTINGS, ids=lambda x: '-'.join(x.values())
)
# Six trajectories of up to five decisions, the last without any.
LENGTHS = (5, 3, 1, 4, 2, 0)
MASK = np.arange(5)[None] < np.array(LENGTHS)[:, None]
ADVANTAGE = np.array([1.5, -0.7, -1.2, 0.4, 0.0, 2.0])


def make_log_probs():
  rng = np.random.default_rng(0)
  old = -rng.uniform(0.5, 4.0, size=MASK.shape)
  return old + rng.normal(size=MASK.shape, scale=0.4), old


compute_jitted = jax.jit(
  policy_gradient.compute_policy_loss,
  static_argnames=('clip_low', 'clip_high', 'aggregation', 'ratio'),
)


def compute(log_probs, old, advantage=ADVANTAGE, mask=MASK, **settings):
  return compute_jitted(
    jnp.asarray(log_probs, jnp.float32),
    jnp.asarray(old, jnp.float32),
    jnp.asarray(advantage, jnp.float32),
    jnp.asarray(mask),
    **(CLIP | settings),
  )


def compute_gradient(log_probs, *args, **settings):
  return jax.grad(lambda x: compute(x, *args, **settings)[0])(
    jnp.asarray(log_probs, jnp.float32)
  )


def loop_loss(log_probs, old, *, aggregation, ratio):
  """Returns the loss, the mean ratio, the share clipped and the KL."""
  losses, ratios, clipped, kl = [], [], [], []
  for row, advantage in enumerate(ADVANTAGE):
    times = [t for t in range(5) if MASK[row, t]]
    logs = [log_probs[row, t] - old[row, t] for t in times]
    kl += [math.exp(x) - x - 1 for x in logs]
    if ratio == 'sequence' and times:
      logs = [sum(logs) / len(logs)] * len(logs)
    mine = []
    for r in map(math.exp, logs):
      ratios.append(r)
      bounded = min(max(r, 0.8), 1.28)
      mine.append(-min(r * advantage, bounded * advantage))
      clipped.append(bounded * advantage < r * advantage)
    losses.append(mine)
  if aggregation == 'decision':
    loss = np.mean([x for mine in losses for x in mine])
  else:
    loss = np.mean([np.mean(mine) for mine in losses if mine])
  return loss, np.mean(ratios), np.mean(clipped), np.mean(kl)


@every_setting
def test_loss_is_that_of_a_plain_loop(settings):
  log_probs, old = make_log_probs()
  loss, named = compute(log_probs, old, **settings)
  expected, ratio, clipped, kl = loop_loss(log_probs, old, **settings)
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  assert set(named) == {'ratio', 'clipped', 'old_kl'}
  np.testing.assert_allclose(named['ratio'], ratio, rtol=1e-5)
  np.testing.assert_allclose(named['clipped'], clipped, rtol=1e-5)
  np.testing.assert_allclose(named['old_kl'], kl, rtol=1e-5)
  assert 0 < clipped < 1  # Else the case shows little.


@every_setting
def test_gradient_is_the_difference_quotient_of_the_loop(settings):
  log_probs, old = make_log_probs()
  expected = np.zeros(MASK.shape)
  for row, t in np.ndindex(*MASK.shape):
    shift = np.zeros(MASK.shape)
    shift[row, t] = 1e-5
    up, *_ = loop_loss(log_probs + shift, old, **settings)
    down, *_ = loop_loss(log_probs - shift, old, **settings)
    expected[row, t] = (up - down) / 2e-5
  gradient = compute_gradient(log_probs, old, **settings)
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@every_setting
def test_gradient_on_policy_is_reinforce(settings):
  # REINFORCE (Williams, 1992): the mean of -A grad log pi, here of a softmax.
  rng = np.random.default_rng(1)
  logits = jnp.asarray(rng.normal(size=(*MASK.shape, 7)), jnp.float32)
  action = rng.integers(7, size=MASK.shape)
  if settings['aggregation'] == 'decision':
    weights = MASK / MASK.sum()
  else:
    weights = MASK / np.maximum(MASK.sum(axis=1, keepdims=True), 1) / 5
  weights = jnp.asarray(weights * ADVANTAGE[:, None], jnp.float32)

  def take(logits):
    logp = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(logp, action[:, :, None], axis=2)[:, :, 0]

  expected = jax.grad(lambda x: -jnp.sum(weights * take(x)))(logits)

  def loss(logits):
    # The old log-probabilities are the same: no gradient may flow there.
    return compute(take(logits), take(logits), **settings)[0]

  gradient = jax.grad(loss)(logits)
  np.testing.assert_allclose(gradient, expected, atol=1e-7)
  assert jnp.abs(gradient[:4]).max() > 0.01


@pytest.mark.parametrize(
  ('ratio', 'advantage', 'sign'),
  [
    # The sign of the loss's gradient, against that of the advantage.
    (1.0, 1.0, -1),
    (1.0, -1.0, 1),
    (1.0, 0.0, 0),
    (1.25, 1.0, -1),  # Above 1 + clip_low, below 1 + clip_high.
    (1.30, 1.0, 0),
    (0.50, 1.0, -1),  # Far off on the wrong side: no clip.
    (0.81, -1.0, 1),
    (0.75, -1.0, 0),  # Below 1 - clip_low, above 1 - clip_high.
    (1.50, -1.0, 1),
  ],
)
def test_gradient_pulls_where_it_is_not_clipped(ratio, advantage, sign):
  log_probs = np.full((1, 1), np.log(ratio))
  args = np.zeros((1, 1)), np.array([advantage]), np.ones((1, 1), bool)
  gradient = compute_gradient(log_probs, *args)
  np.testing.assert_allclose(gradient, [[sign * ratio]], rtol=1e-5)
  _, named = compute(log_probs, *args)
  assert named['clipped'] == (sign == 0 and advantage != 0)


def test_sequence_is_clipped_as_a_whole():
  # Ratios 2 and 1/2 have the geometric mean 1, ratios 2 and 1 one of 1.41.
  log_probs = np.log([[2.0, 0.5], [2.0, 1.0]])
  args = np.zeros((2, 2)), np.ones(2), np.ones((2, 2), bool)
  gradient = compute_gradient(log_probs, *args, ratio='sequence')
  np.testing.assert_allclose(gradient, [[-0.25, -0.25], [0.0, 0.0]], rtol=1e-5)
  # Each for itself: only the ratios of 2 are clipped.
  gradient = compute_gradient(log_probs, *args)
  np.testing.assert_allclose(gradient, [[0.0, -0.125], [0.0, -0.25]], rtol=1e-5)


@pytest.mark.parametrize('junk', [np.nan, np.inf, -np.inf, 1e30])
@every_setting
def test_what_is_masked_changes_nothing(settings, junk):
  log_probs, old = make_log_probs()
  junked = np.where(MASK, log_probs, junk), np.where(MASK, old, junk)
  advantage = np.where(MASK.any(axis=1), ADVANTAGE, junk)
  loss, named = compute(*junked, advantage, **settings)
  expected, expected_named = compute(log_probs, old, **settings)
  np.testing.assert_array_equal(loss, expected)
  assert named == expected_named
  gradient = compute_gradient(*junked, advantage, **settings)
  np.testing.assert_array_equal(
    gradient, compute_gradient(log_probs, old, **settings)
  )
  assert (gradient[~MASK] == 0).all()


@every_setting
def test_gradient_flows_past_an_illegal_action(settings):
  # Where nothing was legal any more, log pi is -inf and came from a softmax.
  logits = jnp.zeros((6, 5, 3)).at[:, :, 0].set(-jnp.inf)

  def loss(logits):
    log_probs = jax.nn.log_softmax(logits)
    taken = jnp.where(MASK, log_probs[:, :, 1], log_probs[:, :, 0])
    return compute(taken, taken, **settings)[0]

  gradient = jax.grad(loss)(logits)
  assert jnp.isfinite(gradient).all() and gradient.any()


@every_setting
def test_nothing_counts_without_a_decision(settings):
  log_probs, old = make_log_probs()
  nothing = np.zeros(MASK.shape, bool)
  loss, named = compute(log_probs, old, mask=nothing, **settings)
  assert loss == 0 and not any(named.values())
  gradient = compute_gradient(log_probs, old, ADVANTAGE, nothing, **settings)
  assert not gradient.any()


def test_far_off_policy_stays_finite():
  log_probs, old = np.full((2, 1), 500.0), np.zeros((2, 1))
  args = old, np.array([0.0, -1.0]), np.ones((2, 1), bool)
  loss, named = compute(log_probs, *args)
  assert jnp.isfinite(loss) and jnp.isfinite(named['old_kl'])
  assert jnp.isfinite(compute_gradient(log_probs, *args)).all()


@pytest.mark.parametrize('name', ['aggregation', 'ratio'])
def test_unknown_setting_is_refused(name):
  log_probs, old = make_log_probs()
  with pytest.raises(
    errors.UsageError, match=rf"loss\.{name}='token': choose decision"
  ):
    compute(log_probs, old, **{name: 'token'})


def compute_kl(log_probs, reference, mask=MASK):
  return policy_gradient.compute_kl(
    jnp.asarray(log_probs, jnp.float32),
    jnp.asarray(reference, jnp.float32),
    jnp.asarray(mask),
  )


def test_kl_is_that_of_a_plain_loop():
  log_probs, reference = make_log_probs()
  terms = []
  for row, t in np.ndindex(*MASK.shape):
    if MASK[row, t]:
      x = reference[row, t] - log_probs[row, t]
      terms.append(math.exp(x) - x - 1)
  junked = np.where(MASK, log_probs, -np.inf), np.where(MASK, reference, np.nan)
  np.testing.assert_allclose(compute_kl(*junked), np.mean(terms), rtol=1e-5)
  # d k3 / d log pi = 1 - r, over the number of decisions.
  gradient = jax.grad(compute_kl)(jnp.asarray(junked[0]), junked[1])
  expected = np.where(MASK, 1 - np.exp(reference - log_probs), 0) / MASK.sum()
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)


def test_kl_is_right_on_average_over_the_actions():
  # The mean under pi over all actions is the sum over p log(p / q).
  p, q = np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.1, 0.4])
  estimates = [
    float(compute_kl(*np.log([[[x]], [[y]]]), np.ones((1, 1), bool)))
    for x, y in zip(p, q, strict=True)
  ]
  assert min(estimates) >= 0
  np.testing.assert_allclose(
    np.dot(p, estimates), np.sum(p * np.log(p / q)), rtol=1e-4
  )


def test_kl_pulls_back_from_far_off():
  # The reference thinks the action all but impossible: k3 grows by 1 a nat.
  log_probs, reference = jnp.zeros((1, 1)), jnp.full((1, 1), -60.0)
  value, gradient = jax.value_and_grad(compute_kl)(
    log_probs, reference, np.ones((1, 1), bool)
  )
  np.testing.assert_allclose(value, 59.0, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[1.0]], rtol=1e-6)

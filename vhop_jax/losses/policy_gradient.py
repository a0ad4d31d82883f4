"""Policy-gradient objectives over the decisions of a batch of rollouts.

Below, `mask` is True at decisions that count. What stands elsewhere, be it
-inf or NaN, changes neither a value nor a gradient.
"""

import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.typing import Array, Bool, Float, typed

# What weighs the same in the mean.
AGGREGATIONS = ('decision', 'trajectory')
# What has a probability ratio of its own.
RATIOS = ('decision', 'sequence')

# A greater difference of log-probabilities is taken for this one, with no
# gradient: its exponential must not become infinite.
_MAX_LOG_RATIO = 20.0


def _make_weights(
  mask: Bool[Array, 'B T'], aggregation: str
) -> Float[Array, 'B T']:
  """Returns weights that sum to 1, or to 0 where nothing counts."""
  weights = mask.astype(jnp.float32)
  if aggregation == 'trajectory':
    weights /= jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    return weights / jnp.maximum(mask.any(axis=1).sum(), 1)
  return weights / jnp.maximum(mask.sum(), 1)


@typed
def compute_policy_loss(
  log_probs: Float[Array, 'B T'],
  old_log_probs: Float[Array, 'B T'],
  advantage: Float[Array, 'B'],
  mask: Bool[Array, 'B T'],
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.28,
  aggregation: str = 'decision',
  ratio: str = 'decision',
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Returns the clipped surrogate loss of PPO (Schulman et al., 2017).

  -mean of min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), where r is the
  ratio pi(action) / pi_old(action). Two bounds and the mean over all decisions
  are DAPO's (Yu et al., 2025), the mean over each trajectory is GRPO's (Shao et
  al., 2024). The ratio of a sequence is GSPO's (Zheng et al., 2025),
  exp(mean_t log r_t), and with it a trajectory is clipped as a whole.

  A trajectory without advantage counts in the mean; mask it to leave it out.

  Args:
    log_probs: of the actions, under the policy that is trained.
    old_log_probs: under the policy that acted; no gradient flows there.
    advantage: A of each trajectory.
    mask: the decisions that count.
    clip_low: in [0, 1].
    clip_high: at least 0.
    aggregation: one of `AGGREGATIONS`. With 'trajectory' the mean is over the
      decisions of each, then over the trajectories of which any counts.
    ratio: one of `RATIOS`.

  Returns:
    The loss, 0 where nothing counts, and by name means over the decisions that
    count: the ratio, the share that is clipped and so has no gradient, and
    the estimated KL(pi_old, pi), see `compute_kl`.

  Raises:
    UsageError: a setting is none of its choices.
  """
  errors.check_choice('loss.aggregation', aggregation, AGGREGATIONS)
  errors.check_choice('loss.ratio', ratio, RATIOS)
  old_log_probs = jax.lax.stop_gradient(old_log_probs)
  # Masked before the exponential, which would make NaN's gradient NaN.
  log_ratios = jnp.where(mask, log_probs - old_log_probs, 0.0)
  if ratio == 'sequence':
    length = jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    mean = log_ratios.sum(axis=1, keepdims=True) / length
    log_ratios = jnp.broadcast_to(mean, mask.shape)
  ratios = jnp.exp(jnp.minimum(log_ratios, _MAX_LOG_RATIO))
  gain = jnp.where(mask, jax.lax.stop_gradient(advantage)[:, None], 0.0)
  clipped = jnp.clip(ratios, 1 - clip_low, 1 + clip_high)
  surrogate = jnp.minimum(ratios * gain, clipped * gain)
  loss = -jnp.sum(_make_weights(mask, aggregation) * surrogate)

  is_clipped = jnp.where(
    gain > 0, ratios > 1 + clip_high, (gain < 0) & (ratios < 1 - clip_low)
  )
  evenly = _make_weights(mask, 'decision')
  return loss, {
    'ratio': jnp.sum(evenly * ratios),
    'clipped': jnp.sum(evenly * is_clipped),
    'old_kl': compute_kl(old_log_probs, log_probs, mask),
  }


@typed
def compute_kl(
  log_probs: Float[Array, 'B T'],
  reference_log_probs: Float[Array, 'B T'],
  mask: Bool[Array, 'B T'],
) -> Float[Array, '']:
  """Estimates KL(pi, reference) from actions that pi took.

  Schulman's k3 ("Approximating KL Divergence", 2020): the mean over the
  decisions that count of r - log r - 1, where r is the ratio of the reference's
  probability to pi's. It is unbiased and never negative.

  Args:
    log_probs: of the actions, under pi.
    reference_log_probs: under the reference; no gradient flows there.
    mask: the decisions that count.

  Returns:
    The estimate, 0 where nothing counts.
  """
  reference_log_probs = jax.lax.stop_gradient(reference_log_probs)
  log_ratios = jnp.where(mask, reference_log_probs - log_probs, 0.0)
  log_ratios = jnp.minimum(log_ratios, _MAX_LOG_RATIO)
  k3 = jnp.exp(log_ratios) - log_ratios - 1
  return jnp.sum(_make_weights(mask, 'decision') * k3)

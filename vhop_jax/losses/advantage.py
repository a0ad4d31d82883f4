"""Turns what rollouts reached into rewards and group-relative advantages."""

import jax.numpy as jnp

from vhop_jax.typing import Array, Bool, Float, Int, typed

_EQUAL = 1e-6  # Rewards that differ by no more are the same.


@typed
def compute_reward(
  is_success: Bool[Array, '*B'],
  decisions: Int[Array, '*B'],
  *,
  decision_penalty: float,
) -> Float[Array, '*B']:
  """Returns 1 for success, else 0, minus the penalty of each decision.

  Args:
    is_success: whether the rollout stopped on a valid answer.
    decisions: how many it took.
    decision_penalty: lambda, at least 0.
  """
  return is_success.astype(jnp.float32) - decision_penalty * decisions


@typed
def compute_group_advantage(
  reward: Float[Array, 'B G'],
  is_success: Bool[Array, 'B G'],
  *,
  eps: float,
  mask_failed: bool,
  normalize: bool = True,
) -> tuple[Float[Array, 'B G'], Bool[Array, 'B']]:
  """Compares each rollout with the others of its query.

  GRPO (Shao et al., 2024): (reward - group mean) / (group std + eps), the
  standard deviation being the population's.

  With a penalty of decisions, rewards have a spread also where all rollouts
  fail: what would be learnt from such a group is to give up early, which
  `mask_failed` prevents. A group where all succeed keeps its spread, which
  teaches short ways; normalised, it counts as much as that between success and
  failure unless `eps` exceeds it.

  Args:
    reward: of the rollouts of each query.
    is_success: whether they succeeded.
    eps: greater than 0, in units of reward.
    mask_failed: whether groups without a success say nothing.
    normalize: whether to divide; without it this is the advantage of Liu et
      al. (2025, Dr. GRPO), where a group weighs by its spread.

  Returns:
    The advantages, and which groups are degenerate: those of equal rewards,
    and with `mask_failed` those without a success. Their advantages are
    exactly 0.
  """
  is_degenerate = jnp.max(reward, axis=1) - jnp.min(reward, axis=1) <= _EQUAL
  if mask_failed:
    is_degenerate |= ~is_success.any(axis=1)
  advantage = reward - jnp.mean(reward, axis=1, keepdims=True)
  if normalize:
    advantage /= jnp.std(reward, axis=1, keepdims=True) + eps
  return jnp.where(is_degenerate[:, None], 0.0, advantage), is_degenerate

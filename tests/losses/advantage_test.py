"""Tests rewards and advantages by hand arithmetic and a plain loop."""

import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax.losses import advantage as advantage_lib

# Success and failure; all fail, one sooner; all succeed, one sooner; all fail
# alike.
SUCCESS = jnp.array([[1, 0, 0, 0], [0] * 4, [1] * 4, [0] * 4]) > 0
DECISIONS = jnp.array([[4, 16, 8, 16], [16, 1, 16, 16], [4, 4, 4, 6], [16] * 4])


def compute(*, eps=1e-3, mask_failed=False, normalize=True):
  reward = advantage_lib.compute_reward(
    SUCCESS, DECISIONS, decision_penalty=0.02
  )
  return advantage_lib.compute_group_advantage(
    reward, SUCCESS, eps=eps, mask_failed=mask_failed, normalize=normalize
  )


def test_reward_by_hand():
  reward = advantage_lib.compute_reward(
    jnp.array([True, False, False]),
    jnp.array([4, 16, 0]),
    decision_penalty=0.02,
  )
  # 1 - 4 * 0.02, then -16 * 0.02.
  np.testing.assert_allclose(reward, [0.92, -0.32, 0.0], rtol=1e-6)


@pytest.mark.parametrize('normalize', [True, False])
def test_advantage_is_that_of_a_plain_loop(normalize):
  made, _ = compute(eps=0.01, normalize=normalize)
  for group in range(3):
    rewards = [
      float(SUCCESS[group, i]) - 0.02 * int(DECISIONS[group, i])
      for i in range(4)
    ]
    mean = sum(rewards) / 4
    spread = (sum((x - mean) ** 2 for x in rewards) / 4) ** 0.5 + 0.01
    expected = [(x - mean) / (spread if normalize else 1) for x in rewards]
    np.testing.assert_allclose(made[group], expected, rtol=1e-4)


def test_group_of_two_by_hand():
  # Mean 0.5 and standard deviation 0.5: +-0.5 / (0.5 + 0.5).
  made, degenerate = advantage_lib.compute_group_advantage(
    jnp.array([[1.0, 0.0]]),
    jnp.array([[True, False]]),
    eps=0.5,
    mask_failed=True,
  )
  np.testing.assert_allclose(made, [[0.5, -0.5]], rtol=1e-6)
  assert not degenerate.any()


def test_equal_rewards_say_exactly_nothing():
  made, degenerate = compute(eps=1e-9)
  assert degenerate.tolist() == [False, False, False, True]
  assert (made[3] == 0).all()
  # 0.1 has no exact mean in float32, and the spread is the rounding.
  reward = jnp.array([[0.1, 0.1, 0.1], [0.1, 0.1, 0.1 + 5e-7]])
  made, degenerate = advantage_lib.compute_group_advantage(
    reward, reward > 0, eps=1e-9, mask_failed=False
  )
  assert degenerate.all() and (made == 0).all()


def test_failed_group_teaches_to_give_up_unless_masked():
  made, degenerate = compute()
  assert not degenerate[1] and made[1, 1] > 0 > made[1, 0]
  masked, degenerate = compute(mask_failed=True)
  assert degenerate.tolist() == [False, True, False, True]
  assert (masked[1] == 0).all()
  # The others are as they were; where all succeed, the longest way is worst.
  np.testing.assert_array_equal(masked[0], made[0])
  np.testing.assert_array_equal(masked[2], made[2])
  assert made[2, 3] < 0 < made[2, 0]

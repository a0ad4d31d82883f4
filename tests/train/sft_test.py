"""Tests what supervised fine-tuning takes for right and for wrong."""

import jax.numpy as jnp
import pytest

from vhop_jax.train import sft

# Candidates: 0 query image, 1 and 2 gold chain, 3 fits hop 1 as well, 4 other,
# 5 padding.
CHAIN = jnp.array([[1, 2]])
QUERY = jnp.array([0])
EQUAL = jnp.zeros((1, 2, 6), bool).at[0, 0, 3].set(True)
CANDIDATES = jnp.array([True] * 5 + [False])


@pytest.mark.parametrize(
  ('equals', 'positives', 'competitors'),
  [
    ('negative', [[1], [2]], [[1, 2, 3, 4], [2, 3, 4]]),
    ('ignored', [[1], [2]], [[1, 2, 4], [2, 3, 4]]),
    ('positive', [[1, 3], [2]], [[1, 2, 3, 4], [2, 3, 4]]),
  ],
)
def test_targets_by_hand(equals, positives, competitors):
  right, compete = sft.make_targets(
    CHAIN, QUERY, EQUAL, CANDIDATES, equals=equals
  )
  for hop in range(2):
    assert jnp.nonzero(right[0, hop])[0].tolist() == positives[hop]
    assert jnp.nonzero(compete[0, hop])[0].tolist() == competitors[hop]

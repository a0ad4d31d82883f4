"""Tests the contrastive objectives by hand arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.losses import contrastive

SCORES = jnp.log(jnp.array([[1.0, 2.0, 3.0, 4.0]]))
EVERYTHING = jnp.ones((1, 4), bool)


def test_one_positive_is_info_nce():
  # -log(2 / (1 + 2 + 3 + 4)) = log 5.
  loss = contrastive.info_nce(SCORES, jnp.array([[0, 1, 0, 0]]) > 0, EVERYTHING)
  np.testing.assert_allclose(loss, np.log(5.0), rtol=1e-5)


def test_each_positive_stands_against_the_negatives_alone():
  # Negatives 1 + 3 = 4; -(log 2/6 + log 4/8) / 2.
  loss = contrastive.info_nce(SCORES, jnp.array([[0, 1, 0, 1]]) > 0, EVERYTHING)
  expected = (np.log(3.0) + np.log(2.0)) / 2
  np.testing.assert_allclose(loss, [expected], rtol=1e-5)


def test_what_is_no_candidate_gets_no_gradient():
  candidates = jnp.array([[True, True, False, True]])
  positives = jnp.array([[False, True, False, False]])
  gradient = jax.grad(
    lambda s: contrastive.info_nce(s, positives, candidates).sum()
  )(SCORES)
  assert gradient[0, 2] == 0
  assert gradient[0, 0] > 0 > gradient[0, 1]


def test_false_negatives_score_above_the_margin():
  similarities = jnp.array([[0.5, 0.59, 0.61, 0.2]])
  positives = jnp.array([[True, False, False, False]])
  keep = contrastive.make_false_negative_mask(
    similarities, positives, margin=0.1
  )
  assert keep.tolist() == [[True, True, False, True]]


def test_recall_looks_at_candidates_only():
  scores = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
  positives = jnp.array([[False, True, False], [False, False, True]])
  candidates = jnp.array([[False, True, True], [True, True, True]])
  assert contrastive.compute_recall(scores, positives, candidates) == 0.5

"""Tests the contrastive objectives by hand arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
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


def test_absence_stands_between_right_targets_and_the_others():
  scores = jnp.array([[3.0, 1.0, 2.0, 9.0], [0.5, 0.0, -1.0, 4.0]])
  positives = jnp.array([[True, False, False, False], [False] * 4])
  candidates = jnp.array(
    [[False, True, True, False], [True, True, True, False]]
  )
  loss = contrastive.compute_absence_loss(
    scores, positives, candidates, jnp.asarray(2.5)
  )
  e = np.exp
  expected = [
    np.log1p(e(2.5 - 3)) - np.log(e(2.5) / (e(2.5) + e(1) + e(2))),
    -np.log(e(2.5) / (e(2.5) + e(0.5) + e(0) + e(-1))),
  ]
  np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_recall_looks_at_candidates_only():
  scores = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
  positives = jnp.array([[False, True, False], [False, False, True]])
  candidates = jnp.array([[False, True, True], [True, True, True]])
  assert contrastive.compute_recall(scores, positives, candidates) == 0.5


def test_equally_right_targets_do_not_push_each_other():
  positives = jnp.array([[False, True, False, True]])

  def loss(scores):
    return contrastive.info_nce(scores, positives, EVERYTHING).sum()

  gradient = jax.grad(loss)(SCORES)
  assert (gradient[0, jnp.array([1, 3])] < 0).all()
  # Raising one right target leaves the pull on the other as it was.
  other = jax.grad(loss)(SCORES.at[0, 1].add(3.0))
  np.testing.assert_allclose(other[0, 3], gradient[0, 3], rtol=1e-5)


def test_row_without_a_right_target_says_nothing():
  nothing = jnp.zeros((1, 4), bool)

  def loss(scores):
    return contrastive.info_nce(scores, nothing, EVERYTHING).sum()

  value, gradient = jax.value_and_grad(loss)(SCORES)
  assert value == 0
  assert not gradient.any()
  # Nor does one without anything to push away.
  positive = jnp.array([[True, False, False, False]])
  assert contrastive.info_nce(SCORES, positive, positive)[0] == 0


def test_right_target_need_not_be_a_candidate():
  # Negatives 1 + 3 = 4; the target's own score is 2: -log(2/6).
  positives = jnp.array([[False, True, False, False]])
  candidates = jnp.array([[True, False, True, False]])
  loss = contrastive.info_nce(SCORES, positives, candidates)
  np.testing.assert_allclose(loss, [np.log(3.0)], rtol=1e-5)


def test_best_right_target_sets_the_margin_and_none_masks_another():
  similarities = jnp.array([[0.5, 0.8, 0.85, 0.95], [0.1, 0.2, 0.3, 0.4]])
  positives = jnp.array([[True, True, False, False], [False] * 4])
  keep = contrastive.make_false_negative_mask(
    similarities, positives, margin=0.1
  )
  assert keep.tolist() == [[True, True, True, False], [False] * 4]


def test_cross_entropy_by_hand():
  loss = contrastive.cross_entropy(SCORES[:, :3], jnp.array([2]))
  np.testing.assert_allclose(loss, [np.log(2.0)], rtol=1e-5)


def compute_by_hand(
  queries, documents, *, scale, margin, qq, dd, width, known=()
):
  """Sums the loss term by term in plain NumPy; `known` are no negatives."""
  unit = lambda x: x / np.linalg.norm(x)  # noqa: E731
  q = [unit(x[:width]) for x in queries]
  d = [unit(x[:width]) for x in documents]
  losses = []
  for i in range(len(q)):
    positive = q[i] @ d[i]
    others = [j for j in range(len(d)) if j != i and (i, j) not in known]
    negatives = [q[i] @ d[j] for j in others]
    if qq:
      negatives += [q[i] @ q[j] for j in others if j < len(q)]
    if dd:
      negatives += [d[i] @ d[j] for j in others]
    kept = [s for s in negatives if s <= positive + margin]
    total = sum(np.exp(scale * s) for s in [positive, *kept])
    losses.append(-np.log(np.exp(scale * positive) / total))
  return np.mean(losses)


@pytest.mark.parametrize('qq', [False, True])
@pytest.mark.parametrize('dd', [False, True])
@pytest.mark.parametrize(
  ('margin', 'known'), [(0.1, ()), (2.0, ()), (2.0, ((0, 2), (3, 5), (1, 0)))]
)
def test_embedding_loss_is_the_sum_of_its_terms(qq, dd, margin, known):
  rng = np.random.default_rng(0)
  queries = rng.normal(size=(4, 6)).astype(np.float32)
  # Two hard negatives after the positives; some negatives beat a positive.
  documents = rng.normal(size=(6, 6)).astype(np.float32)
  documents[:4] += queries
  settings = dict(scale=3.0, margin=margin, qq=qq, dd=dd, known=known)
  mask = np.ones((4, 6), bool)
  for pair in known:
    mask[pair] = False
  expected = 0.25 * compute_by_hand(
    queries, documents, **settings, width=3
  ) + 0.75 * compute_by_hand(queries, documents, **settings, width=6)
  loss = contrastive.compute_embedding_loss(
    jnp.asarray(queries),
    jnp.asarray(documents),
    inverse_temperature=3.0,
    candidate_mask=jnp.asarray(mask) if known else None,
    margin=margin,
    query_query=qq,
    document_document=dd,
    widths=(3, 6),
    width_weights=(0.25, 0.75),
  )
  np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_false_negative_is_left_out_of_the_embedding_loss():
  # Query 0 is document 2 itself, far above its positive: left out, so that
  # moving it changes nothing.
  queries = np.float32([[1, 0]])
  documents = jnp.array([[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]])

  def loss(documents):
    return contrastive.compute_embedding_loss(
      jnp.asarray(queries), documents, inverse_temperature=2.0
    )

  gradient = np.asarray(jax.grad(loss)(documents))
  np.testing.assert_array_equal(gradient[2], 0)
  assert np.abs(gradient[:2]).max() > 0.01


@pytest.mark.parametrize('qq', [False, True])
@pytest.mark.parametrize('dd', [False, True])
def test_shared_document_is_no_negative(qq, dd):
  # Queries 0 and 1 want the same document. What is left for each is document
  # 2, at a right angle to all: -log(e^s / (e^s + n e^0)), where n counts how
  # often it, or the query that wants it, competes.
  x = jnp.array([[3.0, 4.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
  loss = contrastive.compute_embedding_loss(
    x,
    x,
    inverse_temperature=2.0,
    candidate_mask=jnp.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]], bool),
    query_query=qq,
    document_document=dd,
  )
  n = 1 + qq + dd
  # Query 2 has both copies of the other document against it.
  expected = (
    2 * np.log(1 + n * np.exp(-2.0)) + np.log(1 + 2 * n * np.exp(-2.0))
  ) / 3
  np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize(
  'changes', [{'widths': (9,)}, {'widths': (2, 3), 'width_weights': (1.0,)}]
)
def test_widths_that_do_not_fit_are_refused(changes):
  x = jnp.ones((2, 4))
  with pytest.raises(errors.UsageError, match='widths='):
    contrastive.compute_embedding_loss(x, x, inverse_temperature=1.0, **changes)

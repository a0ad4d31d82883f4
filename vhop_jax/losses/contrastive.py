"""Contrastive objectives over score matrices."""

import jax
import jax.numpy as jnp

from vhop_jax.typing import Array, Bool, Float, Int, typed

MASKED_SCORE = -1e9


@typed
def info_nce(
  scores: Float[Array, 'B N'],
  positive_mask: Bool[Array, 'B N'],
  candidate_mask: Bool[Array, 'B N'],
) -> Float[Array, 'B']:
  """Contrasts each positive with all negatives; the mean over positives.

  With one positive this is InfoNCE (van den Oord et al., 2018),
  -log(exp s_p / (exp s_p + sum_n exp s_n)). With several, each stands against
  the negatives alone, so that equally right targets do not push each other
  away.

  Args:
    scores: similarities divided by the temperature.
    positive_mask: True at right targets; they need not be candidates too.
    candidate_mask: True at what competes; positives among it are no
      negatives.

  Returns:
    The loss of each row; 0 for a row without a positive.
  """
  negative_mask = candidate_mask & ~positive_mask
  negatives = jax.nn.logsumexp(
    jnp.where(negative_mask, scores, MASKED_SCORE), axis=1, keepdims=True
  )
  losses = jnp.where(positive_mask, jax.nn.softplus(negatives - scores), 0.0)
  return losses.sum(axis=1) / jnp.maximum(positive_mask.sum(axis=1), 1)


@typed
def make_false_negative_mask(
  similarities: Float[Array, 'B N'],
  positive_mask: Bool[Array, 'B N'],
  *,
  margin: float,
) -> Bool[Array, 'B N']:
  """Keeps the candidates that are safe to push away.

  A candidate that scores above its row's best positive by more than the
  margin is taken for an unlabelled positive (Qwen3-Embedding's rule).

  Args:
    similarities: cosines, before the temperature.
    positive_mask: True at right targets.
    margin: in cosine, at least 0.
  """
  best = jnp.max(
    jnp.where(positive_mask, similarities, -jnp.inf), axis=1, keepdims=True
  )
  return (similarities <= best + margin) | positive_mask


@typed
def compute_recall(
  scores: Float[Array, 'B N'],
  positive_mask: Bool[Array, 'B N'],
  candidate_mask: Bool[Array, 'B N'],
) -> Float[Array, '']:
  """Returns the share of rows whose best candidate is a positive."""
  best = jnp.argmax(jnp.where(candidate_mask, scores, -jnp.inf), axis=1)
  hit = jnp.take_along_axis(positive_mask, best[:, None], axis=1)
  return jnp.mean(hit.astype(jnp.float32))


@typed
def cross_entropy(
  logits: Float[Array, 'B K'], labels: Int[Array, 'B']
) -> Float[Array, 'B']:
  """Returns -log softmax(logits)[label] of each row."""
  logp = jax.nn.log_softmax(logits, axis=-1)
  return -jnp.take_along_axis(logp, labels[:, None], axis=1)[:, 0]

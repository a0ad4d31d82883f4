"""Contrastive objectives over score matrices."""

import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.models import embedder as embedder_lib
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
  negatives = _join(scores, negative_mask)[:, None]
  return _average(jax.nn.softplus(negatives - scores), positive_mask)


@typed
def compute_absence_loss(
  scores: Float[Array, 'B N'],
  positive_mask: Bool[Array, 'B N'],
  candidate_mask: Bool[Array, 'B N'],
  absence: Float[Array, ''],
) -> Float[Array, 'B']:
  """Contrasts positives and negatives with one score for "none of these".

  Ranking leaves it open how high a right target scores. Here it must exceed
  the same score for all queries, below which all negatives must stay: so a
  score says by itself whether the right target is there at all.

  Args:
    scores: similarities divided by the temperature.
    positive_mask: True at right targets; they need not be candidates too.
    candidate_mask: True at what competes; positives among it are no
      negatives.
    absence: the score that stands for "none of these".

  Returns:
    The loss of each row: of its positives against absence, and of absence
    against its negatives.
  """
  present = _average(jax.nn.softplus(absence - scores), positive_mask)
  negative_mask = candidate_mask & ~positive_mask
  return present + compute_withdrawn_loss(scores, negative_mask, absence)


@typed
def compute_withdrawn_loss(
  scores: Float[Array, 'B N'],
  negative_mask: Bool[Array, 'B N'],
  absence: Float[Array, ''],
) -> Float[Array, 'B']:
  """Contrasts "none of these" with negatives, the right targets withdrawn.

  Args:
    scores: similarities divided by the temperature.
    negative_mask: True at what competes.
    absence: the score that stands for "none of these".

  Returns:
    The loss of each row.
  """
  return jax.nn.softplus(_join(scores, negative_mask) - absence)


def _join(scores: Array, mask: Array) -> Float[Array, 'B']:
  """Returns the log of the sum of exp scores where the mask is True."""
  masked = jnp.where(mask, scores, MASKED_SCORE)
  joined: Array = jax.nn.logsumexp(masked, axis=1)
  return joined


def _average(losses: Array, mask: Array) -> Float[Array, 'B']:
  """Returns each row's mean where the mask is True, 0 if that is nowhere."""
  total = jnp.where(mask, losses, 0.0).sum(axis=1)
  return total / jnp.maximum(mask.sum(axis=1), 1)


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


@typed
def compute_embedding_loss(
  queries: Float[Array, 'B D'],
  documents: Float[Array, 'N D'],
  *,
  inverse_temperature: float,
  candidate_mask: Bool[Array, 'B N'] | None = None,
  margin: float = 0.1,
  query_query: bool = False,
  document_document: bool = False,
  widths: tuple[int, ...] = (),
  width_weights: tuple[float, ...] = (),
) -> Float[Array, '']:
  """Computes the loss that Qwen3-VL-Embedding is trained with.

  InfoNCE of each query with its document, against all other documents of the
  batch, the hard negatives among them, and where that is asked for against
  the other queries and against its document's likeness with the others. A
  negative that scores above the positive by more than the margin is taken for
  an unlabelled positive and left out, and so is the positive itself where the
  batch has it more than once. The same on prefixes of the embeddings
  is Matryoshka representation learning (Kusupati et al., 2022).

  Args:
    queries: need not be normalised.
    documents: the positive of query i is document i; what comes after the B
      positives are hard negatives.
    inverse_temperature: scores are cosines times this.
    candidate_mask: False where document j must not stand against query i: it
      is known to answer it, such as the positive's copy in another row, or
      is padding. Nor does query j then, nor j against document i.
    margin: see `make_false_negative_mask`.
    query_query: whether other queries are negatives of a query.
    document_document: whether other documents are negatives of a query's
      document.
    widths: of the prefixes, each normalised anew; none is D alone.
    width_weights: one for each width; none weighs them equally.

  Returns:
    The mean over the queries, summed over the widths by their weights.

  Raises:
    UsageError: widths and weights do not fit each other or the embeddings.
  """
  count, width = queries.shape
  widths = widths or (width,)
  width_weights = width_weights or (1 / len(widths),) * len(widths)
  if len(widths) != len(width_weights) or not all(
    0 < w <= width for w in widths
  ):
    raise errors.UsageError(
      f'widths={widths}, width_weights={width_weights}: there must be a weight'
      f' for each width, and no width above {width}'
    )
  positive_mask = jnp.eye(count, len(documents), dtype=bool)
  if candidate_mask is None:
    candidate_mask = jnp.ones_like(positive_mask)
  negative_mask = candidate_mask & ~positive_mask
  total = jnp.zeros((), jnp.float32)
  for size, weight in zip(widths, width_weights, strict=True):
    q, d = (embedder_lib.normalize(x[:, :size]) for x in (queries, documents))
    # Each block: likenesses, and which of them may compete at all.
    blocks = [(q @ d.T, negative_mask)]
    if query_query:
      blocks.append((q @ q.T, negative_mask[:, :count]))
    if document_document:
      blocks.append((d[:count] @ d.T, negative_mask))
    cosines = jnp.concatenate([block for block, _ in blocks], axis=1)
    candidates = jnp.concatenate([mask for _, mask in blocks], axis=1)
    positives = jnp.pad(
      positive_mask, ((0, 0), (0, cosines.shape[1] - len(documents)))
    )
    candidates &= make_false_negative_mask(
      jax.lax.stop_gradient(cosines), positives, margin=margin
    )
    losses = info_nce(inverse_temperature * cosines, positives, candidates)
    total += weight * losses.mean()
  return total

"""Tells the gates what goes on from where they stand, and what did before.

A state cannot know that no image goes on from it: that depends on the gallery.
Nor is one look enough. A cosine that is low in one world is high in another, so
a place of the stack is judged by comparing the images that were tried there:
`Notes` holds what went on from each.
"""

import flax
import jax
import jax.numpy as jnp

from vhop_jax.typing import Array, Bool, Float, Int

EVIDENCE_IMAGES = 8  # Best candidates that the gates are told about.
MAX_DEPTH = 8  # Greater depths are taken for this one.
MAX_TRIED = 3  # More rejected images are taken for so many.
EVIDENCE_SIZE = 2 * EVIDENCE_IMAGES + MAX_DEPTH + 2 * (MAX_TRIED + 1) + 8

# How a large gallery is searched for the best candidates.
_BLOCK = 128
_MIN_BLOCKS = 32
# Cosines that differ by less are of the same image, seen once more.
_SAME = 1e-3
# Bring evidence near 1: a tenth is much between two cosines.
_COSINE_UNIT = 0.1
_DECISIONS_UNIT = 16.0


@flax.struct.dataclass
class Notes:
  """Holds what was seen at each of the T places of the stack.

  Attributes:
    image: the one there; above the stack anything.
    choice: cosine of it and that of its best rival when it was
      selected; above the stack anything.
    tried: images rejected there while those below stayed.
    best: the greatest cosine that went on from one of them when it was
      rejected; -1 at none.
    rejected: the images that were rejected while those below stayed, in no
      order, each where it was last; anything where `rejected_at` is -1.
    rejected_at: the place of each of them; -1 at the entries that are free.
    went_on: the greatest cosine that went on from it then.
  """

  image: Int[Array, '*B T']
  choice: Float[Array, '*B T 2']
  tried: Int[Array, '*B T']
  best: Float[Array, '*B T']
  rejected: Int[Array, '*B T']
  rejected_at: Int[Array, '*B T']
  went_on: Float[Array, '*B T']


def start_notes(rows: int, budget: int) -> Notes:
  """Returns the notes before the first of T decisions."""
  return Notes(
    image=jnp.zeros((rows, budget), jnp.int32),
    choice=jnp.zeros((rows, budget, 2)),
    tried=jnp.zeros((rows, budget), jnp.int32),
    best=jnp.full((rows, budget), -1.0),
    rejected=jnp.zeros((rows, budget), jnp.int32),
    rejected_at=jnp.full((rows, budget), -1, jnp.int32),
    went_on=jnp.zeros((rows, budget)),
  )


@flax.struct.dataclass
class Note:
  """Holds what one decision adds.

  Attributes:
    depth: images on the stack after it.
    is_select: whether it put the topmost there; else it took one away.
    image: the one that it put there; without meaning if it took one away.
    choice: cosine of the selected image and that of the best candidate after
      the decision: its rival, or what went on from the image taken away.
  """

  depth: Int[Array, '*B']
  is_select: Bool[Array, '*B']
  image: Int[Array, '*B']
  choice: Float[Array, '*B 2']


def make_note(
  cosines: Float[Array, '*B N'],
  candidate_mask: Bool[Array, '*B N'],
  image: Int[Array, '*B'],
  *,
  depth: Int[Array, '*B'],
  is_select: Bool[Array, '*B'],
) -> Note:
  """Says what a decision showed; no gradient flows through it.

  Args:
    cosines: of the state that decided with the gallery.
    candidate_mask: what may be selected after the decision; maybe nothing.
    image: the selected one; without meaning at a Backtrack.
    depth: images on the stack after it.
    is_select: whether it was a Select.
  """
  cosines = jax.lax.stop_gradient(cosines)
  chosen = jnp.take_along_axis(cosines, image[..., None], axis=-1)[..., 0]
  best = jnp.max(jnp.where(candidate_mask, cosines, -1.0), axis=-1)
  return Note(
    depth=depth,
    is_select=is_select,
    image=image,
    choice=jnp.stack([chosen, best], axis=-1),
  )


def take_note(notes: Notes, note: Note) -> Notes:
  """Returns the notes after one more decision of each of the B rows."""
  budget = notes.tried.shape[1]
  rows = jnp.arange(note.depth.shape[0])
  # Out of bounds writes nothing.
  put = jnp.where(note.is_select, note.depth - 1, budget)
  above = jnp.where(note.is_select, note.depth, budget)
  taken = jnp.where(note.is_select, budget, note.depth)

  def write(x: Array, index: Array, value: Array | float) -> Array:
    return x.at[rows, index].set(value, mode='drop')

  here = jnp.minimum(note.depth, budget - 1)
  gone = notes.image[rows, here]
  # What was rejected after an image that is gone now is another place's, and
  # of an image that was rejected at several places the last counts.
  lapses = ~note.is_select[:, None] & (
    (notes.rejected_at > note.depth[:, None])
    | (notes.rejected == gone[:, None])
  )
  rejected_at = jnp.where(lapses, -1, notes.rejected_at)
  # There are as many entries as decisions, and not all of them reject.
  entry = jnp.where(note.is_select, budget, jnp.argmin(rejected_at, axis=1))
  tried, best = notes.tried[rows, here], notes.best[rows, here]
  return Notes(
    image=write(notes.image, put, note.image),
    choice=write(notes.choice, put, note.choice),
    tried=write(write(notes.tried, above, 0), taken, tried + 1),
    best=write(
      write(notes.best, above, -1.0),
      taken,
      jnp.maximum(best, note.choice[:, 1]),
    ),
    rejected=write(notes.rejected, entry, gone),
    rejected_at=write(rejected_at, entry, note.depth),
    went_on=write(notes.went_on, entry, note.choice[:, 1]),
  )


def compute_discount(
  notes: Notes,
  depth: Int[Array, '*B'],
  *,
  num_images: int,
  inverse_temperature: Float[Array, ''],
  absence: Float[Array, ''],
) -> Float[Array, '*B N']:
  """Returns what the logits of images lose that were rejected here before.

  Such an image is worth what a chain through it is: log sigmoid of by how much
  that which went on from it exceeds absence. So a bad one does not return
  before a third had its turn. No gradient flows through it.

  Args:
    notes: of what happened before.
    depth: images on the stack.
    num_images: N, of the gallery.
    inverse_temperature: of the selection.
    absence: the cosine that stands for no image.

  Returns:
    What is added; 0 at images that were not tried here.
  """
  is_here = notes.rejected_at == depth[..., None]
  logits = inverse_temperature * (notes.went_on - absence)
  discount = jax.lax.stop_gradient(
    jnp.where(is_here, jax.nn.log_sigmoid(logits), 0.0)
  )
  budget = notes.rejected.shape[-1]
  rejected = notes.rejected.reshape(-1, budget)
  rows = jnp.arange(rejected.shape[0])[:, None]
  full = jnp.zeros((rejected.shape[0], num_images), discount.dtype)
  full = full.at[rows, rejected].add(discount.reshape(-1, budget))
  return full.reshape(*depth.shape, num_images)


def count_tried(notes: Notes, depth: Int[Array, '*B']) -> Int[Array, '*B']:
  """Returns how many images were tried in the topmost's place before it."""
  top = jnp.clip(depth - 1, 0, notes.tried.shape[-1] - 1)
  tried = jnp.take_along_axis(notes.tried, top[..., None], axis=-1)[..., 0]
  return jnp.where(depth > 0, tried, 0)


def _find_best(cosines: Float[Array, '*B N']) -> Float[Array, '*B K']:
  """Returns the best cosines, the first first; -1 where there are no more.

  Of a large gallery only the blocks with the greatest maxima are searched.
  """
  count = cosines.shape[-1]
  has_blocks = count >= _MIN_BLOCKS * _BLOCK
  size = -(-count // _BLOCK) * _BLOCK if has_blocks else EVIDENCE_IMAGES
  widths = [(0, 0)] * (cosines.ndim - 1) + [(0, max(size - count, 0))]
  cosines = jnp.pad(cosines, widths, constant_values=-1.0)
  if has_blocks:
    blocks = cosines.reshape(*cosines.shape[:-1], -1, _BLOCK)
    _, best = jax.lax.top_k(blocks.max(axis=-1), EVIDENCE_IMAGES)
    cosines = jnp.take_along_axis(blocks, best[..., None], axis=-2)
    cosines = cosines.reshape(*cosines.shape[:-2], -1)
  best, _ = jax.lax.top_k(cosines, EVIDENCE_IMAGES)
  # XLA would merge later slices into the search and sort everything.
  return jax.lax.optimization_barrier(best)


def compute_evidence(
  cosines: Float[Array, '*B N'],
  candidate_mask: Bool[Array, '*B N'],
  *,
  inverse_temperature: Float[Array, ''],
  depth: Int[Array, '*B'],
  decisions_left: Int[Array, '*B'],
  notes: Notes,
) -> Float[Array, '*B E']:
  """Says what a gate should know; no gradient flows through it.

  Args:
    cosines: of each state with the gallery.
    candidate_mask: what may be selected.
    inverse_temperature: of the selection.
    depth: images on the stack.
    decisions_left: of the budget.
    notes: of what happened before.

  Returns:
    The best cosines, their margins to the best, the entropy of the selection,
    the depth as a one-hot vector, the decisions left; of the topmost image its
    cosine when it was selected, its best rival's and their margin; how many
    images were rejected in its place, as a one-hot vector, the best that went
    on from them, by how much the best of now exceeds it, and whether nothing
    better was seen there; how many were rejected after it, likewise, and the
    best that went on from them.
  """
  cosines, notes = jax.lax.stop_gradient((cosines, notes))
  logits = jnp.where(
    candidate_mask,
    jax.lax.stop_gradient(inverse_temperature) * cosines,
    -jnp.inf,
  )
  known = jnp.where(candidate_mask, cosines, -1.0)
  best = _find_best(known)
  log_probs = jax.nn.log_softmax(logits, axis=-1)
  entropy = -jnp.sum(
    jnp.where(candidate_mask, jnp.exp(log_probs) * log_probs, 0.0), axis=-1
  )
  last = notes.tried.shape[-1] - 1
  has_top = (depth > 0)[..., None]

  def get(x: Array, place: Array) -> Array:
    return jnp.take_along_axis(x, place[..., None], axis=-1)

  top = jnp.clip(depth - 1, 0, last)
  choice = jnp.take_along_axis(notes.choice, top[..., None, None], axis=-2)
  choice = jnp.where(has_top, choice[..., 0, :], 0.0)
  beside = count_tried(notes, depth)[..., None]
  best_beside = get(notes.best, top)
  after = get(notes.tried, jnp.minimum(depth, last))
  best_after = get(notes.best, jnp.minimum(depth, last))

  def count(tried: Array) -> Array:
    return jax.nn.one_hot(jnp.minimum(tried[..., 0], MAX_TRIED), MAX_TRIED + 1)

  return jnp.concatenate(
    [
      best / _COSINE_UNIT,
      (best[..., :1] - best[..., 1:]) / _COSINE_UNIT,
      entropy[..., None],
      jax.nn.one_hot(jnp.minimum(depth, MAX_DEPTH - 1), MAX_DEPTH),
      decisions_left[..., None] / _DECISIONS_UNIT,
      choice / _COSINE_UNIT,
      (choice[..., :1] - choice[..., 1:]) / _COSINE_UNIT,
      count(beside),
      jnp.where(beside > 0, best_beside, 0.0) / _COSINE_UNIT,
      jnp.where(beside > 0, best[..., :1] - best_beside, 0.0) / _COSINE_UNIT,
      (beside > 0) & (best[..., :1] > best_beside - _SAME),
      count(after),
      jnp.where(after > 0, best_after, 0.0) / _COSINE_UNIT,
    ],
    axis=-1,
  )

"""Holds where rollouts stand: the stack and what was rejected.

DESIGN: the active chain is a stack; Select pushes, Backtrack pops, and what
was popped is rejected. All rows of a batch share one gallery of N images.

How long a rejection lasts is a setting, `rejection`:

  final      for the rest of the rollout
  branch     until an image below it is rejected too: it did not follow that
             one, but it may follow another
  selection  until the next selection: another image has its turn, and when
             that one leads no further either, the better of the two may return
"""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.env import action as action_lib
from vhop_jax.typing import Array, Bool, Int

PAD = -1  # In the stack: no image.
NOT_REJECTED = -1  # In `rejected_depth`.
_MISSING = -2  # In `rejected_depth`: padding of the gallery.

REJECTIONS = ('final', 'branch', 'selection')


@flax.struct.dataclass
class State:
  """Holds where each rollout stands.

  Attributes:
    query: gallery index of the query image.
    stack: the images selected and not backtracked, first the first; then PAD.
    depth: how many they are.
    rejected_depth: for each image that is rejected now how many images were
      below it on the stack when that happened; else NOT_REJECTED.
    decisions: how many were taken.
    stopped: whether the last of them was Stop.
  """

  query: Int[Array, 'B']
  stack: Int[Array, 'B T']
  depth: Int[Array, 'B']
  rejected_depth: Int[Array, 'B N']
  decisions: Int[Array, 'B']
  stopped: Bool[Array, 'B']

  @property
  def budget(self) -> int:
    """Returns how many decisions a rollout may take."""
    return self.stack.shape[1]

  @property
  def num_images(self) -> int:
    """Returns the size of the gallery."""
    return self.rejected_depth.shape[1]


def start(
  query: Int[Array | np.ndarray, 'B'],
  *,
  num_images: int,
  budget: int,
  gallery_mask: Bool[Array, 'N'] | None = None,
) -> State:
  """Returns the state before the first decision.

  Args:
    query: gallery index of each query image.
    num_images: N.
    budget: T, the decisions that a rollout may take.
    gallery_mask: False at padding; None without any.
  """
  query = jnp.asarray(query, jnp.int32)
  count = query.shape[0]
  zeros = jnp.zeros(count, jnp.int32)
  rejected = jnp.full((count, num_images), NOT_REJECTED, jnp.int32)
  if gallery_mask is not None:
    rejected = jnp.where(gallery_mask[None], rejected, _MISSING)
  return State(
    query=query,
    stack=jnp.full((count, budget), PAD, jnp.int32),
    depth=zeros,
    rejected_depth=rejected,
    decisions=zeros,
    stopped=jnp.zeros(count, bool),
  )


def is_done(state: State) -> Bool[Array, 'B']:
  """Tells which rollouts have stopped or spent their budget."""
  return state.stopped | (state.decisions >= state.budget)


def get_top(state: State) -> Int[Array, 'B']:
  """Returns the image on top of each stack, of an empty one the query image."""
  top = jnp.maximum(state.depth - 1, 0)
  image = jnp.take_along_axis(state.stack, top[:, None], axis=1)[:, 0]
  return jnp.where(state.depth > 0, image, state.query)


def make_candidate_mask(state: State) -> Bool[Array, 'B N']:
  """Says what may be selected: neither seen on the way nor rejected."""
  rows = jnp.arange(state.depth.shape[0])
  mask = state.rejected_depth == NOT_REJECTED
  mask = mask.at[rows, state.query].set(False)
  # PAD is out of bounds on purpose, not the last image.
  stack = jnp.where(state.stack == PAD, state.num_images, state.stack)
  return mask.at[rows[:, None], stack].set(False, mode='drop')


def make_legal_mask(
  state: State, *, stop_depth: Int[Array | np.ndarray, 'B'] | None = None
) -> Bool[Array, 'B A']:
  """Says which of the N + 2 actions are allowed.

  Backtrack and Stop need an image on the stack; nothing is allowed when a
  rollout is done.

  Args:
    state: where the rollouts stand.
    stop_depth: if given, the only depth at which Stop is allowed.
  """
  has_image = state.depth > 0
  may_stop = has_image
  if stop_depth is not None:
    may_stop &= state.depth == stop_depth
  legal = jnp.concatenate(
    [make_candidate_mask(state), has_image[:, None], may_stop[:, None]], axis=1
  )
  return legal & ~is_done(state)[:, None]


def step(state: State, action: Int[Array, 'B'], *, rejection: str) -> State:
  """Takes one decision; a rollout that is done stays as it is.

  Args:
    state: where the rollouts stand.
    action: a legal action of each row; of rows that are done, anything.
    rejection: one of `REJECTIONS`: how long a rejected image stays so.

  Raises:
    UsageError: `rejection` is none of its choices.
  """
  errors.check_choice('rejection', rejection, REJECTIONS)
  count = state.num_images
  rows = jnp.arange(action.shape[0])
  kind = action_lib.find_kind(action, count)
  active = ~is_done(state)
  selects = active & (kind == action_lib.SELECT)
  backtracks = active & (kind == action_lib.BACKTRACK)
  top = state.depth - 1

  def put(x: Array, where: Array, index: Array, value: Array | int) -> Array:
    # An index out of bounds writes nothing.
    index = jnp.where(where, index, x.shape[1])
    return x.at[rows, index].set(value, mode='drop')

  rejected = put(state.rejected_depth, backtracks, get_top(state), top)
  if rejection != 'final':
    ends = backtracks[:, None] & (rejected > top[:, None])
    if rejection == 'selection':
      ends |= selects[:, None] & (rejected >= 0)
    rejected = jnp.where(ends, NOT_REJECTED, rejected)
  stack = put(state.stack, selects, state.depth, action)
  stack = put(stack, backtracks, top, PAD)
  return dataclasses.replace(
    state,
    stack=stack,
    depth=state.depth + selects - backtracks,
    rejected_depth=rejected,
    decisions=state.decisions + active,
    stopped=state.stopped | (active & (kind == action_lib.STOP)),
  )


def flatten(states: State) -> State:
  """Joins the first two axes of replayed states: [B, T] becomes [B x T]."""
  flat: State = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)
  return flat


def replay(
  state: State, actions: Int[Array, 'B T'], *, rejection: str
) -> State:
  """Returns the states before each of the actions, along a second axis."""

  def body(state: State, action: Array) -> tuple[State, State]:
    return step(state, action, rejection=rejection), state

  _, states = jax.lax.scan(body, state, actions.T)
  swapped: State = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)
  return swapped

"""Labels any state with the best actions; it reads the gold chains."""

import flax
import jax.numpy as jnp

from vhop_jax.env import action as action_lib
from vhop_jax.env import state as state_lib
from vhop_jax.typing import Array, Bool, Int


@flax.struct.dataclass
class Chains:
  """Holds the valid chains of each query.

  Attributes:
    images: gallery indices in order, PAD after the last; `chains` is how many
      a query has at most, `hops` the longest chain's length.
    length: of each chain; 0 stands for none.
  """

  images: Int[Array, 'B chains hops']
  length: Int[Array, 'B chains']


@flax.struct.dataclass
class Label:
  """Holds what the expert would do.

  Attributes:
    kind: SELECT, BACKTRACK or STOP.
    select_mask: where `kind` is SELECT, the images it would take next.
    is_detour: whether all of those images are wrong: the right one was
      rejected, and returns when another has been.
    mask: whether the state has a label: not when the rollout is done, nor when
      no chain can be finished any more.
  """

  kind: Int[Array, 'B']
  select_mask: Bool[Array, 'B N']
  is_detour: Bool[Array, 'B']
  mask: Bool[Array, 'B']


def label(state: state_lib.State, chains: Chains, *, rejection: str) -> Label:
  """Labels states.

  Stop on a whole chain; else select any image that goes on with a chain which
  can still be finished; else backtrack, if that leads back to such a chain.
  Where rejections last for a selection, all chains can be finished; if the next
  image has just been rejected, any other will do.

  Args:
    state: where the rollouts stand.
    chains: the valid chains.
    rejection: as in `state.step`.
  """
  images, length = chains.images, chains.length
  hops = images.shape[2]
  place = jnp.arange(hops)[None, None]
  exists = place < length[:, :, None]
  # A stack may be longer than any chain, or its budget shorter.
  stack = jnp.pad(
    state.stack, ((0, 0), (0, hops)), constant_values=state_lib.PAD
  )[:, None]
  equal = exists & (images == stack[:, :, :hops])
  common = jnp.cumprod(equal, axis=2).sum(axis=2)
  depth = state.depth[:, None]

  # What is popped on the way back to the common part gets rejected: with
  # 'branch' only its lowest image stays so.
  safe_images = jnp.maximum(images, 0)
  rejected = jnp.take_along_axis(
    state.rejected_depth[:, None], safe_images, axis=2
  )
  slots = jnp.arange(stack.shape[2])[None, None, None]
  popped = (stack[:, :, None] == images[:, :, :, None]) & (
    slots >= common[:, :, None, None]
  )
  if rejection == 'selection':
    lost = jnp.zeros(rejected.shape, bool)
  elif rejection == 'branch':
    lowest = slots == common[:, :, None, None]
    lost = ((rejected >= 0) & (rejected <= common[:, :, None])) | (
      popped & lowest
    ).any(axis=3)
  else:
    lost = (rejected >= 0) | popped.any(axis=3)
  needed = exists & (place >= common[:, :, None])
  finishable = (length > 0) & ~(needed & lost).any(axis=2)

  complete = (length > 0) & (common == length) & (depth == length)
  goes_on = finishable & (common == depth) & (depth < length)
  following = jnp.take_along_axis(
    images, jnp.minimum(common, hops - 1)[:, :, None], axis=2
  )[:, :, 0]
  rows = jnp.arange(images.shape[0])[:, None]
  select_mask = jnp.zeros(state.rejected_depth.shape, bool)
  select_mask = select_mask.at[
    rows, jnp.where(goes_on, following, state.num_images)
  ].set(True, mode='drop')

  stops, selects = complete.any(axis=1), goes_on.any(axis=1)
  # A chain that goes on may lack its next image for now.
  candidates = state_lib.make_candidate_mask(state)
  select_mask &= candidates
  is_detour = selects & ~stops & ~select_mask.any(axis=1)
  select_mask = jnp.where(is_detour[:, None], candidates, select_mask)
  kind = jnp.where(
    stops,
    action_lib.STOP,
    jnp.where(selects, action_lib.SELECT, action_lib.BACKTRACK),
  )
  backtracks = finishable.any(axis=1) & (state.depth > 0)
  return Label(
    kind=kind,
    select_mask=select_mask & (kind == action_lib.SELECT)[:, None],
    is_detour=is_detour,
    mask=(stops | selects | backtracks) & ~state_lib.is_done(state),
  )

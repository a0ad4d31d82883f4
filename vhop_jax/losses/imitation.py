"""Objectives that follow the expert: which image, and when to turn or stop.

All of them look at whole demonstrations or rollouts, whose states are given by
replaying the actions.
"""

import flax
import jax
import jax.numpy as jnp
import optax

from vhop_jax.env import action as action_lib
from vhop_jax.env import expert as expert_lib
from vhop_jax.env import state as state_lib
from vhop_jax.losses import contrastive
from vhop_jax.typing import Array, Bool, Float, Int

# What becomes of images that fit a hop as well as the gold one.
EQUALS = ('negative', 'ignored', 'positive')


@flax.struct.dataclass
class Targets:
  """Holds what the expert says along each trajectory.

  Attributes:
    kind: SELECT, BACKTRACK or STOP.
    mask: whether a state has a label.
    positive_mask: where `kind` is SELECT, the images that are right; none on a
      detour, where any image is as good.
    competitor_mask: the images that the loss pushes away from there.
  """

  kind: Int[Array, 'B T']
  mask: Bool[Array, 'B T']
  positive_mask: Bool[Array, 'B T C']
  competitor_mask: Bool[Array, 'B T C']


def make_targets(
  states: state_lib.State,
  chains: expert_lib.Chains,
  equal_mask: Bool[Array, 'B hops C'],
  *,
  equals: str,
  rejection: str,
) -> Targets:
  """Labels the states of trajectories.

  Args:
    states: as `env.state.replay` gives, over C candidates.
    chains: the valid chains, as candidate indices.
    equal_mask: True at images that fit the hop as well as the gold one.
    equals: one of `EQUALS`: what `equal_mask` becomes.
    rejection: as in `env.state.step`.
  """
  b, t = states.depth.shape
  hops, count = equal_mask.shape[1:]
  flat = state_lib.flatten(states)
  repeated: expert_lib.Chains = jax.tree.map(
    lambda x: jnp.repeat(x, t, axis=0), chains
  )
  label = expert_lib.label(flat, repeated, rejection=rejection)
  candidates = state_lib.make_candidate_mask(flat)
  hop = jnp.minimum(states.depth, hops - 1)
  equal = jnp.take_along_axis(equal_mask, hop[:, :, None], axis=1)
  equal = equal.reshape(b * t, count) & candidates
  # With several chains an image may be the gold one of another.
  equal &= ~label.select_mask
  positives = label.select_mask & ~label.is_detour[:, None]
  competitors = candidates
  if equals == 'ignored':
    competitors &= ~equal
  elif equals == 'positive':
    is_select = (label.kind == action_lib.SELECT) & ~label.is_detour
    positives |= equal & is_select[:, None]
  return Targets(
    kind=label.kind.reshape(b, t),
    mask=label.mask.reshape(b, t),
    positive_mask=positives.reshape(b, t, count),
    competitor_mask=competitors.reshape(b, t, count),
  )


def find_selections(targets: Targets) -> Bool[Array, 'B T']:
  """Returns where some images are right and others are not."""
  is_select = targets.mask & (targets.kind == action_lib.SELECT)
  return is_select & targets.positive_mask.any(axis=2)


def _mean(values: Array, mask: Array) -> Float[Array, '']:
  """Returns the mean where the mask is True, 0 if that is nowhere."""
  return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(mask.sum(), 1)


def compute_select_loss(
  cosines: Float[Array, 'B T C'],
  scale: Float[Array, ''],
  targets: Targets,
  *,
  margin: float,
  absence: Float[Array, ''] | None = None,
) -> tuple[Float[Array, ''], Float[Array, ''], Float[Array, '']]:
  """Returns the InfoNCE of the states to select at, and of those to leave.

  With `absence` one more candidate competes everywhere: that no image goes on
  from here. It is the right one where the expert backtracks, so a cosine means
  the same at every state, and a dead end shows by what it leads to. It also is
  the right one at each state to select at, were the right images withdrawn.

  Args:
    cosines: of each state with the candidates.
    scale: inverse temperature.
    targets: the labels.
    margin: of the false-negative mask, see
      `contrastive.make_false_negative_mask`.
    absence: cosine of that candidate, or None.

  Returns:
    The mean over the states whose label is Select, that over the states whose
    label is Backtrack, and that over the former with the right images
    withdrawn; without `absence` 0 but for the first.
  """
  count = cosines.shape[2]
  flat = cosines.reshape(-1, count)
  positives = targets.positive_mask.reshape(-1, count)
  safe = contrastive.make_false_negative_mask(
    *jax.lax.stop_gradient((flat, positives)), margin=margin
  )
  competitors = targets.competitor_mask.reshape(-1, count)
  # The mask is of the expert's action: a mask of legal targets alone would
  # silently drop labels of other kinds.
  is_select = find_selections(targets).reshape(-1)
  if absence is None:
    losses = contrastive.info_nce(scale * flat, positives, competitors & safe)
    return _mean(losses, is_select), jnp.zeros(()), jnp.zeros(())
  is_left = (targets.mask & (targets.kind == action_lib.BACKTRACK)).reshape(-1)

  def add(x: Array, last: Array) -> Array:
    last = jnp.broadcast_to(last, is_left.shape)
    return jnp.concatenate([x, last[:, None]], axis=1)

  losses = contrastive.info_nce(
    scale * add(flat, absence),
    add(positives, is_left),
    # Without a positive nothing is safe, and where one leaves all compete.
    add(competitors & (safe | is_left[:, None]), jnp.asarray(True)),
  )
  withdrawn = contrastive.compute_withdrawn_loss(
    scale * flat, competitors & safe & ~positives, scale * absence
  )
  return (
    _mean(losses, is_select),
    _mean(losses, is_left),
    _mean(withdrawn, is_select),
  )


def compute_gate_loss(
  stop: Float[Array, 'B T'],
  backtrack: Float[Array, 'B T'],
  depth: Int[Array, 'B T'],
  tried: Int[Array, 'B T'],
  targets: Targets,
  *,
  leave_shares: tuple[float, float],
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Returns the gates' cross-entropies, with fixed shares of both sides.

  Fixed, because one wrong turn on a gold image makes many more labels of its
  kind. A gate has a label where it is legal, the backtrack gate only where the
  expert does not stop.

  Args:
    stop: logits.
    backtrack: logits.
    depth: images on the stack.
    tried: how many images were tried in the topmost's place before it.
    targets: the labels.
    leave_shares: weights of the states to backtrack from, in [0, 1], where
      nothing was tried before and where something was; the rest is that of the
      states to stay at. The stop gate's sides weigh alike.

  Returns:
    The sum of both gates' losses, and for each gate the share of open and of
    closed states that it gets right.
  """
  legal = targets.mask & (depth > 0)
  total = jnp.zeros(())
  named = {}
  for name, logits, kind, mask, parts in (
    ('stop', stop, action_lib.STOP, legal, [(legal, 0.5)]),
    (
      'back',
      backtrack,
      action_lib.BACKTRACK,
      legal & (targets.kind != action_lib.STOP),
      [(tried == 0, leave_shares[0]), (tried > 0, leave_shares[1])],
    ),
  ):
    is_open = targets.kind == kind
    losses = optax.sigmoid_binary_cross_entropy(logits, is_open)
    right = ((logits > 0) == is_open).astype(jnp.float32)
    for side, where in (('on', mask & is_open), ('off', mask & ~is_open)):
      named[f'{name}_{side}'] = _mean(right, where)
      for part, share in parts:
        weight = share if side == 'on' else 1 - share
        total += weight * _mean(losses, where & part) / len(parts)
  return total, named


def compute_recalls(
  cosines: Float[Array, 'B T C'],
  depth: Int[Array, 'B T'],
  targets: Targets,
  hops: int,
) -> dict[str, Float[Array, '']]:
  """Returns for each hop the share of states whose best candidate is right."""
  count = cosines.shape[2]
  scores = jnp.where(targets.competitor_mask, cosines, -jnp.inf)
  best = jnp.argmax(
    jnp.where(targets.positive_mask, cosines, scores).reshape(-1, count),
    axis=1,
  ).reshape(targets.kind.shape)
  hit = jnp.take_along_axis(targets.positive_mask, best[:, :, None], axis=2)
  is_select = find_selections(targets)
  return {
    f'hop{hop + 1}_r1': _mean(
      hit[:, :, 0].astype(jnp.float32), is_select & (depth == hop)
    )
    for hop in range(hops)
  }

"""Searches for the most probable chain instead of taking decisions one by one.

A hypothesis is a chain without Backtrack. Its score is the policy's own
log-probability; where the policy knows absence, an image is weighed against
that instead of against the other images (see `policy.compute_extension`). So a
dead end shows by the backtrack gate, and by that nothing follows.
"""

from typing import Any

import flax
import jax
import jax.numpy as jnp

from vhop_jax.env import action as action_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import state as state_lib
from vhop_jax.typing import Array, Float, Int

_IMPOSSIBLE = -1e30  # Finite: a difference of two must not be NaN.


@flax.struct.dataclass
class Beams:
  """Holds the chains found, the best first.

  Attributes:
    stack: images in order, then PAD; nothing but PAD where fewer were found.
    log_prob: of each chain, its Stop included.
    score: the select logit of each image, 0 at PAD.
  """

  stack: Int[Array, 'B K T']
  log_prob: Float[Array, 'B K']
  score: Float[Array, 'B K T']


def search(
  policy: policy_lib.Policy,
  context: Any,
  state: state_lib.State,
  *,
  width: int,
  stop_depth: Int[Array, 'B'] | None = None,
) -> Beams:
  """Searches over chains, breadth first; call it under `jit`.

  Args:
    policy: what gives the probabilities.
    context: of the policy, before the first decision.
    state: of the environment, before the first decision; its budget is the
      length of the longest chain, plus one for Stop.
    width: K, chains kept at each length, and returned.
    stop_depth: as in `state.make_legal_mask`.

  Returns:
    The `width` most probable of the chains that were stopped.
  """
  rows, count, budget = state.depth.shape[0], state.num_images, state.budget
  # The hypotheses of a row lie side by side.
  repeated = jnp.repeat(jnp.arange(rows), width)
  context = policy.take(context, repeated)
  state = jax.tree.map(lambda x: x[repeated], state)
  if stop_depth is not None:
    stop_depth = jnp.asarray(stop_depth)[repeated]
  alive = jnp.full((rows, width), _IMPOSSIBLE).at[:, 0].set(0.0)
  found = Beams(
    stack=jnp.full((rows, width, budget), state_lib.PAD),
    log_prob=jnp.full((rows, width), _IMPOSSIBLE),
    score=jnp.zeros((rows, width, budget)),
  )
  stack_scores = jnp.zeros((rows, width, budget))

  def extend(
    carry: tuple[Any, state_lib.State, Array, Array, Beams], t: Array
  ) -> tuple[tuple[Any, state_lib.State, Array, Array, Beams], None]:
    context, state, alive, stack_scores, found = carry
    legal = state_lib.make_legal_mask(state, stop_depth=stop_depth)
    scores = policy.score(context, state)
    stop = jnp.full(state.depth.shape, action_lib.make_stop(count))
    stops = policy_lib.compute_log_prob(scores, legal, stop)
    stops = jnp.maximum(stops, _IMPOSSIBLE).reshape(rows, width)
    found = _merge(
      found,
      Beams(
        stack=state.stack.reshape(rows, width, budget),
        log_prob=jnp.maximum(alive + stops, _IMPOSSIBLE),
        score=stack_scores,
      ),
    )
    longer = jnp.maximum(
      policy_lib.compute_extension(scores, legal), _IMPOSSIBLE
    )
    extended = alive[:, :, None] + longer.reshape(rows, width, count)
    alive, best = jax.lax.top_k(extended.reshape(rows, -1), width)
    alive = jnp.maximum(alive, _IMPOSSIBLE)
    parent, image = best // count, best % count
    index = (jnp.arange(rows)[:, None] * width + parent).reshape(-1)
    context = policy.take(context, index)
    state = jax.tree.map(lambda x: x[index], state)
    action = image.reshape(-1)
    taken = scores.select[index, action].reshape(rows, width)
    stack_scores = jnp.take_along_axis(stack_scores, parent[:, :, None], axis=1)
    stack_scores = stack_scores.at[:, :, t].set(taken)
    state = state_lib.step(state, action, rejection='final')
    context = policy.advance(context, action, state)
    return (context, state, alive, stack_scores, found), None

  carry = (context, state, alive, stack_scores, found)
  carry, _ = jax.lax.scan(extend, carry, jnp.arange(budget))
  return carry[-1]


def _merge(a: Beams, b: Beams) -> Beams:
  """Returns the best of two sets of chains, as many as each has."""
  joined: Beams = jax.tree.map(
    lambda x, y: jnp.concatenate([x, y], axis=1), a, b
  )
  log_prob, best = jax.lax.top_k(joined.log_prob, a.log_prob.shape[1])
  lost = (log_prob <= _IMPOSSIBLE / 2)[:, :, None]
  stack = jnp.take_along_axis(joined.stack, best[:, :, None], axis=1)
  score = jnp.take_along_axis(joined.score, best[:, :, None], axis=1)
  return Beams(
    stack=jnp.where(lost, state_lib.PAD, stack),
    log_prob=log_prob,
    score=jnp.where(lost, 0.0, score),
  )

"""Turns scores into decisions: probabilities, the greedy one, a sample.

DESIGN gives the three probabilities: a stop gate, then a backtrack gate, then
a softmax over the candidates,

    log pi(Stop)      = log p_stop
    log pi(Backtrack) = log(1 - p_stop) + log p_bt
    log pi(Select i)  = log(1 - p_stop) + log(1 - p_bt) + log pi_sel(i)
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import flax
import jax
import jax.numpy as jnp

from vhop_jax.env import action as action_lib
from vhop_jax.env import state as state_lib
from vhop_jax.typing import Array, Bool, Float, Int

_GATE_LOGIT = 0.0  # Greedy decoding takes a gate above p = 0.5.


@flax.struct.dataclass
class Scores:
  """Holds what a policy thinks of the next decision, nothing masked yet.

  Attributes:
    select: logits over the gallery.
    stop: logit of p_stop.
    backtrack: logit of p_bt.
    discount: what is added to the logits of images that were tried before; None
      of a policy that has no memory.
    absence: logit, beside those of the gallery, that no image goes on; None of
      a policy that knows none. Only what compares chains looks at it.
  """

  select: Float[Array, 'B N']
  stop: Float[Array, 'B']
  backtrack: Float[Array, 'B']
  discount: Float[Array, 'B N'] | None = None
  absence: Float[Array, 'B'] | None = None

  @property
  def logits(self) -> Float[Array, 'B N']:
    """Returns the logits over the gallery by which an image is selected."""
    return self.select if self.discount is None else self.select + self.discount


@dataclasses.dataclass(frozen=True)
class Policy:
  """Holds the functions of a policy, which carries a context of its own.

  Attributes:
    score: (context, state) -> `Scores`.
    advance: (context, action [B], state after it) -> context.
    take: (context, rows [P]) -> the context of these rows, which may repeat.
  """

  score: Callable[[Any, state_lib.State], Scores]
  advance: Callable[[Any, Array, state_lib.State], Any]
  take: Callable[[Any, Array], Any]


def compute_log_probs(
  scores: Scores,
  legal: Bool[Array, 'B A'],
  *,
  temperature: float = 1.0,
  gate_complements: bool = True,
) -> Float[Array, 'B A']:
  """Returns log pi of all N + 2 actions, -inf where illegal.

  Args:
    scores: of the policy.
    legal: what is allowed; a gate that is not allowed is closed.
    temperature: what all logits are divided by.
    gate_complements: whether the terms log(1 - p) count. Without them the
      result is no distribution: [VHOP, table 9] has policy-gradient terms
      that keep only the last summand of each line.
  """
  scores = jax.tree.map(lambda x: x / temperature, scores)
  select = jax.nn.log_softmax(_mask_logits(scores, legal), axis=1)
  kinds = _compute_kinds(scores, legal, gate_complements)
  log_probs = jnp.concatenate([select + kinds[:, :1], kinds[:, 1:]], axis=1)
  return jnp.where(legal, log_probs, -jnp.inf)


def compute_log_prob(
  scores: Scores,
  legal: Bool[Array, 'B A'],
  action: Int[Array, 'B'],
  *,
  temperature: float = 1.0,
  gate_complements: bool = True,
) -> Float[Array, 'B']:
  """Returns log pi of one action, without an array of all; -inf if illegal.

  Args:
    scores: as of `compute_log_probs`, like all but the action.
    legal: what is allowed.
    action: of each row.
    temperature: what all logits are divided by.
    gate_complements: whether the terms log(1 - p) count.
  """
  scores = jax.tree.map(lambda x: x / temperature, scores)
  count = scores.select.shape[1]
  logits = _mask_logits(scores, legal)
  image = jnp.minimum(action, count - 1)[:, None]
  select = jnp.take_along_axis(logits, image, axis=1)[:, 0]
  select -= jax.nn.logsumexp(logits, axis=1)
  kind = action_lib.find_kind(action, count)
  kinds = _compute_kinds(scores, legal, gate_complements)
  log_prob = jnp.take_along_axis(kinds, kind[:, None], axis=1)[:, 0]
  log_prob += jnp.where(kind == action_lib.SELECT, select, 0.0)
  is_legal = jnp.take_along_axis(legal, action[:, None], axis=1)[:, 0]
  return jnp.where(is_legal, log_prob, -jnp.inf)


def _mask_logits(
  scores: Scores, legal: Bool[Array, 'B A']
) -> Float[Array, 'B N']:
  """Returns the logits, -inf where illegal; zeros where nothing is legal."""
  allowed = legal[:, : scores.select.shape[1]]
  # A softmax of nothing but -inf would be NaN.
  hidden = jnp.where(allowed.any(axis=1, keepdims=True), -jnp.inf, 0.0)
  return jnp.where(allowed, scores.logits, hidden)


def _compute_kinds(
  scores: Scores, legal: Bool[Array, 'B A'], complements: bool
) -> Float[Array, 'B 3']:
  """Returns what the gates give to log pi of each kind of action."""
  stop = jax.nn.log_sigmoid(scores.stop)
  backtrack = jax.nn.log_sigmoid(scores.backtrack)
  keeps = jnp.zeros_like(stop)
  if complements:
    goes_on = _compute_goes_on(scores, legal)
    backtrack += goes_on
    keeps = goes_on + jnp.where(
      legal[:, -2], jax.nn.log_sigmoid(-scores.backtrack), 0.0
    )
  return jnp.stack([keeps, backtrack, stop], axis=1)


def compute_extension(
  scores: Scores, legal: Bool[Array, 'B A']
) -> Float[Array, 'B N']:
  """Returns how well each image extends a chain, for chains to be compared.

  It is log pi(Select i), but where absence is known the softmax over the images
  gives way to log sigmoid(s_i - absence): that image i goes on, rather than
  none. For also a dead end has a best image, which wins its own softmax however
  badly it fits. The backtrack gate does not count then: it judges by the same
  cosines, and knows that it may come back, which a chain that is compared with
  others does not.

  Returns:
    -inf at images that are not legal.
  """
  count = scores.select.shape[1]
  if scores.absence is None:
    return compute_log_probs(scores, legal)[:, :count]
  odds = jax.nn.log_sigmoid(scores.select - scores.absence[:, None])
  goes_on = _compute_goes_on(scores, legal)
  return jnp.where(legal[:, :count], odds + goes_on[:, None], -jnp.inf)


def _compute_goes_on(
  scores: Scores, legal: Bool[Array, 'B A']
) -> Float[Array, 'B']:
  """Returns the log-probability that the stop gate is not taken."""
  return jnp.where(legal[:, -1], jax.nn.log_sigmoid(-scores.stop), 0.0)


def choose_greedily(
  scores: Scores, legal: Bool[Array, 'B A']
) -> Int[Array, 'B']:
  """Stops if p_stop > 0.5, else backtracks if p_bt > 0.5, else selects.

  Rows that may do nothing get some action, which changes nothing.
  """
  count = scores.select.shape[1]
  may_backtrack, may_stop = legal[:, count], legal[:, count + 1]
  select = jnp.where(legal[:, :count], scores.logits, -jnp.inf)
  return jnp.where(
    may_stop & (scores.stop > _GATE_LOGIT),
    action_lib.make_stop(count),
    jnp.where(
      may_backtrack & (scores.backtrack > _GATE_LOGIT),
      action_lib.make_backtrack(count),
      jnp.argmax(select, axis=1),
    ),
  )


def sample(
  rng: Array,
  scores: Scores,
  legal: Bool[Array, 'B A'],
  *,
  temperature: float = 1.0,
) -> Int[Array, 'B']:
  """Samples from pi, its logits divided by the temperature."""
  log_probs = compute_log_probs(scores, legal, temperature=temperature)
  # The Gumbel trick, which gives rows without a distribution some action.
  noise = jax.random.gumbel(rng, log_probs.shape)
  return jnp.argmax(log_probs + noise, axis=1)

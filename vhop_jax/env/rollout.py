"""Rolls a policy out over a gallery in one `lax.scan`."""

from collections.abc import Callable
import functools
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import state as state_lib
from vhop_jax.typing import Array, Bool, Float, Int

# (rng, scores, legal mask, state) -> action [B].
Choose = Callable[[Array, policy_lib.Scores, Array, state_lib.State], Array]


@flax.struct.dataclass
class Rollout:
  """Holds what a batch of rollouts did.

  Attributes:
    action: taken at each decision; without meaning where `mask` is False.
    mask: whether the rollout was still going on.
    log_prob: log pi of the action; 0 where `mask` is False.
    score: the select logit of the image; without meaning at a gate's action.
    stop: p_stop at each decision, 0 where Stop was illegal.
    backtrack: p_bt likewise.
    state: where the rollouts ended.
  """

  action: Int[Array, 'B T']
  mask: Bool[Array, 'B T']
  log_prob: Float[Array, 'B T']
  score: Float[Array, 'B T']
  stop: Float[Array, 'B T']
  backtrack: Float[Array, 'B T']
  state: state_lib.State


def choose_greedily(
  rng: Array,
  scores: policy_lib.Scores,
  legal: Bool[Array, 'B A'],
  state: state_lib.State,
) -> Int[Array, 'B']:
  """Decides greedily, with gates."""
  del rng, state
  return policy_lib.choose_greedily(scores, legal)


def choose_selects(
  rng: Array,
  scores: policy_lib.Scores,
  legal: Bool[Array, 'B A'],
  state: state_lib.State,
) -> Int[Array, 'B']:
  """Selects the best candidate and never backtracks or stops."""
  del rng, state
  count = scores.select.shape[1]
  select = jnp.where(legal[:, :count], scores.logits, -jnp.inf)
  return jnp.argmax(select, axis=1)


@functools.cache  # Equal settings give one function, which `jit` knows again.
def make_sampler(temperature: float = 1.0) -> Choose:
  """Returns a `Choose` that samples."""

  def choose(
    rng: Array,
    scores: policy_lib.Scores,
    legal: Bool[Array, 'B A'],
    state: state_lib.State,
  ) -> Int[Array, 'B']:
    del state
    return policy_lib.sample(rng, scores, legal, temperature=temperature)

  return choose


def roll_out(
  policy: policy_lib.Policy,
  context: Any,
  state: state_lib.State,
  *,
  choose: Choose,
  rng: Array,
  rejection: str,
  stop_depth: Int[Array | np.ndarray, 'B'] | None = None,
  length: int | None = None,
  temperature: float = 1.0,
  gate_complements: bool = True,
) -> Rollout:
  """Takes decisions until the budget is spent; call it under `jit`.

  Args:
    policy: what decides.
    context: of the policy, before the first decision.
    state: of the environment, before the first decision.
    choose: turns scores into an action.
    rng: for `choose`.
    rejection: as in `state.step`.
    stop_depth: as in `state.make_legal_mask`.
    length: T, decisions after which it is cut short; None is the budget.
    temperature: as in `policy.compute_log_probs`, of what is returned.
    gate_complements: likewise.

  Raises:
    UsageError: the candidates could run out before the budget does.
  """
  count = state.num_images
  if state.budget >= count:
    raise errors.UsageError(
      f'{state.budget} decisions are too many for a gallery of {count} images:'
      ' take fewer, or a larger world'
    )

  def decide(
    carry: tuple[Any, state_lib.State], rng: Array
  ) -> tuple[tuple[Any, state_lib.State], dict[str, Array]]:
    context, state = carry
    legal = state_lib.make_legal_mask(state, stop_depth=stop_depth)
    scores = policy.score(context, state)
    action = choose(rng, scores, legal, state)
    mask = ~state_lib.is_done(state)
    log_prob = policy_lib.compute_log_prob(
      scores,
      legal,
      action,
      temperature=temperature,
      gate_complements=gate_complements,
    )
    image = jnp.minimum(action, count - 1)[:, None]
    outputs = {
      'action': action,
      'mask': mask,
      'log_prob': jnp.where(mask, log_prob, 0.0),
      'score': jnp.take_along_axis(scores.select, image, axis=1)[:, 0],
      'stop': jnp.where(legal[:, count + 1], jax.nn.sigmoid(scores.stop), 0.0),
      'backtrack': jnp.where(
        legal[:, count], jax.nn.sigmoid(scores.backtrack), 0.0
      ),
    }
    state = state_lib.step(state, action, rejection=rejection)
    return (policy.advance(context, action, state), state), outputs

  (_, state), outputs = jax.lax.scan(
    decide, (context, state), jax.random.split(rng, length or state.budget)
  )
  return Rollout(**{k: x.T for k, x in outputs.items()}, state=state)

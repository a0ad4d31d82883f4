"""Scores whole trajectories by one parallel pass; makes the loss of imitation.

Fine-tuning, imitation and reinforcement all look at a trajectory so: its
states are given by replaying the actions, and what the router thinks at each
of them by `encode`.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import flax
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.env import action as action_lib
from vhop_jax.env import expert as expert_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import router_policy
from vhop_jax.env import state as state_lib
from vhop_jax.losses import imitation
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import pretrained
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Bool, Float, Int, Params

_DROPOUT = 2**31 - 1  # Folded into a key, for what adapters drop.


@flax.struct.dataclass
class Encoded:
  """Holds what a router thinks along trajectories.

  Attributes:
    states: of the environment before each decision, over C candidates.
    cosines: of each state with the candidates.
    scale: inverse temperature.
    discount: what is added to the logits of images that were tried before.
    tried: images tried in the topmost's place before it.
    stop: logits of p_stop.
    backtrack: logits of p_bt.
  """

  states: state_lib.State
  cosines: Float[Array, 'B T C']
  scale: Float[Array, '']
  discount: Float[Array, 'B T C']
  tried: Int[Array, 'B T']
  stop: Float[Array, 'B T']
  backtrack: Float[Array, 'B T']


def embed_candidates(
  model: pretrained.RouterModel,
  params: Params,
  visual: Float[Array, 'C M packed'],
  *,
  rng: Array | None = None,
) -> Float[Array, 'C D']:
  """Embeds the candidates of a batch by the gallery side.

  Args:
    model: the router.
    params: its parameters.
    visual: visual tokens of the candidates.
    rng: of the adapters' dropout; None drops nothing.
  """
  documents = embedder_lib.repeat_rows(
    model.embedder.maker.documents(1), visual.shape[0]
  )
  embedded: Array = model.module.apply(
    router_lib.make_variables(params),
    documents,
    visual,
    method='embed_gallery',
    rngs=_make_rngs(rng),
  )
  return embedded


def _make_rngs(rng: Array | None) -> dict[str, Array] | None:
  """Returns what `apply` drops inputs of adapters by; the noise has `rng`."""
  if rng is None:
    return None
  # No number that `split` gives: what is drawn elsewhere stays as it was.
  return {'dropout': jax.random.fold_in(rng, _DROPOUT)}


def start_states(batch: Mapping[str, Any], *, budget: int) -> state_lib.State:
  """Returns the states before the first decision of a batch, [B] or [R].

  Args:
    batch: as `encode` reads it.
    budget: of the rollouts.
  """
  query = jnp.asarray(batch['query_candidate'])
  if 'row' in batch:
    query = query[batch['row']]
  return state_lib.start(
    query,
    num_images=len(batch['candidate_mask']),
    budget=budget,
    gallery_mask=jnp.asarray(batch['candidate_mask']),
  )


def replay(
  batch: Mapping[str, Any], *, budget: int, rejection: str
) -> state_lib.State:
  """Returns the states before each action of a batch, [B, T].

  Args:
    batch: with `action`.
    budget: of the rollouts; the actions may be fewer.
    rejection: as in `env.state.step`.
  """
  return state_lib.replay(
    start_states(batch, budget=budget),
    jnp.asarray(batch['action']),
    rejection=rejection,
  )


def roll_out(
  model: pretrained.RouterModel,
  params: Params,
  batch: Mapping[str, Any],
  *,
  budget: int,
  **settings: Any,
) -> rollout_lib.Rollout:
  """Rolls a router out over the candidates of a batch.

  Args:
    model: the router.
    params: its parameters.
    batch: as `encode` reads it; no action is needed.
    budget: decisions of a rollout.
    **settings: of `rollout.roll_out`.

  Returns:
    The rollouts; their actions are Stop after the end.
  """
  segment = model.embedder.maker.segment()
  visual = jnp.asarray(batch['candidate_visual'])
  context = router_policy.start(
    model.module,
    params,
    sequence_lib.from_batch('prefix', batch),
    segment,
    jnp.asarray(batch['query_visual']),
    budget=budget,
  )
  if 'row' in batch:
    context = router_policy.take_context(context, batch['row'])
  gallery = embed_candidates(model, params, visual)
  made = rollout_lib.roll_out(
    router_policy.make_policy(model.module, params, segment, visual, gallery),
    context,
    start_states(batch, budget=budget),
    **settings,
  )
  stop = action_lib.make_stop(visual.shape[0])
  return dataclasses.replace(
    made, action=jnp.where(made.mask, made.action, stop)
  )


def encode(
  model: pretrained.RouterModel,
  params: Params,
  batch: Mapping[str, Any],
  gallery: Float[Array, 'C D'],
  *,
  budget: int,
  rejection: str,
  noise: float = 0.0,
  rng: Array | None = None,
) -> Encoded:
  """Scores each decision of a batch of trajectories.

  Args:
    model: the router.
    params: its parameters.
    batch: as `routes.make_batches` gives; only what was decided is read of it.
      With `row` int [R] there are R trajectories, each of that query.
    gallery: embeddings of the candidates.
    budget: decisions of a rollout, of which the gates are told the rest.
    rejection: as in `env.state.step`.
    noise: standard deviation of what is added to the visual tokens that the
      states read.
    rng: of the noise and of the adapters' dropout; None only without any.
  """
  apply = lambda *args, **kwargs: model.module.apply(  # noqa: E731
    router_lib.make_variables(params), *args, **kwargs
  )
  states = replay(batch, budget=budget, rejection=rejection)
  b, t = batch['action'].shape
  flat = state_lib.flatten(states)
  top = state_lib.get_top(flat).reshape(b, t)
  # What is seen after each decision; what comes after the last is not needed.
  query_visual = jnp.asarray(batch['query_visual'])
  top_visual = jnp.asarray(batch['candidate_visual'])[jnp.roll(top, -1, 1)]
  if rng is not None:
    rng_query, rng_top = jax.random.split(rng)
    query_visual = add_noise(query_visual, noise, rng_query)
    top_visual = add_noise(top_visual, noise, rng_top)
  hidden = apply(
    sequence_lib.from_batch('prefix', batch),
    model.embedder.maker.segment(),
    query_visual,
    states.depth[:, 1:],
    top_visual[:, :-1],
    rows=batch.get('row'),
    method='encode_states',
    rngs=_make_rngs(rng),
  )
  queries, scale = apply(hidden, method='make_queries')
  cosines = jnp.einsum('btd,cd->btc', queries, gallery)
  candidates = state_lib.make_candidate_mask(flat).reshape(cosines.shape)
  notes = _take_notes(states, jnp.asarray(batch['action']), cosines, candidates)
  evidence = evidence_lib.compute_evidence(
    cosines,
    candidates,
    inverse_temperature=scale,
    depth=states.depth,
    decisions_left=budget - states.decisions,
    notes=notes,
  )
  stop, backtrack = apply(hidden, evidence, method='compute_gates')
  return Encoded(
    states=states,
    cosines=cosines,
    scale=scale,
    discount=evidence_lib.compute_discount(
      notes,
      states.depth,
      num_images=cosines.shape[2],
      inverse_temperature=scale,
      absence=apply(method='get_absence'),
    ),
    tried=evidence_lib.count_tried(notes, states.depth),
    stop=stop,
    backtrack=backtrack,
  )


def _take_notes(
  states: state_lib.State,
  action: Int[Array, 'B T'],
  cosines: Float[Array, 'B T C'],
  candidates: Bool[Array, 'B T C'],
) -> evidence_lib.Notes:
  """Returns the notes before each decision, [B, T, ...]."""
  count = cosines.shape[2]
  # After the last decision nothing is asked any more.
  note = evidence_lib.make_note(
    cosines,
    jnp.roll(candidates, -1, axis=1),
    jnp.minimum(action, count - 1),
    depth=jnp.roll(states.depth, -1, axis=1),
    is_select=action_lib.find_kind(action, count) == action_lib.SELECT,
  )

  def body(
    notes: evidence_lib.Notes, note: evidence_lib.Note
  ) -> tuple[evidence_lib.Notes, evidence_lib.Notes]:
    return evidence_lib.take_note(notes, note), notes

  swap = lambda tree: jax.tree.map(  # noqa: E731
    lambda x: jnp.swapaxes(x, 0, 1), tree
  )
  first = evidence_lib.start_notes(action.shape[0], states.budget)
  _, notes = jax.lax.scan(body, first, swap(note))
  swapped: evidence_lib.Notes = swap(notes)
  return swapped


def add_noise(visual: Array, noise: float, rng: Array) -> Array:
  """Returns visual tokens with Gaussian noise of that standard deviation."""
  return visual + noise * jax.random.normal(rng, visual.shape)


def get_chains(batch: Mapping[str, Any]) -> expert_lib.Chains:
  """Returns the valid chains of a batch, as candidate indices."""
  return expert_lib.Chains(
    images=jnp.asarray(batch['chains']), length=jnp.asarray(batch['lengths'])
  )


def make_loss(
  model: pretrained.RouterModel,
  *,
  equals: str,
  noise: float,
  false_negative_margin: float,
  gate_weight: float,
  leave_shares: tuple[float, float],
  absence_weight: float,
  withdrawn_weight: float,
  rejection: str,
  budget: int,
) -> Any:
  """Makes the loss that follows the expert, decision by decision.

  Args:
    model: the router; its parameters are the loss's argument.
    equals: one of `imitation.EQUALS`.
    noise: standard deviation of what is added to the visual tokens.
    false_negative_margin: see `contrastive.make_false_negative_mask`.
    gate_weight: of the gates' loss beside that of the selection.
    leave_shares: see `imitation.compute_gate_loss`.
    absence_weight: of the loss of states that nothing goes on from.
    withdrawn_weight: of the loss of states that nothing would go on from
      without the right images.
    rejection: as in `env.state.step`.
    budget: decisions of a rollout.

  Returns:
    A `Stage.loss` for batches of `routes.make_batches`.

  Raises:
    UsageError: `equals` is none of its choices.
  """
  errors.check_choice('loss.equals', equals, imitation.EQUALS)

  def loss(
    params: Params, batch: Mapping[str, Any], rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del step
    rng_states, rng_gallery = jax.random.split(rng)
    visual = jnp.asarray(batch['candidate_visual'])
    gallery = embed_candidates(
      model, params, add_noise(visual, noise, rng_gallery), rng=rng_gallery
    )
    encoded = encode(
      model,
      params,
      batch,
      gallery,
      budget=budget,
      rejection=rejection,
      noise=noise,
      rng=rng_states,
    )
    targets = imitation.make_targets(
      encoded.states,
      get_chains(batch),
      jnp.asarray(batch['equal_mask']),
      equals=equals,
      rejection=rejection,
    )
    absence = None
    if absence_weight or withdrawn_weight:
      absence = model.module.apply(
        router_lib.make_variables(params), method='get_absence'
      )
    total, absence_loss, withdrawn_loss = imitation.compute_select_loss(
      encoded.cosines,
      encoded.scale,
      targets,
      margin=false_negative_margin,
      absence=absence,
    )
    depth = encoded.states.depth
    named = imitation.compute_recalls(
      encoded.cosines, depth, targets, batch['chains'].shape[2]
    )
    named['select'] = total
    if absence is not None:
      named |= {'absence': absence_loss, 'withdrawn': withdrawn_loss}
      total += absence_weight * absence_loss
      total += withdrawn_weight * withdrawn_loss
    if not gate_weight:
      return total, named
    gate_loss, shares = imitation.compute_gate_loss(
      encoded.stop,
      encoded.backtrack,
      depth,
      encoded.tried,
      targets,
      leave_shares=leave_shares,
    )
    named |= {'gate': gate_loss, **shares}
    return total + gate_weight * gate_loss, named

  return loss

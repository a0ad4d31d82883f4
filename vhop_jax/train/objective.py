"""Makes the loss that fine-tuning and imitation share."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from vhop_jax.env import action as action_lib
from vhop_jax.losses import imitation
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import pretrained
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Float, Params


def make_loss(
  model: pretrained.RouterModel,
  *,
  equals: str,
  noise: float,
  false_negative_margin: float,
  gate_weight: float,
  forgets: bool,
  budget: int,
) -> Any:
  """Makes the loss of whole trajectories, decision by decision.

  Args:
    model: the router; its parameters are the loss's argument.
    equals: one of `imitation.EQUALS`.
    noise: standard deviation of what is added to the visual tokens.
    false_negative_margin: see `contrastive.make_false_negative_mask`.
    gate_weight: of the gates' loss beside that of the selection.
    forgets: as in `env.state.step`.
    budget: decisions of a rollout, of which the gates are told the rest.

  Returns:
    A `Stage.loss` for batches of `routes.make_batches`.
  """
  module, maker = model.module, model.embedder.maker
  decisions = maker.decisions()
  document = maker.documents(1)

  def loss(
    params: Params, batch: Mapping[str, Any], rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del step
    action, count = batch['action'], len(batch['candidate_mask'])
    clean = batch['candidate_visual']
    visuals = [
      x + noise * jax.random.normal(key, x.shape)
      for key, x in zip(
        jax.random.split(rng, 3),
        (batch['query_visual'], clean[jnp.minimum(action, count - 1)], clean),
        strict=True,
      )
    ]
    query_visual, selected_visual, candidate_visual = visuals
    apply = lambda *args, method: module.apply(  # noqa: E731
      {'params': params}, *args, method=method
    )
    documents = embedder_lib.repeat_rows(document, count)
    gallery = apply(documents, candidate_visual, method='embed_gallery')
    states = apply(
      sequence_lib.from_batch('prefix', batch),
      decisions,
      query_visual,
      # The state after the last decision is not needed.
      action_lib.find_kind(action[:, :-1], count),
      selected_visual[:, :-1],
      method='encode_states',
    )
    queries, scale = apply(states, method='make_queries')
    cosines = jnp.einsum('btd,cd->btc', queries, gallery)
    targets = imitation.make_targets(
      batch['chain'],
      batch['query_candidate'],
      batch['equal_mask'],
      batch['candidate_mask'],
      action,
      equals=equals,
      forgets=forgets,
    )
    total = imitation.compute_select_loss(
      cosines, scale, targets, margin=false_negative_margin
    )
    named = imitation.compute_recalls(cosines, targets, batch['chain'].shape[1])
    if not gate_weight:
      return total, named
    evidence = router_lib.compute_evidence(
      cosines,
      targets.candidate_mask,
      inverse_temperature=scale,
      depth=targets.depth,
      decisions_left=jnp.broadcast_to(
        budget - jnp.arange(action.shape[1]), action.shape
      ),
    )
    stop, backtrack = apply(states, evidence, method='compute_gates')
    gate_loss, shares = imitation.compute_gate_loss(stop, backtrack, targets)
    named |= {'select': total, 'gate': gate_loss, **shares}
    return total + gate_weight * gate_loss, named

  return loss

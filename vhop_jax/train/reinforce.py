"""Stage 3: reinforcement learning from a verifiable reward, without chains."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from vhop_jax import errors
from vhop_jax.env import action as action_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import state as state_lib
from vhop_jax.losses import advantage as advantage_lib
from vhop_jax.losses import policy_gradient
from vhop_jax.models import pretrained
from vhop_jax.train import objective, online, router_run
from vhop_jax.train import state as train_state_lib
from vhop_jax.typing import Array, Float, Int, Params

# What the rollouts of a batch did, all of them; part of each log line.
STATISTICS = (
  'reward',
  'rollout_success',
  'rollout_decisions',
  'rollout_backtracks',
  'rollout_stop_rate',
  'rollout_out_of_budget',
  'degenerate',
)


def take_queries(
  batch: train_state_lib.Batch, queries: Int[Array, 'Q']
) -> dict[str, Any]:
  """Returns a batch that asks some of its queries.

  Args:
    batch: as `routes.make_batches` gives.
    queries: which.

  Returns:
    All that `objective.encode` reads but the trajectories.
  """
  taken = {
    name: jnp.asarray(value)[queries]
    for name, value in batch.items()
    if name.startswith('prefix/') or name in ('query_candidate', 'query_visual')
  }
  return {
    **taken,
    'candidate_mask': batch['candidate_mask'],
    'candidate_visual': batch['candidate_visual'],
  }


def compute_log_probs(
  model: pretrained.RouterModel,
  params: Params,
  batch: train_state_lib.Batch,
  *,
  budget: int,
  rejection: str,
  temperature: float,
  gate_complements: bool,
) -> Float[Array, 'R T']:
  """Returns the log-probability of each action by one parallel pass.

  Args:
    model: the router.
    params: its parameters.
    batch: of `take_queries`, with `action` and `row`.
    budget: decisions of a rollout.
    rejection: as in `env.state.step`.
    temperature: as in `policy.compute_log_probs`.
    gate_complements: likewise.
  """
  gallery = objective.embed_candidates(
    model, params, jnp.asarray(batch['candidate_visual'])
  )
  encoded = objective.encode(
    model, params, batch, gallery, budget=budget, rejection=rejection
  )
  flat = state_lib.flatten(encoded.states)
  count = gallery.shape[0]
  action = jnp.asarray(batch['action'])
  log_prob = policy_lib.compute_log_prob(
    policy_lib.Scores(
      select=encoded.scale * encoded.cosines.reshape(-1, count),
      stop=encoded.stop.reshape(-1),
      backtrack=encoded.backtrack.reshape(-1),
      discount=encoded.discount.reshape(-1, count),
    ),
    state_lib.make_legal_mask(flat),
    action.reshape(-1),
    temperature=temperature,
    gate_complements=gate_complements,
  )
  return log_prob.reshape(action.shape)


def make_collect(
  model: pretrained.RouterModel,
  *,
  budget: int,
  rejection: str,
  temperature: float,
  gate_complements: bool,
  queries: int,
  rollouts: int,
  groups: int,
  decision_penalty: float,
  eps: float,
  normalize: bool,
  mask_failed: bool,
  reference: Params | None,
) -> online.Collect:
  """Makes the function that rolls a policy out and rewards what it reaches.

  More queries are rolled out than are kept: first come groups in which some
  rollouts succeed, then such as differ in reward only. So degenerate groups,
  which teach nothing, are replaced by others as far as there are any, and the
  rest is masked.

  Args:
    model: the router.
    budget: T, decisions.
    rejection: as in `env.state.step`.
    temperature: as in `policy.compute_log_probs`.
    gate_complements: likewise.
    queries: of a batch that are rolled out; the others lend their families.
    rollouts: G, of each query.
    groups: queries that are kept.
    decision_penalty: lambda, what a decision costs.
    eps: see `advantage.compute_group_advantage`.
    normalize: likewise.
    mask_failed: likewise.
    reference: parameters of the policy to stay close to, or None.

  Returns:
    A `Collect` whose arrays are, for R = groups x rollouts: kept int [groups],
    the queries; row int [R], which of them a rollout belongs to; action int
    [R, T]; old_log_prob and, with a
    reference, reference_log_prob float [R, T]; decision_mask bool [R, T];
    advantage float [R]; and each of `STATISTICS`, a scalar.
  """

  def collect(
    params: Params, batch: train_state_lib.Batch, rng: Array
  ) -> dict[str, Array]:
    count = len(batch['candidate_mask'])
    repeated = jnp.repeat(jnp.arange(queries), rollouts)
    made = objective.roll_out(
      model,
      params,
      {**take_queries(batch, jnp.arange(queries)), 'row': repeated},
      budget=budget,
      choose=rollout_lib.make_sampler(temperature),
      rng=rng,
      rejection=rejection,
      temperature=temperature,
      gate_complements=gate_complements,
    )
    answers = jnp.asarray(batch['answers'])[repeated]
    is_answer = (answers == state_lib.get_top(made.state)[:, None]).any(axis=1)
    success = made.state.stopped & is_answer
    decisions = made.mask.sum(axis=1)
    reward = advantage_lib.compute_reward(
      success, decisions, decision_penalty=decision_penalty
    )
    group = (queries, rollouts)
    gain, is_degenerate = advantage_lib.compute_group_advantage(
      reward.reshape(group),
      success.reshape(group),
      eps=eps,
      normalize=normalize,
      mask_failed=mask_failed,
    )
    some, every = (
      f(success.reshape(group), axis=1) for f in (jnp.any, jnp.all)
    )
    worth = 2 * (some & ~every) + ~is_degenerate
    kept = jnp.argsort(-worth, stable=True)[:groups]
    rows = kept[:, None] * rollouts + jnp.arange(rollouts)[None]
    rows = rows.reshape(-1)
    counts = ~is_degenerate[kept]
    kinds = action_lib.find_kind(made.action, count)
    backtracks = made.mask & (kinds == action_lib.BACKTRACK)
    arrays = {
      'kept': kept,
      'row': jnp.repeat(jnp.arange(groups), rollouts),
      'action': made.action[rows],
      'old_log_prob': made.log_prob[rows],
      'decision_mask': made.mask[rows] & jnp.repeat(counts, rollouts)[:, None],
      'advantage': gain[kept].reshape(-1),
      'reward': reward.mean(),
      'rollout_success': success.mean(),
      'rollout_decisions': decisions.mean(),
      'rollout_backtracks': backtracks.sum(axis=1).mean(),
      'rollout_stop_rate': made.state.stopped.mean(),
      'rollout_out_of_budget': 1 - made.state.stopped.mean(),
      'degenerate': is_degenerate.mean(),
    }
    if reference is not None:
      arrays['reference_log_prob'] = compute_log_probs(
        model,
        reference,
        {**take_queries(batch, kept), **arrays},
        budget=budget,
        rejection=rejection,
        temperature=temperature,
        gate_complements=gate_complements,
      )
    return arrays

  compiled: online.Collect = jax.jit(collect)
  return compiled


def make_loss(
  model: pretrained.RouterModel,
  *,
  budget: int,
  rejection: str,
  temperature: float,
  gate_complements: bool,
  clip_low: float,
  clip_high: float,
  aggregation: str,
  ratio: str,
  kl_weight: float,
) -> Any:
  """Makes the policy-gradient loss of collected rollouts.

  Args:
    model: the router; its parameters are the loss's argument.
    budget: decisions of a rollout.
    rejection: as in `env.state.step`.
    temperature: as in `policy.compute_log_probs`.
    gate_complements: likewise.
    clip_low: see `policy_gradient.compute_policy_loss`.
    clip_high: likewise.
    aggregation: likewise.
    ratio: likewise.
    kl_weight: of the KL to the reference policy; 0 needs none.

  Returns:
    A `Stage.loss` for what `make_collect` adds to a batch.
  """

  def loss(
    params: Params, batch: train_state_lib.Batch, rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del rng, step
    log_probs = compute_log_probs(
      model,
      params,
      {
        **take_queries(batch, batch['kept']),
        'row': batch['row'],
        'action': batch['action'],
      },
      budget=budget,
      rejection=rejection,
      temperature=temperature,
      gate_complements=gate_complements,
    )
    mask = batch['decision_mask']
    total, named = policy_gradient.compute_policy_loss(
      log_probs,
      batch['old_log_prob'],
      batch['advantage'],
      mask,
      clip_low=clip_low,
      clip_high=clip_high,
      aggregation=aggregation,
      ratio=ratio,
    )
    if kl_weight:
      named['kl'] = policy_gradient.compute_kl(
        log_probs, batch['reference_log_prob'], mask
      )
      total += kl_weight * named['kl']
    return total, {**{name: batch[name] for name in STATISTICS}, **named}

  return loss


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains and writes `workdir/router.safetensors`.

  Raises:
    UsageError: a setting is out of range, or the router has no gates.
  """
  sizes = (1, config.collect.groups, config.collect.queries)
  if sorted((*sizes, config.data.batch_size))[:3] != list(sizes):
    raise errors.UsageError(
      f'collect.groups={config.collect.groups} and collect.queries='
      f'{config.collect.queries}: choose 1 <= groups <= queries <='
      f' data.batch_size={config.data.batch_size}'
    )
  if config.collect.rollouts < 2:
    raise errors.UsageError(
      f'collect.rollouts={config.collect.rollouts}: a rollout is compared with'
      ' others of its query, so take at least 2'
    )
  embedder = router_run.load_embedder(config)
  model = pretrained.load_router(config.router, embedder, needs_gates=True)
  training = router_run.open_run(config, workdir, model)
  shared = {
    'budget': config.budget,
    'rejection': config.rejection,
    **config.policy,
  }
  training.train_online(
    'reinforce',
    make_collect(
      model,
      reference=model.params if config.loss.kl_weight else None,
      **shared,
      **config.collect,
    ),
    loss=make_loss(model, **shared, **config.loss),
    capacity=1,
    collect_every=config.collect_every,
  )

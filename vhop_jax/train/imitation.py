"""Stage 2: online imitation; the expert labels every state that is visited."""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import ml_collections

from vhop_jax import errors
from vhop_jax.env import action as action_lib
from vhop_jax.env import expert as expert_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import state as state_lib
from vhop_jax.models import pretrained
from vhop_jax.train import objective, online, router_run
from vhop_jax.train import state as train_state_lib
from vhop_jax.typing import Array, Bool, Int, Params


def make_collect(
  model: pretrained.RouterModel,
  *,
  budget: int,
  rejection: str,
  temperature: float,
  expert_fracs: Sequence[float],
  demonstration_frac: float,
) -> online.Collect:
  """Makes the function that rolls a policy out on a batch of queries.

  Each rollout follows the expert in a share of its decisions, drawn once for
  the rollout: without that, a policy that cannot stop yet sees few states worth
  a label.

  Args:
    model: the router.
    budget: decisions; a rollout is cut after those of a demonstration.
    rejection: as in `env.state.step`.
    temperature: at which the policy is sampled.
    expert_fracs: the shares, one of which is drawn.
    demonstration_frac: share of rows that keep their demonstration.
  """

  def collect(
    params: Params, batch: train_state_lib.Batch, rng: Array
  ) -> dict[str, Int[Array, 'B T']]:
    rng_rollout, rng_frac, rng_keep = jax.random.split(rng, 3)
    count, rows = len(batch['candidate_mask']), batch['action'].shape[0]
    chains = objective.get_chains(batch)
    expert_frac = jax.random.choice(
      rng_frac, jnp.asarray(expert_fracs), (rows,)
    )

    def choose(
      rng: Array,
      scores: policy_lib.Scores,
      legal: Bool[Array, 'B A'],
      state: state_lib.State,
    ) -> Int[Array, 'B']:
      rng_policy, rng_expert = jax.random.split(rng)
      sampled = policy_lib.sample(
        rng_policy, scores, legal, temperature=temperature
      )
      label = expert_lib.label(state, chains, rejection=rejection)
      best = jnp.argmax(
        jnp.where(label.select_mask, scores.logits, -jnp.inf), axis=1
      )
      followed = jnp.where(
        label.kind == action_lib.SELECT,
        best,
        jnp.where(
          label.kind == action_lib.STOP,
          action_lib.make_stop(count),
          action_lib.make_backtrack(count),
        ),
      )
      follows = jax.random.uniform(rng_expert, (rows,)) < expert_frac
      return jnp.where(follows & label.mask, followed, sampled)

    made = objective.roll_out(
      model,
      params,
      batch,
      budget=budget,
      choose=choose,
      rng=rng_rollout,
      rejection=rejection,
      length=batch['action'].shape[1],
    )
    keeps = jax.random.uniform(rng_keep, (rows, 1)) < demonstration_frac
    return {'action': jnp.where(keeps, batch['action'], made.action)}

  compiled: online.Collect = jax.jit(collect)
  return compiled


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains and writes `workdir/router.safetensors`."""
  if config.data.decisions > config.budget:
    raise errors.UsageError(
      f'data.decisions={config.data.decisions} is more than budget='
      f'{config.budget}: lower it'
    )
  embedder = router_run.load_embedder(config)
  model = dataclasses.replace(
    pretrained.load_router(config.router, embedder), has_gates=True
  )
  training = router_run.open_run(config, workdir, model)
  training.train_online(
    'imitation',
    make_collect(
      model,
      budget=config.budget,
      rejection=config.rejection,
      **config.collect,
    ),
    loss=training.make_imitation_loss(),
    **config.replay,
  )

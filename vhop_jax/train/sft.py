"""Stage 1: supervised fine-tuning on gold chains, selection only."""

from collections.abc import Callable, Mapping
import glob
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from vhop_jax import errors
from vhop_jax.data import routes as routes_lib
from vhop_jax.evaluate import routing
from vhop_jax.losses import contrastive
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import pretrained
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.train import loop
from vhop_jax.train import state as state_lib
from vhop_jax.typing import Array, Bool, Float, Int, Params, typed

RESULT_FILE = 'router.safetensors'
# What happens in the loss to images that fit a hop as well as the gold one.
NEGATIVE, IGNORED, POSITIVE = 'negative', 'ignored', 'positive'
_PHASES = ('warmup', 'joint')


@typed
def make_targets(
  chain: Int[Array, 'B T'],
  query_candidate: Int[Array, 'B'],
  equal_mask: Bool[Array, 'B T C'],
  candidate_mask: Bool[Array, 'C'],
  *,
  equals: str,
) -> tuple[Bool[Array, 'B T C'], Bool[Array, 'B T C']]:
  """Says at each decision what is right and what competes.

  Args:
    chain: candidate index of the gold image of each hop.
    query_candidate: candidate index of the query image.
    equal_mask: True at images that fit the hop as well as the gold one.
    candidate_mask: True at candidates that are no padding.
    equals: 'negative', 'ignored' or 'positive': what `equal_mask` becomes.

  Returns:
    Masks of the positives and of the competitors: all candidates but the
    query image and the gold images of earlier hops.
  """
  hops, count = equal_mask.shape[1:]
  gold = jax.nn.one_hot(chain, count, dtype=bool)
  seen = jnp.cumsum(gold, axis=1) - gold > 0
  query = jax.nn.one_hot(query_candidate, count, dtype=bool)
  competitors = candidate_mask[None, None] & ~seen & ~query[:, None]
  positives = gold
  if equals == IGNORED:
    competitors &= ~equal_mask
  elif equals == POSITIVE:
    positives = gold | equal_mask
  return positives, competitors


def _make_loss(
  model: pretrained.RouterModel,
  *,
  equals: str,
  noise: float,
  false_negative_margin: float,
) -> Any:
  """Makes the InfoNCE loss of whole chains."""
  module, maker = model.module, model.embedder.maker
  segment = maker.segments(1)
  document = maker.documents(1)

  def loss(
    params: Params, batch: Mapping[str, Any], rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del step
    visuals = [
      batch[name]
      for name in ('query_visual', 'selected_visual', 'candidate_visual')
    ]
    visuals = [
      x + noise * jax.random.normal(key, x.shape)
      for key, x in zip(jax.random.split(rng, 3), visuals, strict=True)
    ]
    query_visual, selected_visual, candidate_visual = visuals
    apply = lambda *args, method: module.apply(  # noqa: E731
      {'params': params}, *args, method=method
    )
    count = candidate_visual.shape[0]
    documents = embedder_lib.repeat_rows(document, count)
    gallery = apply(documents, candidate_visual, method='embed_gallery')
    states = apply(
      sequence_lib.from_batch('prefix', batch),
      segment,
      query_visual,
      selected_visual[:, :-1],
      method='encode_states',
    )
    queries, scale = apply(states, method='make_queries')
    cosines = jnp.einsum('btd,cd->btc', queries, gallery)
    positives, competitors = make_targets(
      batch['chain'],
      batch['query_candidate'],
      batch['equal_mask'],
      batch['candidate_mask'],
      equals=equals,
    )
    b, t, c = cosines.shape
    flat = (cosines.reshape(-1, c), positives.reshape(-1, c))
    safe = contrastive.make_false_negative_mask(
      *jax.lax.stop_gradient(flat), margin=false_negative_margin
    )
    competitors = competitors.reshape(-1, c)
    losses = contrastive.info_nce(scale * flat[0], flat[1], competitors & safe)
    recalls = {
      f'hop{hop + 1}_r1': contrastive.compute_recall(
        cosines[:, hop],
        positives[:, hop],
        competitors.reshape(b, t, c)[:, hop],
      )
      for hop in range(t)
    }
    return losses.mean(), recalls

  return loss


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains and writes `workdir/router.safetensors`."""
  if config.loss.equals not in (NEGATIVE, IGNORED, POSITIVE):
    raise errors.UsageError(
      f'loss.equals={config.loss.equals!r}: choose {NEGATIVE}, {IGNORED} or'
      f' {POSITIVE}'
    )
  folder = pathlib.Path(workdir)
  embedder = pretrained.load_embedder(config.embedder)
  model = pretrained.make_router(
    embedder, inverse_temperature=1 / config.loss.temperature
  )
  worlds = sorted(glob.glob(config.worlds))
  if not worlds:
    raise errors.DataError(
      f'no world matches worlds={config.worlds}: build some, or change it'
    )
  dev = routing.load_gallery_source(config.dev, embedder)
  for other in worlds:
    routing.check_other_world(other, config.dev)
  routes = routes_lib.load_routes(worlds, embedder, cache=folder / 'visual')

  def evaluate(params: Params) -> dict[str, float]:
    return routing.measure(
      model.replace_params(params), dev, steps=config.evaluate_decisions
    )

  settings = {
    **config.to_dict(),
    'embedder': embedder.fingerprint,
    'worlds': worlds,
  }
  params = model.params
  for phase in _PHASES:
    if config[f'{phase}_steps']:
      params = _train_phase(
        phase, config, settings, folder, params, model, routes, evaluate
      )
  path = folder / RESULT_FILE
  pretrained.save_router(
    path, model.replace_params(params), training=config.to_dict()
  )
  print(f'wrote the router to {path}')


def _train_phase(
  phase: str,
  config: ml_collections.ConfigDict,
  settings: Mapping[str, Any],
  folder: pathlib.Path,
  params: Params,
  model: pretrained.RouterModel,
  routes: routes_lib.RouteSet,
  evaluate: Callable[[Params], dict[str, float]],
) -> Params:
  """Trains one phase, from `params` on; returns what it ends with."""
  frozen = 'gallery' if phase == 'warmup' else None
  steps = config[f'{phase}_steps']
  print(f'{phase}: {steps} updates, frozen: {frozen}', flush=True)
  trained = loop.train_phase(
    phase,
    state_lib.Stage(
      init=state_lib.start_from(params),
      loss=_make_loss(model, **_loss_settings(config)),
      batches=routes_lib.make_batches(
        routes, model.embedder.maker, seed=config.seed, **config.data
      ),
      evaluate=evaluate,
      trainable=lambda path: path[0] != frozen,
    ),
    config=config,
    settings=settings,
    folder=folder,
  )
  return jax.device_get(trained)


def _loss_settings(config: ml_collections.ConfigDict) -> dict[str, Any]:
  settings: dict[str, Any] = config.loss.to_dict()
  del settings['temperature']
  return settings

"""Stage 0: makes the standard embedding model by contrast.

First the vision tower alone, then the text encoder on the frozen tower, then
both. Trained together from the start, the text encoder did not learn left from
right: it needs tokens that hold still.
"""

from collections.abc import Mapping
import functools
import json
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from vhop_jax import errors
from vhop_jax.data import pairs
from vhop_jax.evaluate import hops
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.losses import contrastive
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import parameter_file, pretrained
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.train import loop
from vhop_jax.train import state as state_lib
from vhop_jax.typing import Array, Float, Int, Params, typed
from vhop_jax.worlds import render
from vhop_jax.worlds import world as world_lib

RESULT_FILE = 'embedder.safetensors'
TOKENS_PER_IMAGE = 2  # Token m learns to show object m.
TOWER, TEXT, JOINT = 'tower', 'text', 'joint'
_PHASES = (TOWER, TEXT, JOINT)
_MAX_LOG_SCALE = 4.6  # ln 100, CLIP's bound on the inverse temperature.


class PretrainHeads(nn.Module):
  """What pretraining adds to the tower's tokens and drops afterwards."""

  label_counts: tuple[int, ...]
  features: int
  temperature: float

  def setup(self) -> None:
    """Declares the heads and the learned scales."""
    self.object_projection = nn.Dense(self.features)
    self.attributes = [nn.Dense(count) for count in self.label_counts]
    start = nn.initializers.constant(-jnp.log(self.temperature))
    self.object_scale = self.param('object_scale', start, (), jnp.float32)
    self.query_scale = self.param('query_scale', start, (), jnp.float32)
    self.absence = router_lib.AbsenceHead()

  def __call__(
    self, visual: Float[Array, 'N M D']
  ) -> tuple[
    Float[Array, 'N M F'], list[Float[Array, 'N M K']], Array, Array, Array
  ]:
    """Returns object embeddings, label logits, scales and absence.

    The scales are the inverse temperatures of objects and of queries; absence
    is a cosine.
    """
    scales = jnp.exp(
      jnp.minimum(
        jnp.stack([self.object_scale, self.query_scale]), _MAX_LOG_SCALE
      )
    )
    return (
      embedder_lib.normalize(self.object_projection(visual)),
      [head(visual) for head in self.attributes],
      scales[0],
      scales[1],
      self.absence(),
    )


@typed
def compute_object_loss(
  embeddings: Float[Array, 'N M F'],
  objects: Int[Array, 'N M'],
  scale: Float[Array, ''],
) -> tuple[Float[Array, ''], Float[Array, '']]:
  """Contrasts the pictured objects of a batch: same thing, other view.

  Args:
    embeddings: one a visual token, normalised; token m shows object m.
    objects: which object each token shows.
    scale: inverse temperature.

  Returns:
    The mean loss, and the share of tokens whose nearest token in another
    image shows the same object.
  """
  count, per_image = objects.shape
  flat = embeddings.reshape(count * per_image, -1)
  labels = objects.reshape(-1)
  images = jnp.repeat(jnp.arange(count), per_image)
  other_image = images[:, None] != images[None, :]
  same = labels[:, None] == labels[None, :]
  scores = scale * (flat @ flat.T)
  loss = contrastive.info_nce(scores, same & other_image, ~same).mean()
  recall = contrastive.compute_recall(scores, same & other_image, other_image)
  return loss, recall


def _check_tower(tower: Mapping[str, Any], resolution: int) -> None:
  """Refuses a vision tower that cannot learn from the pictures."""
  if tower['num_tokens'] != TOKENS_PER_IMAGE:
    raise errors.UsageError(
      f'model.tower.num_tokens={tower["num_tokens"]}: pretraining needs'
      f' {TOKENS_PER_IMAGE}, one for each pictured object'
    )
  size = render.size_from_resolution(resolution)
  if (tower['width_px'], tower['height_px']) != size:
    raise errors.UsageError(
      f'data.resolution={resolution} makes pictures of {size[0]} x {size[1]},'
      f' model.tower reads {tower["width_px"]} x {tower["height_px"]}: change'
      ' one of them'
    )


def _make_loss(
  phase: str,
  module: embedder_lib.Embedder,
  heads: PretrainHeads,
  maker: sequence_lib.SequenceMaker,
  weights: ml_collections.ConfigDict,
) -> Any:
  """Makes the loss of a phase: of objects, of texts, or of both."""

  def loss(
    params: Params, batch: Mapping[str, Any], rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del rng, step
    apply = lambda *args, method: module.apply(  # noqa: E731
      {'params': params['embedder']}, *args, method=method
    )
    visual = apply(batch['pixels'], method='encode_images')
    objects, logits, object_scale, query_scale, absence = heads.apply(
      {'params': params['heads']}, visual
    )
    total = jnp.zeros(())
    named: dict[str, Array] = {}
    if phase != TEXT:
      object_loss, object_r1 = compute_object_loss(
        objects, batch['object'], object_scale
      )
      attribute_loss = sum(
        (
          contrastive.cross_entropy(
            head.reshape(-1, head.shape[-1]), labels.reshape(-1)
          ).mean()
          for head, labels in zip(
            logits, jnp.moveaxis(batch['attributes'], -1, 0), strict=True
          )
        ),
        start=jnp.zeros(()),
      )
      total += weights.object_weight * object_loss
      total += weights.attribute_weight * attribute_loss
      named |= {
        'object': object_loss,
        'attribute': attribute_loss,
        'object_r1': object_r1,
      }
    if phase == TOWER:
      return total, named
    count = visual.shape[0]
    documents = embedder_lib.repeat_rows(maker.documents(1), count)
    gallery = apply(documents, visual, method='embed')
    source = batch['query_source']
    queries = apply(
      sequence_lib.from_batch('query', batch), visual[source], method='embed'
    )
    candidates = jnp.arange(count)[None] != source[:, None]
    scores = query_scale * (queries @ gallery.T)
    positives = batch['query_positive']
    query_loss = contrastive.info_nce(scores, positives, candidates).mean()
    total += weights.query_weight * query_loss
    named |= {
      'query': query_loss,
      'query_r1': contrastive.compute_recall(scores, positives, candidates),
    }
    if weights.absence_weight:
      named['absence'] = contrastive.compute_absence_loss(
        scores, positives, candidates, query_scale * absence
      ).mean()
      total += weights.absence_weight * named['absence']
    if phase == TEXT:
      return total, named
    captions = apply(
      sequence_lib.from_batch('caption', batch), None, method='embed'
    )
    positives = batch['caption_positive']
    caption_loss = contrastive.info_nce(
      query_scale * (captions @ gallery.T), positives, jnp.ones_like(positives)
    ).mean()
    total += weights.caption_weight * caption_loss
    return total, named | {'caption': caption_loss}

  return loss


def _is_trained(phase: str, path: tuple[str, ...]) -> bool:
  """Tells whether a phase trains a parameter; the heads always are."""
  return path[0] == 'heads' or phase in (JOINT, path[1])


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains and writes `workdir/embedder.safetensors`.

  Raises:
    UsageError: the model does not fit the data.
  """
  settings = config.model.to_dict()
  _check_tower(settings['tower'], config.data.resolution)
  module = pretrained.make_module(settings)
  maker = pretrained.make_maker(settings)
  heads = PretrainHeads(
    label_counts=pairs.count_labels(),
    features=settings['decoder']['hidden_size'],
    temperature=config.loss.temperature,
  )

  start = None
  if config.embedder:
    start = pretrained.load_embedder(config.embedder)
    # As the file holds them: JSON has no tuples.
    if start.settings != json.loads(json.dumps(settings)):
      raise errors.UsageError(
        f'embedder={config.embedder} holds another model than config.model'
        ' describes: change one of them'
      )

  def init(rng: Array) -> Params:
    rng_embedder, rng_heads = jax.random.split(rng)
    tower = settings['tower']
    visual = jnp.zeros((1, tower['num_tokens'], tower['output_size']))
    return {
      'embedder': pretrained.init_params(settings, rng_embedder)
      if start is None
      else start.params,
      'heads': heads.init(rng_heads, visual)['params'],
    }

  evaluate = None
  if config.world:
    world = world_lib.load_world(config.world)
    pixels = world_lib.read_pixels(config.world)

    def evaluate(params: Params) -> dict[str, float]:  # noqa: F811
      model = pretrained.make_pretrained(settings, params['embedder'])
      gallery = gallery_lib.make_gallery(model, world, pixels)
      return hops.compute_told_recall(model, gallery, seed=config.seed)

  folder = pathlib.Path(workdir)
  params: Params | None = None
  for number, phase in enumerate(_PHASES):
    if not config[f'{phase}_steps']:
      continue
    print(f'{phase}: {config[f"{phase}_steps"]} updates', flush=True)
    # Each phase has objects of its own.
    seed = config.seed * len(_PHASES) + number
    batches = pairs.PairBatches(
      pairs.PairSpec(seed=seed, **config.data), maker, workers=config.workers
    )
    try:
      params = loop.train_phase(
        phase,
        state_lib.Stage(
          init=init if params is None else state_lib.start_from(params),
          loss=_make_loss(phase, module, heads, maker, config.loss),
          batches=batches,
          # Without texts there is nothing to ask.
          evaluate=None if phase == TOWER else evaluate,
          trainable=functools.partial(_is_trained, phase),
        ),
        config=config,
        settings=config.to_dict(),
        folder=folder,
      )
    finally:
      batches.close()
  if params is None:
    raise errors.UsageError('every phase has 0 steps: there is nothing to do')
  path = folder / RESULT_FILE
  parameter_file.save_params(
    path,
    jax.device_get(params['embedder']),
    {'model': settings, 'training': config.to_dict()},
  )
  print(f'wrote the embedding model to {path}')

"""Trains an embedding model on the user's pairs, by adapters or in full.

The batch is encoded in chunks whose activations are not kept, so that its size
is not bounded by them. The vision tower stays as it is.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from vhop_jax import errors
from vhop_jax.data import embedding_pairs, item_rows
from vhop_jax.losses import contrastive
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import encoder as encoder_lib
from vhop_jax.models import hf_config, parameter_file, peft_format, pretrained
from vhop_jax.models import lora as lora_lib
from vhop_jax.train import gradient_cache, loop, sharding
from vhop_jax.train import state as state_lib
from vhop_jax.typing import Array, Float, Params, ndarray

ADAPTER_FOLDER = 'adapter'
RESULT_FILE = 'embedder.safetensors'
SIDES = ('query', 'document')
_RANKS = (1, 10)


@dataclasses.dataclass(frozen=True)
class _Model:
  """Holds what is trained.

  Attributes:
    module: the Linen module, with adapters if there are any.
    params: its parameters at the start.
    rows: lay out the items of each side.
    lora: of the adapters, None for a training of the whole text encoder.
    folder: the Hugging Face folder, None for a model of the kind `tiny`.
    settings: the `model` section of a model of the kind `tiny`.
    fingerprint: of the model that training starts from.
  """

  module: embedder_lib.Embedder
  params: Params
  rows: Mapping[str, item_rows.Rows]
  lora: lora_lib.LoraConfig | None
  folder: pathlib.Path | None
  settings: Mapping[str, Any]
  fingerprint: str

  def is_trained(self, path: tuple[str, ...]) -> bool:
    """Tells by its path whether a parameter is trained."""
    if self.lora is not None:
      return lora_lib.is_adapter(path)
    return path[0] == 'text'


def _open_model(
  config: ml_collections.ConfigDict, has_pictures: Mapping[str, bool]
) -> _Model:
  """Loads the model and adds its adapters.

  Raises:
    UsageError: a setting does not fit the model.
  """
  lora = _make_lora(config.lora)
  mesh = sharding.make_mesh(**config.mesh.to_dict())
  rows: dict[str, item_rows.Rows]
  if pathlib.Path(config.embedder).is_dir():
    if lora is None:
      raise errors.UsageError(
        'lora.rank=0: a Hugging Face folder is trained by adapters alone; set'
        ' the rank, e.g. to 32'
      )
    encoder = encoder_lib.load_encoder(
      config.embedder,
      max_tokens=config.data.max_tokens,
      max_pixels=config.data.max_pixels,
      place=functools.partial(sharding.place_boxed, mesh=mesh),
      **config.backbone,
    )
    rows = {
      side: item_rows.FolderRows(encoder, has_pictures[side]) for side in SIDES
    }
    module, params = encoder.module, encoder.params
    folder, settings = pathlib.Path(config.embedder), {}
    fingerprint = encoder.fingerprint
  else:
    model = pretrained.load_embedder(config.embedder)
    rows = {
      side: item_rows.TinyRows(
        model, config.data.max_tokens, has_pictures[side]
      )
      for side in SIDES
    }
    module, params = model.module, model.params
    folder, settings = None, model.settings
    fingerprint = model.fingerprint
  if lora is not None:
    decoder = dataclasses.replace(module.config.decoder, lora=lora)
    module = embedder_lib.Embedder(
      dataclasses.replace(module.config, decoder=decoder)
    )
    rng = jax.random.key(config.seed)
    adapters = lora_lib.init(params['text'], lora, rng)
    params = {**params, 'text': lora_lib.join(params['text'], adapters)}
  return _Model(module, params, rows, lora, folder, settings, fingerprint)


def _make_lora(
  config: ml_collections.ConfigDict,
) -> lora_lib.LoraConfig | None:
  if not config.rank:
    return None
  return lora_lib.LoraConfig(
    **{**config.to_dict(), 'modules': tuple(config.modules)}
  )


def _make_loss(
  model: _Model, *, chunk: int, temperature: float, **settings: Any
) -> Any:
  """Makes a `Stage.loss`.

  Args:
    model: what is trained.
    chunk: rows whose activations are in memory at a time.
    temperature: scores are cosines divided by it.
    **settings: see `contrastive.compute_embedding_loss`.
  """
  for name in ('widths', 'width_weights'):
    settings[name] = tuple(settings[name])

  def loss(
    params: Params, batch: Mapping[str, Any], rng: Array, step: Array
  ) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
    del step
    has_dropout = model.lora is not None and model.lora.dropout > 0
    rngs = jax.random.split(rng, len(SIDES))
    embedded = {
      side: gradient_cache.encode_in_chunks(
        functools.partial(model.rows[side].embed, model.module),
        params,
        _take_side(batch, side),
        chunk=chunk,
        rng=side_rng if has_dropout else None,
      )
      for side, side_rng in zip(SIDES, rngs, strict=True)
    }
    queries, documents = (embedded[side] for side in SIDES)
    value = contrastive.compute_embedding_loss(
      queries,
      documents,
      inverse_temperature=1 / temperature,
      candidate_mask=batch['candidate_mask'],
      **settings,
    )
    positives = jax.numpy.eye(len(queries), len(documents), dtype=bool)
    recall = contrastive.compute_recall(
      queries @ documents.T, positives, batch['candidate_mask'] | positives
    )
    return value, {'batch_r1': recall}

  return loss


def _take_side(batch: Mapping[str, Any], side: str) -> dict[str, Any]:
  prefix = f'{side}/'
  return {
    name.removeprefix(prefix): x
    for name, x in batch.items()
    if name.startswith(prefix)
  }


def _make_evaluate(
  model: _Model, pairs: Sequence[embedding_pairs.Pair], *, chunk: int
) -> Any:
  """Makes a `Stage.evaluate`: recall among all documents of the file.

  Args:
    model: what is trained.
    pairs: of the file.
    chunk: items that are read at once.
  """
  answers = embedding_pairs.find_answers(pairs)
  contents = {
    'query': list(answers),
    'document': list(
      dict.fromkeys(
        content
        for pair in pairs
        for content in (pair.positive, *pair.negatives)
      )
    ),
  }
  positives = ~embedding_pairs.make_candidate_mask(
    contents['query'], contents['document'], answers
  )
  runs = {
    side: jax.jit(
      lambda params, arrays, rows=model.rows[side]: rows.embed(
        model.module, params, arrays, None
      )
    )
    for side in SIDES
  }

  def embed(side: str, params: Params) -> ndarray:
    rows, parts = model.rows[side], []
    for start in range(0, len(contents[side]), chunk):
      some = contents[side][start : start + chunk]
      prepared = [rows.prepare(content) for content in some]
      # The last one is filled up, so that there is one program.
      prepared += prepared[:1] * (chunk - len(some))
      embedded = runs[side](params, rows.stack(prepared))
      parts.append(np.asarray(embedded, np.float32)[: len(some)])
    return np.concatenate(parts)

  def evaluate(params: Params) -> dict[str, float]:
    queries, documents = (embed(side, params) for side in SIDES)
    order = np.argsort(-(queries @ documents.T), axis=1, kind='stable')
    hit = np.take_along_axis(positives, order, axis=1)
    return {f'r{k}': float(hit[:, :k].any(axis=1).mean()) for k in _RANKS}

  return evaluate


def _save(
  model: _Model,
  params: Params,
  folder: pathlib.Path,
  training: Mapping[str, Any],
) -> None:
  """Writes the adapters of a folder, or a model of the kind `tiny` whole."""
  params = jax.device_get(params)
  if model.folder is not None:
    assert model.lora is not None
    _, adapters = lora_lib.split(params['text']['decoder'])
    kinds = hf_config.read(model.folder).get('architectures') or ['']
    path = peft_format.save_adapters(
      folder / ADAPTER_FOLDER,
      adapters,
      model.lora,
      base=str(model.folder),
      with_head=kinds[0].endswith('ForConditionalGeneration'),
    )
    print(f'wrote the adapters to {path}')
    return
  if model.lora is not None:
    text = lora_lib.merge(params['text'], model.lora)
    params = {**params, 'text': jax.device_get(text)}
  path = folder / RESULT_FILE
  parameter_file.save_params(
    path, params, {'model': model.settings, 'training': training}
  )
  print(f'wrote the embedding model to {path}')


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains, and writes `workdir/adapter` or `workdir/embedder.safetensors`.

  Raises:
    UsageError: settings do not fit the model, the data or each other.
    DataError: the model or a file of pairs is missing or damaged.
  """
  pairs = embedding_pairs.read_pairs(config.pairs)
  dev = embedding_pairs.read_pairs(config.dev_pairs) if config.dev_pairs else []
  every = (*pairs, *dev)
  model = _open_model(
    config,
    {
      'query': any(pair.query.path for pair in every),
      'document': any(
        document.path
        for pair in every
        for document in (pair.positive, *pair.negatives)
      ),
    },
  )
  both = tuple(model.rows[side] for side in SIDES)
  batches = embedding_pairs.make_batches(
    pairs,
    prepare=(both[0].prepare, both[1].prepare),
    stack=(both[0].stack, both[1].stack),
    seed=config.seed,
    batch_size=config.data.batch_size,
    negatives=config.data.negatives,
    threads=config.data.threads,
  )
  folder = pathlib.Path(workdir)
  params = loop.train_phase(
    'embed',
    state_lib.Stage(
      init=state_lib.start_from(
        pretrained.box_embedder_params(model.module, model.params)
      ),
      loss=_make_loss(model, chunk=config.chunk, **config.loss),
      batches=batches,
      evaluate=_make_evaluate(model, dev, chunk=config.chunk) if dev else None,
      trainable=model.is_trained,
    ),
    config=config,
    settings={**config.to_dict(), 'embedder': model.fingerprint},
    folder=folder,
  )
  _save(model, params, folder, config.to_dict())

"""Makes embedding models from configs and from parameter files."""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import parameter_file, vision_conv
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.typing import Params

CHECKPOINTS = pathlib.Path(__file__).parent.parent / 'checkpoints'
SHIPPED = {'tiny': CHECKPOINTS / 'tiny.safetensors'}
SHIPPED_ROUTERS = {'tiny': CHECKPOINTS / 'tiny_router.safetensors'}


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """Holds an embedding model, ready to use.

  Attributes:
    module: the Linen module.
    params: its parameters, `{'tower': ..., 'text': ...}`.
    maker: lays out its sequences.
    settings: the `model` section it was made from.
    fingerprint: names the exact model: parameters and layout.
  """

  module: embedder_lib.Embedder
  params: Params
  maker: sequence_lib.SequenceMaker
  settings: dict[str, Any]
  fingerprint: str


def make_module(settings: Mapping[str, Any]) -> embedder_lib.Embedder:
  """Makes the module from a config's `model` section.

  Raises:
    UsageError: the sizes do not fit each other.
  """
  tower = dict(settings['tower'])
  decoder = dict(settings['decoder'])
  for name in ('channels', 'blocks'):
    tower[name] = tuple(tower[name])
  decoder['mrope_section'] = tuple(decoder['mrope_section'])
  if tower['output_size'] != decoder['hidden_size']:
    raise errors.UsageError(
      f'model.tower.output_size={tower["output_size"]} must equal'
      f' model.decoder.hidden_size={decoder["hidden_size"]}'
    )
  return embedder_lib.Embedder(
    embedder_lib.EmbedderConfig(
      tower=vision_conv.ConvTowerConfig(**tower),
      decoder=decoder_lib.DecoderConfig(**decoder),
    )
  )


def make_maker(settings: Mapping[str, Any]) -> sequence_lib.SequenceMaker:
  """Makes the layout of sequences from a config's `model` section.

  Raises:
    UsageError: the tokenizer has more words than the model.
  """
  tokenizer = tokenizer_lib.load_tokenizer()
  words = tokenizer.get_vocab_size()
  if words > settings['decoder']['vocab_size']:
    raise errors.UsageError(
      f'the tokenizer has {words} tokens, more than model.decoder.vocab_size='
      f'{settings["decoder"]["vocab_size"]}: raise it'
    )
  return sequence_lib.SequenceMaker(
    tokenizer,
    template=settings['template'],
    grid=(1, settings['tower']['num_tokens']),
  )


def init_params(settings: Mapping[str, Any], rng: jax.Array) -> Params:
  """Draws parameters, boxed with their logical axes."""
  module = make_module(settings)
  tower = settings['tower']
  pixels = jnp.zeros((1, tower['height_px'], tower['width_px'], 3), jnp.uint8)
  sequence = jax.tree.map(jnp.asarray, make_maker(settings).documents(1))
  # Compiled whole: piece by piece it takes ten times as long.
  params: Params = jax.jit(module.init)(rng, sequence, pixels)['params']
  return params


def load_embedder(name: str | os.PathLike[str]) -> Pretrained:
  """Loads an embedding model.

  Args:
    name: 'tiny' for the one in this package, or a parameter file's path.

  Raises:
    DataError: no such file, it is damaged, or its parts do not fit.
  """
  path = SHIPPED.get(str(name), pathlib.Path(name))
  params, metadata = parameter_file.load_params(path)
  if 'model' not in metadata:
    raise errors.DataError(
      f'{path} holds no embedding model: give a file that pretraining wrote'
    )
  settings = metadata['model']
  try:
    shapes = jax.eval_shape(lambda: init_params(settings, jax.random.key(0)))
  except (KeyError, TypeError, errors.UsageError) as error:
    raise errors.DataError(
      f'{path} describes a model that this version cannot make ({error}): use'
      ' the version that wrote it, or train it anew'
    ) from error
  parameter_file.check_shapes(params, shapes, path)
  return make_pretrained(settings, params)


def make_pretrained(settings: Mapping[str, Any], params: Params) -> Pretrained:
  """Puts a `model` section and its parameters together."""
  return Pretrained(
    module=make_module(settings),
    params=params,
    maker=make_maker(settings),
    settings=dict(settings),
    fingerprint=parameter_file.compute_fingerprint(params, settings),
  )


@dataclasses.dataclass(frozen=True)
class RouterModel:
  """Holds a router, ready to use.

  Attributes:
    module: the Linen module.
    params: its parameters: of both sides, the heads and the depth.
    embedder: the embedding model it was made from; its tower is the router's.
    inverse_temperature: 1 / tau at the start of training.
    has_gates: whether the gates were trained; else it can only select.
  """

  module: router_lib.Router
  params: Params
  embedder: Pretrained
  inverse_temperature: float
  has_gates: bool = False

  def replace_params(self, params: Params) -> 'RouterModel':
    """Returns the same router with other parameters."""
    return dataclasses.replace(self, params=params)

  def gallery_embedder(self) -> Pretrained:
    """Returns the embedding model of the gallery side."""
    return dataclasses.replace(
      self.embedder,
      params={
        'tower': self.embedder.params['tower'],
        'text': self.params['gallery'],
      },
    )


def make_router(
  embedder: Pretrained,
  *,
  inverse_temperature: float,
  view: str = 'stack',
  gate_input: str = 'evidence',
) -> RouterModel:
  """Makes an untrained router: it scores as the embedding model does.

  Args:
    embedder: the embedding model.
    inverse_temperature: 1 / tau at the start.
    view: see `router.Router`.
    gate_input: likewise.

  Raises:
    UsageError: `view` or `gate_input` is none of its choices.
  """
  errors.check_choice('view', view, router_lib.VIEWS)
  errors.check_choice('gate_input', gate_input, router_lib.GATE_INPUTS)
  config = embedder.module.config.decoder
  module = router_lib.Router(config, inverse_temperature, view, gate_input)
  state = jnp.zeros((1, config.hidden_size))
  evidence = jnp.zeros((1, evidence_lib.EVIDENCE_SIZE))

  def init(rng: jax.Array) -> Params:
    rng_stop, rng_backtrack = jax.random.split(rng)
    gate = router_lib.GateHead(module.gate_size)
    depth = jnp.zeros(1, jnp.int32)
    return {
      'absence': router_lib.AbsenceHead().init(rng),
      'depth': router_lib.DepthEmbedding(config.hidden_size).init(rng, depth),
      'select': router_lib.SelectHead(inverse_temperature).init(rng, state),
      'stop': gate.init(rng_stop, state, evidence),
      'backtrack': gate.init(rng_backtrack, state, evidence),
    }

  heads = nn.meta.unbox(jax.jit(init)(jax.random.key(0)))
  return RouterModel(
    module=module,
    params={
      'state': embedder.params['text'],
      'gallery': embedder.params['text'],
      **{name: head['params'] for name, head in heads.items()},
    },
    embedder=embedder,
    inverse_temperature=inverse_temperature,
  )


def save_router(
  path: str | os.PathLike[str],
  router: RouterModel,
  *,
  training: Mapping[str, Any],
) -> None:
  """Writes a router, its tower included, as one file."""
  parameter_file.save_params(
    path,
    {**router.params, 'tower': router.embedder.params['tower']},
    {
      'model': router.embedder.settings,
      'embedder': router.embedder.fingerprint,
      'inverse_temperature': router.inverse_temperature,
      'view': router.module.view,
      'gate_input': router.module.gate_input,
      'has_gates': router.has_gates,
      'training': training,
    },
  )


def load_router(
  path: str | os.PathLike[str],
  embedder: Pretrained,
  *,
  needs_gates: bool = False,
) -> RouterModel:
  """Loads a router.

  Args:
    path: a file of `save_router`, or 'tiny' for the one in this package.
    embedder: the embedding model that it was trained from.
    needs_gates: whether to refuse one that can only select.

  Raises:
    UsageError: it has no gates, but needs them.
    DataError: the file is missing, damaged, of another size, or was trained
      from another embedding model.
  """
  path = SHIPPED_ROUTERS.get(str(path), pathlib.Path(path))
  params, metadata = parameter_file.load_params(path)
  known = {'inverse_temperature', 'view', 'gate_input', 'has_gates'}
  if not known <= set(metadata):
    raise errors.DataError(
      f'{path} holds no router: give the router.safetensors of a training run'
    )
  router = make_router(
    embedder,
    inverse_temperature=metadata['inverse_temperature'],
    view=metadata['view'],
    gate_input=metadata['gate_input'],
  )
  tower = params.pop('tower', {})
  parameter_file.check_shapes(params, router.params, path)
  parameter_file.check_shapes(tower, embedder.params['tower'], path)
  if metadata['embedder'] != embedder.fingerprint:
    raise errors.DataError(
      f'{path} was trained from another embedding model'
      f' ({metadata["embedder"][:12]}, not {embedder.fingerprint[:12]}): give'
      ' that one as config.embedder'
    )
  if needs_gates and not metadata['has_gates']:
    raise errors.UsageError(
      f'{path} has no gates, so it never stops: train it by'
      ' configs/imitation.py or configs/sft.py:turns first'
    )
  return dataclasses.replace(
    router, params=params, has_gates=metadata['has_gates']
  )

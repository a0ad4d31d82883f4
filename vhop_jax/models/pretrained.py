"""Makes embedding models from configs and from parameter files."""

from collections.abc import Callable, Mapping
import dataclasses
import os
import pathlib
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.models import (
  convert,
  hf_names,
  parameter_file,
  vision_conv,
  vision_qwen3_vl,
)
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.typing import Params

CHECKPOINTS = pathlib.Path(__file__).parent.parent / 'checkpoints'
# Maps shapes boxed with logical axes to shardings.
Place = Callable[[Params], Params]

QWEN3_VL = 'qwen3_vl'  # The kind of a vision tower.
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
  decoder = dict(settings['decoder'])
  decoder['mrope_section'] = tuple(decoder['mrope_section'])
  tower = _make_tower(settings['tower'])
  size = tower.output_size if is_conv(settings) else tower.out_size
  if size != decoder['hidden_size']:
    raise errors.UsageError(
      f'model.tower.output_size={size} must equal'
      f' model.decoder.hidden_size={decoder["hidden_size"]}'
    )
  return embedder_lib.Embedder(
    embedder_lib.EmbedderConfig(
      tower=tower, decoder=decoder_lib.DecoderConfig(**decoder)
    )
  )


def is_conv(settings: Mapping[str, Any]) -> bool:
  """Tells the small vision tower from Qwen3-VL's."""
  return 'kind' not in settings['tower']


def _make_tower(settings: Mapping[str, Any]) -> Any:
  tower = dict(settings)
  if 'kind' not in tower:
    for name in ('channels', 'blocks'):
      tower[name] = tuple(tower[name])
    return vision_conv.ConvTowerConfig(**tower)
  errors.check_choice('model.tower.kind', tower.pop('kind'), (QWEN3_VL,))
  tower['deepstack_layers'] = tuple(tower['deepstack_layers'])
  width, height = tower.pop('width_px'), tower.pop('height_px')
  config = vision_qwen3_vl.VisionConfig(**tower)
  factor = config.patch_size * config.merge_size
  if min(width, height) < factor or width % factor or height % factor:
    raise errors.UsageError(
      f'images of {width} x {height} px: both sides must be multiples of'
      f' {factor}; change backbone.width_px and backbone.height_px'
    )
  return config


def find_grid(settings: Mapping[str, Any]) -> tuple[int, int]:
  """Returns rows and columns of an image's visual tokens."""
  tower = settings['tower']
  if is_conv(settings):
    return 1, tower['num_tokens']
  factor = tower['patch_size'] * tower['merge_size']
  return tower['height_px'] // factor, tower['width_px'] // factor


def make_maker(
  settings: Mapping[str, Any], *, tail: str = ''
) -> sequence_lib.SequenceMaker:
  """Makes the layout of sequences from a config's `model` section.

  Args:
    settings: the section.
    tail: see `sequence.SequenceMaker`.

  Raises:
    UsageError: the tokenizer has more words than the model.
    DataError: the model's folder has no tokenizer.
  """
  path = tokenizer_lib.TINY_FILE
  if not is_conv(settings):
    path = pathlib.Path(settings['folder']) / 'tokenizer.json'
  tokenizer = tokenizer_lib.load_tokenizer(path)
  words = tokenizer.get_vocab_size()
  if words > settings['decoder']['vocab_size']:
    raise errors.UsageError(
      f'the tokenizer has {words} tokens, more than model.decoder.vocab_size='
      f'{settings["decoder"]["vocab_size"]}: raise it'
    )
  return sequence_lib.SequenceMaker(
    tokenizer,
    template=settings['template'],
    grid=find_grid(settings),
    tail=tail,
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


def load_embedder(
  name: str | os.PathLike[str],
  backbone: Mapping[str, Any] | None = None,
  *,
  place: Place | None = None,
) -> Pretrained:
  """Loads an embedding model.

  Args:
    name: 'tiny' for the one in this package, a parameter file's path, or a
      Hugging Face folder of Qwen3-VL.
    backbone: keyword arguments of `load_folder`; needed for a folder alone.
    place: see `load_folder`; a small model lies on the default device.

  Raises:
    UsageError: a setting of the backbone is out of its range.
    DataError: no such file, it is damaged, or its parts do not fit.
  """
  if pathlib.Path(name).is_dir():
    return load_folder(name, place=place, **(backbone or {}))
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


def load_folder(
  folder: str | os.PathLike[str],
  *,
  width_px: int = 224,
  height_px: int = 160,
  dtype: str = 'float32',
  remat: str = 'none',
  attention: str = 'matmul',
  place: Place | None = None,
) -> Pretrained:
  """Loads a Hugging Face folder of Qwen3-VL as an embedding model.

  Args:
    folder: with weights, config.json and tokenizer.json.
    width_px: that images are resized to, a multiple of 32.
    height_px: likewise.
    dtype: of parameters and computation, 'float32' or 'bfloat16'.
    remat: see `decoder.DecoderConfig`.
    attention: likewise; of the vision tower, too.
    place: gives each parameter its sharding, so that no device ever holds more
      than its share; None is the default device.

  Raises:
    UsageError: a setting is out of its range.
    DataError: see `convert.load_params`, or there is no tokenizer.
  """
  settings = make_folder_settings(
    folder,
    width_px=width_px,
    height_px=height_px,
    dtype=dtype,
    remat=remat,
    attention=attention,
  )
  module, maker = make_module(settings), make_maker(settings)
  # Neither the path nor how something is computed changes what is.
  named = {
    'template': dataclasses.asdict(maker.template),
    'size_px': [width_px, height_px],
    'dtype': dtype,
  }
  return Pretrained(
    module=module,
    params=load_folder_params(settings, place),
    maker=maker,
    settings=settings,
    fingerprint=convert.compute_fingerprint(folder, named),
  )


def make_folder_settings(
  folder: str | os.PathLike[str],
  *,
  width_px: int,
  height_px: int,
  dtype: str,
  remat: str = 'none',
  attention: str = 'matmul',
) -> dict[str, Any]:
  """Makes the `model` section of a Hugging Face folder.

  Args:
    folder: see `load_folder`, as the others.
    width_px: likewise.
    height_px: likewise.
    dtype: likewise.
    remat: likewise.
    attention: likewise.

  Raises:
    UsageError: a setting is none of its choices.
    DataError: see `convert.read_config`.
  """
  config = convert.read_config(folder)
  decoder = dataclasses.asdict(
    dataclasses.replace(
      config.decoder, dtype=dtype, remat=remat, attention=attention
    )
  )
  del decoder['lora']
  return {
    'template': 'qwen3_vl_embedding',
    'folder': str(folder),
    'tower': {
      'kind': QWEN3_VL,
      'width_px': width_px,
      'height_px': height_px,
      **dataclasses.asdict(
        dataclasses.replace(config.vision, attention=attention)
      ),
    },
    'decoder': decoder,
  }


def load_folder_params(
  settings: Mapping[str, Any], place: Place | None = None
) -> Params:
  """Reads the parameters of the folder that a `model` section names.

  Args:
    settings: the section.
    place: see `load_folder`.

  Raises:
    DataError: see `convert.load_params`.
  """
  folder = settings['folder']
  shardings = None
  if place is not None:
    boxed = hf_names.find_boxed_shapes(
      convert.read_config(folder), with_head=False
    )
    shardings = flax.traverse_util.flatten_dict(place(boxed), sep='/')
  loaded = convert.load_params(
    folder,
    dtype=jnp.dtype(settings['decoder']['dtype']),
    shardings=shardings,
  )
  return {'tower': loaded['vision'], 'text': {'decoder': loaded['decoder']}}


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
    joined = router_lib.make_variables(self.params)['params']
    config = dataclasses.replace(
      self.embedder.module.config, decoder=self.module.config
    )
    return dataclasses.replace(
      self.embedder,
      module=embedder_lib.Embedder(config),
      params={
        'tower': self.embedder.params['tower'],
        'text': joined['gallery'],
      },
    )


def make_router(
  embedder: Pretrained,
  *,
  inverse_temperature: float,
  view: str = 'stack',
  gate_input: str = 'evidence',
  lora: lora_lib.LoraConfig | None = None,
) -> RouterModel:
  """Makes an untrained router: it scores as the embedding model does.

  Args:
    embedder: the embedding model.
    inverse_temperature: 1 / tau at the start.
    view: see `router.Router`.
    gate_input: likewise.
    lora: gives each side adapters on the embedding model's text encoder, which
      both share; None gives each side a text encoder of its own.

  Raises:
    UsageError: `view` or `gate_input` is none of its choices.
  """
  errors.check_choice('view', view, router_lib.VIEWS)
  errors.check_choice('gate_input', gate_input, router_lib.GATE_INPUTS)
  config = dataclasses.replace(embedder.module.config.decoder, lora=lora)
  module = router_lib.Router(config, inverse_temperature, view, gate_input)
  return RouterModel(
    module=module,
    params=init_router_params(embedder.params['text'], module),
    embedder=embedder,
    inverse_temperature=inverse_temperature,
  )


def init_router_params(text: Params, module: router_lib.Router) -> Params:
  """Makes the parameters that an untrained router starts with.

  Args:
    text: parameters of the embedding model's text encoder.
    module: the router, with adapters or without.
  """
  lora = module.config.lora
  heads = nn.meta.unbox(jax.jit(lambda: _init_heads(module))())
  if lora is None:
    return {'state': text, 'gallery': text, **heads}
  rngs = jax.random.split(jax.random.key(1))
  return {
    'base': text,
    'state': lora_lib.init(text, lora, rngs[0]),
    'gallery': lora_lib.init(text, lora, rngs[1]),
    **heads,
  }


def box_params(module: router_lib.Router, params: Params) -> Params:
  """Returns a router's parameters boxed with their logical axes.

  What comes from a file has none; the mesh is to be told where each part lies.

  Args:
    module: the router.
    params: its parameters, or their shapes.
  """
  config = module.config
  text = jax.eval_shape(
    lambda: embedder_lib.TextEncoder(config).init(
      jax.random.key(0), _make_probe(), None
    )
  )['params']
  heads = jax.eval_shape(lambda: _init_heads(module))
  sides = {side: text for side in ('base', 'state', 'gallery')}
  return box_like({**sides, **heads}, params)


def box_embedder_params(
  module: embedder_lib.Embedder, params: Params
) -> Params:
  """Returns an embedding model's parameters boxed, see `box_params`."""
  config = module.config.tower
  width_px, height_px = (
    (config.width_px, config.height_px)
    if isinstance(config, vision_conv.ConvTowerConfig)
    else (config.patch_size * config.merge_size,) * 2
  )
  pixels = jnp.zeros((1, height_px, width_px, 3), jnp.uint8)
  boxed = jax.eval_shape(
    lambda: module.init(jax.random.key(0), _make_probe(), pixels)
  )
  return box_like(boxed['params'], params)


def box_like(boxed: Params, params: Params) -> Params:
  """Returns parameters boxed as those of the same path are.

  Args:
    boxed: arrays or shapes, with logical axes where a parameter has them.
    params: arrays or shapes; may lack some, but has no others.
  """
  axes = {
    path: leaf.names
    for path, leaf in flax.traverse_util.flatten_dict(boxed).items()
    if isinstance(leaf, nn.Partitioned)
  }
  flat = flax.traverse_util.flatten_dict(params)
  result: Params = flax.traverse_util.unflatten_dict(
    {
      path: nn.LogicallyPartitioned(x, axes[path]) if path in axes else x
      for path, x in flat.items()
    }
  )
  return result


def _make_probe() -> sequence_lib.Sequence:
  """Returns a sequence of one token."""
  return sequence_lib.Sequence(
    tokens=jnp.zeros((1, 1), jnp.int32),
    positions=jnp.zeros((1, 3, 1), jnp.int32),
    mask=jnp.ones((1, 1), bool),
    visual_index=jnp.full((1, 1), sequence_lib.TEXT),
  )


def _init_heads(module: router_lib.Router) -> Params:
  """Draws the heads of a router, boxed with their logical axes."""
  state = jnp.zeros((1, module.config.hidden_size))
  evidence = jnp.zeros((1, evidence_lib.EVIDENCE_SIZE))
  rng = jax.random.key(0)
  rng_stop, rng_backtrack = jax.random.split(rng)
  gate = router_lib.GateHead(module.gate_size)
  depth = router_lib.DepthEmbedding(module.config.hidden_size)
  heads = {
    'absence': router_lib.AbsenceHead().init(rng),
    'depth': depth.init(rng, jnp.zeros(1, jnp.int32)),
    'select': router_lib.SelectHead(module.inverse_temperature).init(
      rng, state
    ),
    'stop': gate.init(rng_stop, state, evidence),
    'backtrack': gate.init(rng_backtrack, state, evidence),
  }
  return {name: head['params'] for name, head in heads.items()}


def save_router(
  path: str | os.PathLike[str],
  router: RouterModel,
  *,
  training: Mapping[str, Any],
) -> None:
  """Writes a router as one file.

  With a full text encoder on each side the tower goes along, so that the file
  stands alone; with adapters the embedding model's parameters stay out.
  """
  lora = router.module.config.lora
  params = {**router.params, 'tower': router.embedder.params['tower']}
  if lora is not None:
    del params['base'], params['tower']
  parameter_file.save_params(
    path,
    params,
    {
      'model': router.embedder.settings,
      'embedder': router.embedder.fingerprint,
      'inverse_temperature': router.inverse_temperature,
      'view': router.module.view,
      'gate_input': router.module.gate_input,
      'has_gates': router.has_gates,
      'lora': None if lora is None else dataclasses.asdict(lora),
      'training': training,
    },
  )


def read_backbone(path: str | os.PathLike[str]) -> dict[str, Any]:
  """Returns the keyword arguments of `load_folder` that a router needs.

  Args:
    path: of the router.

  Returns:
    None of them unless it was trained from a Hugging Face folder.
  """
  path = SHIPPED_ROUTERS.get(str(path), pathlib.Path(path))
  _, metadata = parameter_file.load_params(path)
  settings = metadata['model'] if 'model' in metadata else {}
  if not settings or is_conv(settings):
    return {}
  return {
    **{name: settings['tower'][name] for name in ('width_px', 'height_px')},
    **{
      name: settings['decoder'][name]
      for name in ('dtype', 'remat', 'attention')
    },
  }


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
  # Files of before there were adapters do not say so.
  lora = metadata['lora'] if 'lora' in metadata else None
  if lora is not None:
    lora = lora_lib.LoraConfig(**{**lora, 'modules': tuple(lora['modules'])})
  router = make_router(
    embedder,
    inverse_temperature=metadata['inverse_temperature'],
    view=metadata['view'],
    gate_input=metadata['gate_input'],
    lora=lora,
  )
  wanted = {**router.params, 'tower': embedder.params['tower']}
  if lora is not None:
    del wanted['base'], wanted['tower']
  parameter_file.check_shapes(params, wanted, path)
  if metadata['embedder'] != embedder.fingerprint:
    raise errors.DataError(
      f'{path} was trained from another embedding model'
      f' ({metadata["embedder"][:12]}, not {embedder.fingerprint[:12]}): give'
      ' that one as config.embedder'
    )
  params.pop('tower', None)
  if lora is not None:
    params['base'] = router.params['base']
  if needs_gates and not metadata['has_gates']:
    raise errors.UsageError(
      f'{path} has no gates, so it never stops: train it by'
      ' configs/imitation.py or configs/sft.py:turns first'
    )
  return dataclasses.replace(
    router, params=params, has_gates=metadata['has_gates']
  )

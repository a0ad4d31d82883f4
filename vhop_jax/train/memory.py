r"""Tells what training on Qwen3-VL keeps on each chip.

  python -m vhop_jax.train.memory --config=configs/sft.py:2b

Parameters are counted by shape alone, so it needs neither the weights nor the
devices. What a training step keeps besides is estimated: with `remat` the
residual stream before each layer and one layer's own arrays, without it those
of every layer.
"""

from collections.abc import Sequence
import dataclasses
import math
import sys

from absl import flags
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
from ml_collections import config_flags

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import hf_config, hf_names, image_processor, pretrained
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.models import router as router_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.train import sharding
from vhop_jax.typing import Params

STAGES = ('embed', 'sft', 'imitation', 'reinforce')
_FLOAT_BYTES = 4
_TEMPLATE_TOKENS = 24  # Of a document, around its image.


@dataclasses.dataclass(frozen=True)
class Account:
  """Holds what one chip keeps, in bytes.

  Attributes:
    base: frozen parameters of the text encoder.
    tower: parameters of the vision tower.
    trained: adapters and heads.
    optimizer: two moments of what is trained.
    gradients: of what is trained.
    batch: visual tokens of one batch.
    activations: of the step, estimated.
  """

  base: int
  tower: int
  trained: int
  optimizer: int
  gradients: int
  batch: int
  activations: int

  def total(self) -> int:
    """Returns the sum."""
    return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class _Step:
  """Holds what a step of training reads, on all chips together.

  Attributes:
    rows: pairs of how many sequences go through the decoder with their
      activations kept, and how long they are.
    patches: likewise of the vision tower, whose activations are not kept.
    batch: bytes of a batch's arrays.
  """

  rows: tuple[tuple[int, int], ...]
  patches: tuple[int, int]
  batch: int


def compute_account(
  config: ml_collections.ConfigDict, *, size: str, devices: int
) -> Account:
  """Counts what a chip keeps while a model trains.

  Args:
    config: of embed, sft, imitation or reinforce.
    size: of the backbone, a key of `hf_config.SIZES`.
    devices: chips; `config.mesh` says how they are used.

  Raises:
    UsageError: the size or the mesh is impossible, or the config is of another
      stage.
  """
  errors.check_choice('size', size, tuple(hf_config.SIZES))
  errors.check_choice('config.stage', config.stage, STAGES)
  sizes = hf_config.SIZES[size]
  decoder = dataclasses.replace(
    sizes.decoder, dtype=config.backbone.dtype, remat=config.backbone.remat
  )
  # Stages after SFT read their adapters from its result.
  rank = config.lora.rank if 'lora' in config else 32
  lora = lora_lib.LoraConfig(rank=rank, alpha=32.0) if rank else None
  mesh = _make_mesh(config.mesh.to_dict(), devices)
  is_embedding = config.stage == 'embed'
  if is_embedding and lora is None:
    raise errors.UsageError('lora.rank=0: a folder is trained by adapters')
  shapes, axes = (
    _find_embedder_params(sizes, decoder, lora)
    if is_embedding and lora
    else _find_router_params(sizes, decoder, lora)
  )
  step = (
    _find_embedding_step(config, sizes)
    if is_embedding
    else _find_routing_step(config, sizes)
  )
  shards = math.prod(mesh.shape[axis] for axis in sharding.BATCH_AXES)
  scalars = {
    name: _count_share(shapes[name], axes[name], mesh) for name in shapes
  }
  base, tower = scalars.pop('base', 0), scalars.pop('tower')
  trained = sum(scalars.values())
  itemsize = jnp.dtype(decoder.dtype).itemsize
  activations = _count_activations(decoder, step) + _count_tower(
    sizes.vision, step, itemsize
  )
  return Account(
    base=base * itemsize,
    tower=tower * itemsize,
    trained=trained * _FLOAT_BYTES,
    optimizer=2 * trained * _FLOAT_BYTES,
    gradients=trained * _FLOAT_BYTES,
    batch=step.batch // shards,
    activations=activations // shards,
  )


def _find_routing_step(
  config: ml_collections.ConfigDict, sizes: qwen3_vl_lib.Qwen3VLConfig
) -> _Step:
  """Returns what a router's step reads: trajectories and candidates."""
  factor = sizes.vision.patch_size * sizes.vision.merge_size
  visual = (config.backbone.width_px // factor) * (
    config.backbone.height_px // factor
  )
  batch = config.data.batch_size
  candidates = batch * config.data.family_size
  packed = (1 + len(sizes.vision.deepstack_layers)) * sizes.decoder.hidden_size
  trajectory = config.data.max_text_tokens + config.data.decisions * (
    visual + 1
  )
  # Reinforcement trains on several rollouts of some of the queries.
  followed = batch
  if 'collect' in config and 'groups' in config.collect:
    followed = config.collect.groups * config.collect.rollouts
  return _Step(
    rows=((followed, trajectory), (candidates, visual + _TEMPLATE_TOKENS)),
    patches=(0, 0),  # Images are encoded before training.
    batch=(candidates + batch) * visual * packed * _FLOAT_BYTES,
  )


def _find_embedding_step(
  config: ml_collections.ConfigDict, sizes: qwen3_vl_lib.Qwen3VLConfig
) -> _Step:
  """Returns what the step of an embedding model reads: a chunk at a time."""
  vision = sizes.vision
  processor = image_processor.ImageProcessor(
    max_pixels=config.data.max_pixels,
    patch_size=vision.patch_size,
    merge_size=vision.merge_size,
  )
  patches = processor.max_patches
  items = config.data.batch_size * (2 + config.data.negatives)
  return _Step(
    rows=((config.chunk, config.data.max_tokens),),
    patches=(config.chunk, patches),
    batch=items * patches * vision.patch_dim * _FLOAT_BYTES,
  )


def _count_activations(decoder: decoder_lib.DecoderConfig, step: _Step) -> int:
  """Estimates the bytes that the decoder keeps for the backward pass."""
  itemsize = jnp.dtype(decoder.dtype).itemsize
  layers = 1 if decoder.remat == 'full' else decoder.num_layers
  heads = (decoder.num_heads + 2 * decoder.num_kv_heads) * decoder.head_dim
  width = 4 * decoder.hidden_size + heads + 3 * decoder.mlp_size
  total = 0
  for count, length in step.rows:
    tokens = count * length
    squares = 2 * tokens * length * decoder.num_heads * _FLOAT_BYTES
    stream = tokens * decoder.hidden_size * itemsize
    total += stream * decoder.num_layers
    total += (tokens * width * itemsize + squares) * layers
  return total


def _count_tower(
  vision: vision_lib.VisionConfig, step: _Step, itemsize: int
) -> int:
  """Estimates the bytes of one layer of the tower, which keeps nothing."""
  count, length = step.patches
  width = 8 * vision.hidden_size + vision.mlp_size
  squares = 2 * count * length**2 * vision.num_heads * _FLOAT_BYTES
  return count * length * width * itemsize + squares


def _make_mesh(
  sizes: dict[str, int], devices: int
) -> jax.sharding.AbstractMesh:
  """Arranges chips that are not there."""
  found = sharding.compute_mesh_sizes(devices, **sizes)
  if devices % math.prod(found):
    raise errors.UsageError(f'mesh {sizes} does not divide {devices} devices')
  return jax.sharding.AbstractMesh(found, sharding.MESH_AXES)


def _find_router_params(
  sizes: qwen3_vl_lib.Qwen3VLConfig,
  decoder: decoder_lib.DecoderConfig,
  lora: lora_lib.LoraConfig | None,
) -> tuple[Params, Params]:
  """Returns the shapes of a router and its tower, and their logical axes."""
  boxed = hf_names.find_boxed_shapes(sizes, with_head=False)
  config = dataclasses.replace(decoder, lora=lora)
  module = router_lib.Router(config, 20.0)

  def init(text: Params) -> Params:
    return pretrained.init_router_params(text, module)

  shapes = jax.eval_shape(init, {'decoder': nn.meta.unbox(boxed['decoder'])})
  axes = sharding.compute_logical_axes(pretrained.box_params(module, shapes))
  return (
    {**shapes, 'tower': nn.meta.unbox(boxed['vision'])},
    {**axes, 'tower': sharding.compute_logical_axes(boxed['vision'])},
  )


def _find_embedder_params(
  sizes: qwen3_vl_lib.Qwen3VLConfig,
  decoder: decoder_lib.DecoderConfig,
  lora: lora_lib.LoraConfig,
) -> tuple[Params, Params]:
  """Returns the shapes of an embedding model's parts, and logical axes."""
  boxed = hf_names.find_boxed_shapes(sizes, with_head=False)
  text = {'decoder': nn.meta.unbox(boxed['decoder'])}
  adapters = jax.eval_shape(
    lambda text: lora_lib.init(text, lora, jax.random.key(0)), text
  )
  module = embedder_lib.Embedder(
    embedder_lib.EmbedderConfig(
      tower=sizes.vision, decoder=dataclasses.replace(decoder, lora=lora)
    )
  )
  shapes = {
    'tower': nn.meta.unbox(boxed['vision']),
    'text': lora_lib.join(text, adapters),
  }
  axes = sharding.compute_logical_axes(
    pretrained.box_embedder_params(module, shapes)
  )
  parts = [
    dict(zip(('base', 'adapters'), lora_lib.split(tree['text']), strict=True))
    for tree in (shapes, axes)
  ]
  return (
    {**parts[0], 'tower': shapes['tower']},
    {**parts[1], 'tower': axes['tower']},
  )


def _count_share(
  shapes: Params, axes: Params, mesh: jax.sharding.AbstractMesh
) -> int:
  """Returns how many scalars of a tree of shapes a chip holds."""
  placed = sharding.make_param_shardings(shapes, axes, mesh)
  return sum(
    math.prod(lies.shard_shape(leaf.shape))
    for leaf, lies in zip(
      jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True
    )
  )


def describe(account: Account, *, size: str, devices: int) -> str:
  """Returns an account as a table."""
  lines = [f'Qwen3-VL {size} on {devices} chips; GB on each:']
  lines += [
    f'  {name:<12}{value / 1e9:8.2f}'
    for name, value in dataclasses.asdict(account).items()
  ]
  return '\n'.join([*lines, f'  {"in all":<12}{account.total() / 1e9:8.2f}'])


def main(argv: Sequence[str]) -> int:
  """Prints the account of a config and returns the exit code."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', flag_values=values, sys_argv=list(argv)
  )
  flags.DEFINE_string('size', '2b', 'of the backbone', flag_values=values)
  flags.DEFINE_integer('devices', 8, 'chips', flag_values=values)

  def run() -> None:
    try:
      values(list(argv))
    except flags.Error as error:
      reason = str(error).strip().splitlines()[-1]
      raise errors.UsageError(f'in the command: {reason}') from error
    if values.config is None:
      raise errors.UsageError('--config=FILE.py is needed')
    account = compute_account(
      values.config, size=values.size, devices=values.devices
    )
    print(describe(account, size=values.size, devices=values.devices))

  return errors.run_entry_point(run)


if __name__ == '__main__':
  sys.exit(main(sys.argv))

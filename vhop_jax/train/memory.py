r"""Tells what training a router on Qwen3-VL keeps on each chip.

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
from typing import Any

from absl import flags
import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
from ml_collections import config_flags

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import hf_config, hf_names, pretrained
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import router as router_lib
from vhop_jax.train import sharding
from vhop_jax.typing import Params

_FLOAT_BYTES = 4
_TEMPLATE_TOKENS = 24  # Of a document, around its image.


@dataclasses.dataclass(frozen=True)
class Account:
  """Holds what one chip keeps, in bytes.

  Attributes:
    base: frozen parameters of the text encoder.
    trained: adapters and heads.
    optimizer: two moments of what is trained.
    gradients: of what is trained.
    batch: visual tokens of one batch.
    activations: of the step, estimated.
  """

  base: int
  trained: int
  optimizer: int
  gradients: int
  batch: int
  activations: int

  def total(self) -> int:
    """Returns the sum."""
    return sum(dataclasses.astuple(self))


def compute_account(
  config: ml_collections.ConfigDict, *, size: str, devices: int
) -> Account:
  """Counts what a chip keeps while the router trains.

  Args:
    config: of sft, imitation or reinforce.
    size: of the backbone, a key of `hf_config.SIZES`.
    devices: chips; `config.mesh` says how they are used.

  Raises:
    UsageError: the size or the mesh is impossible.
  """
  errors.check_choice('size', size, tuple(hf_config.SIZES))
  sizes = hf_config.SIZES[size]
  decoder = dataclasses.replace(
    sizes.decoder, dtype=config.backbone.dtype, remat=config.backbone.remat
  )
  # Stages after SFT read their adapters from its result.
  rank = config.lora.rank if 'lora' in config else 32
  lora = lora_lib.LoraConfig(rank=rank, alpha=32.0) if rank else None
  mesh = _make_mesh(config.mesh.to_dict(), devices)
  shapes, axes = _find_params(sizes, decoder, lora)
  rows = math.prod(mesh.shape[axis] for axis in sharding.BATCH_AXES)
  scalars = {
    name: _count_share(shapes[name], axes[name], mesh) for name in shapes
  }
  base = scalars.pop('base', 0)
  trained = sum(scalars.values())
  itemsize = jnp.dtype(decoder.dtype).itemsize
  grid = pretrained.find_grid(
    {
      'tower': {
        'kind': pretrained.QWEN3_VL,
        'width_px': config.backbone.width_px,
        'height_px': config.backbone.height_px,
        'patch_size': sizes.vision.patch_size,
        'merge_size': sizes.vision.merge_size,
      }
    }
  )
  visual = grid[0] * grid[1]
  batch = config.data.batch_size
  candidates = batch * config.data.family_size
  packed = (1 + len(sizes.vision.deepstack_layers)) * decoder.hidden_size
  trajectory = config.data.max_text_tokens + config.data.decisions * (
    visual + 1
  )
  # Reinforcement trains on several rollouts of some of the queries.
  followed = batch
  if 'collect' in config and 'groups' in config.collect:
    followed = config.collect.groups * config.collect.rollouts
  tokens = (followed * trajectory, candidates * (visual + _TEMPLATE_TOKENS))
  squares = (
    followed * trajectory**2,
    candidates * (visual + _TEMPLATE_TOKENS) ** 2,
  )
  activations = 0
  for count, square in zip(tokens, squares, strict=True):
    stream = count * decoder.hidden_size * itemsize
    heads = (decoder.num_heads + 2 * decoder.num_kv_heads) * decoder.head_dim
    layer = count * (4 * decoder.hidden_size + heads + 3 * decoder.mlp_size)
    layer = layer * itemsize + 2 * square * decoder.num_heads * _FLOAT_BYTES
    layers = 1 if decoder.remat == 'full' else decoder.num_layers
    activations += stream * decoder.num_layers + layer * layers
  return Account(
    base=base * itemsize,
    trained=trained * _FLOAT_BYTES,
    optimizer=2 * trained * _FLOAT_BYTES,
    gradients=trained * _FLOAT_BYTES,
    batch=(candidates + batch) * visual * packed * _FLOAT_BYTES // rows,
    activations=activations // rows,
  )


def _make_mesh(
  sizes: dict[str, int], devices: int
) -> jax.sharding.AbstractMesh:
  """Arranges chips that are not there."""
  found = sharding.compute_mesh_sizes(devices, **sizes)
  if devices % math.prod(found):
    raise errors.UsageError(f'mesh {sizes} does not divide {devices} devices')
  return jax.sharding.AbstractMesh(found, sharding.MESH_AXES)


def _find_params(
  sizes: Any,
  decoder: decoder_lib.DecoderConfig,
  lora: lora_lib.LoraConfig | None,
) -> tuple[Params, Params]:
  """Returns the shapes of a router's parameters and their logical axes."""
  text = {
    'decoder': nn.meta.unbox(
      hf_names.find_boxed_shapes(sizes, with_head=False)
    )['decoder']
  }
  config = dataclasses.replace(decoder, lora=lora)
  module = router_lib.Router(config, 20.0)

  def init(text: Params) -> Params:
    return pretrained.init_router_params(text, module)

  shapes = jax.eval_shape(init, text)
  boxed = pretrained.box_params(module, shapes)
  return shapes, sharding.compute_logical_axes(boxed)


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

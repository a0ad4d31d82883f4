"""LoRA: low-rank adapters beside the kernels of a frozen model.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021):
y = x W + (alpha / r) dropout(x) A B, where W stays as it is. Adapters live in
the module of their kernel as `lora_a` [*inputs, rank] and `lora_b` [rank,
*outputs], stacked over the layers as everything else.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import math
from typing import Any

from flax import traverse_util
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.typing import Params

A, B = 'lora_a', 'lora_b'
_NAMES = (A, B)

# Our names of a decoder layer's products, and the paper's and PEFT's.
MODULES: Mapping[str, str] = {
  'query': 'self_attn.q_proj',
  'key': 'self_attn.k_proj',
  'value': 'self_attn.v_proj',
  'out': 'self_attn.o_proj',
  'gate': 'mlp.gate_proj',
  'up': 'mlp.up_proj',
  'down': 'mlp.down_proj',
}


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Says which products have adapters, and of what kind.

  Attributes:
    rank: r.
    alpha: the adapters' product is scaled by alpha / r.
    dropout: share of the inputs that the adapters do not see in training.
    modules: names of `MODULES`.
  """

  rank: int
  alpha: float
  dropout: float = 0.0
  modules: tuple[str, ...] = ('query', 'key', 'value', 'up', 'gate', 'down')

  def __post_init__(self) -> None:
    if self.rank < 1 or self.alpha <= 0 or not 0 <= self.dropout < 1:
      raise errors.UsageError(
        f'lora rank={self.rank}, alpha={self.alpha}, dropout={self.dropout}:'
        ' the rank is at least 1, alpha positive, the dropout in [0, 1)'
      )
    if not self.modules:
      raise errors.UsageError('lora.modules is empty: name some')
    for name in self.modules:
      errors.check_choice('lora.modules', name, tuple(MODULES))

  @property
  def scale(self) -> float:
    """Gives what the adapters' product is multiplied by."""
    return self.alpha / self.rank


def is_adapter(path: Iterable[str]) -> bool:
  """Tells by its path whether a parameter is an adapter's."""
  return tuple(path)[-1] in _NAMES


def split(params: Params) -> tuple[Params, Params]:
  """Returns the model's own parameters, and the adapters."""
  flat = traverse_util.flatten_dict(params)
  base = {path: x for path, x in flat.items() if not is_adapter(path)}
  adapters = {path: x for path, x in flat.items() if is_adapter(path)}
  return (
    traverse_util.unflatten_dict(base),
    traverse_util.unflatten_dict(adapters),
  )


def join(base: Params, adapters: Params) -> Params:
  """Returns one tree of both; no array is copied."""
  joined: Params = traverse_util.unflatten_dict(
    {
      **traverse_util.flatten_dict(base),
      **traverse_util.flatten_dict(adapters),
    }
  )
  return joined


def init(base: Params, config: LoraConfig, rng: jax.Array) -> Params:
  """Draws adapters for the layers of a decoder; B, and so A B, is zero.

  Args:
    base: with `layers` somewhere, as `decoder.Decoder` has it.
    config: which.
    rng: draws.
  """
  flat = traverse_util.flatten_dict(base)
  adapters = {}
  for path, kernel in sorted(flat.items()):
    if len(path) < 3 or path[-1] != 'kernel' or path[-3] != 'layers':
      continue
    if path[-2] not in config.modules:
      continue
    rng, rng_a = jax.random.split(rng)
    inputs, outputs = _split_axes(path[-2], kernel.shape[1:])
    adapters[(*path[:-1], A)] = draw_a(
      rng_a, (kernel.shape[0], *inputs, config.rank), math.prod(inputs)
    )
    adapters[(*path[:-1], B)] = jnp.zeros(
      (kernel.shape[0], config.rank, *outputs)
    )
  if not adapters:
    raise errors.UsageError('the model has no layer for the adapters')
  made: Params = traverse_util.unflatten_dict(adapters)
  return made


def draw_a(rng: jax.Array, shape: tuple[int, ...], fan_in: int) -> jax.Array:
  """Draws the first factor as PEFT does: uniform within 1 / sqrt(fan_in)."""
  bound = fan_in**-0.5
  return jax.random.uniform(rng, shape, minval=-bound, maxval=bound)


def _split_axes(
  module: str, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Returns a kernel's axes of inputs and of outputs."""
  inputs = 2 if module == 'out' else 1
  return shape[:inputs], shape[inputs:]


def merge(params: Params, config: LoraConfig) -> Params:
  """Returns the parameters without adapters that compute the same.

  Args:
    params: with adapters.
    config: theirs.
  """
  flat: dict[tuple[str, ...], Any] = traverse_util.flatten_dict(params)
  merged = {}
  for path, x in flat.items():
    if is_adapter(path):
      continue
    a = flat.get((*path[:-1], A))
    if path[-1] == 'kernel' and a is not None:
      b = flat[(*path[:-1], B)]
      layers, rank = a.shape[0], a.shape[-1]
      product = jnp.matmul(
        a.reshape(layers, -1, rank), b.reshape(layers, rank, -1)
      )
      x = (x + config.scale * product.reshape(x.shape)).astype(x.dtype)
    merged[path] = x
  result: Params = traverse_util.unflatten_dict(merged)
  return result

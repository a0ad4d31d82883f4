"""The text decoder of Qwen3-VL: interleaved M-RoPE, QK-norm, GQA, SwiGLU.

One implementation serves every size, from `tiny` to 8B. Axes that the
glossary in `vhop_jax.typing` does not name are words: `layers`, `heads`,
`kv_heads`, `head_dim`, `mlp`, `half` (of head_dim), `slots` (the places of a
cache), `taps` (DeepStack features, one for each of the first decoder layers).

Parameters, float32; `layers` are stacked along a leading axis by `nn.scan`;
the names in brackets are also the logical axes for sharding:

    embedding                    [vocab, embed]
    layers/attention_norm/scale  [layers, embed]
    layers/query/kernel          [layers, embed, heads, head_dim]
    layers/key/kernel            [layers, embed, kv_heads, head_dim]
    layers/value/kernel          [layers, embed, kv_heads, head_dim]
    layers/query_norm/scale      [layers, head_dim]
    layers/key_norm/scale        [layers, head_dim]
    layers/out/kernel            [layers, heads, head_dim, embed]
    layers/mlp_norm/scale        [layers, embed]
    layers/gate/kernel           [layers, embed, mlp]
    layers/up/kernel             [layers, embed, mlp]
    layers/down/kernel           [layers, mlp, embed]
    final_norm/scale             [embed]
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.models import lora as lora_lib
from vhop_jax.typing import Array, Bool, Float, Int, Int32, typed

Axis = tuple[int, str | None]  # Size and logical name of a parameter's axis.
Rope = tuple[Array, Array]  # Cosines and sines, see `compute_rope`.

# Of a computation.
COMPUTE_DTYPES = ('float32', 'bfloat16')

# What is kept of a layer for the backward pass: everything, the results of
# products with weights, or nothing, so that it is computed again.
REMATS: Mapping[str, Callable[..., Any] | None] = {
  'none': None,
  'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  'full': jax.checkpoint_policies.nothing_saveable,
}

# Ways to compute attention, see `attend`.
ATTENTIONS = ('matmul', 'xla', 'cudnn')

# Large and finite: a row without any allowed slot softmaxes to finite values
# (padding in front of the first token), where -inf would give NaN.
MASKED_LOGIT = -1e30


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
  """Sizes of the decoder.

  Attributes:
    vocab_size: rows of the embedding table.
    hidden_size: width of the residual stream.
    num_layers: number of decoder layers.
    num_heads: query heads.
    num_kv_heads: key-value heads; divides `num_heads`.
    head_dim: width of one head; even.
    mlp_size: inner width of the SwiGLU MLP.
    rope_theta: base of the rotary frequencies.
    mrope_section: frequencies that belong to time, height and width; their
      sum is `head_dim // 2`.
    rms_norm_eps: epsilon in each RMSNorm.
    remat: one of `REMATS`: what of a layer is kept for the backward pass.
    scan_unroll: layers per iteration of the scan over layers. Changes speed
      and compile time only.
    dtype: of the computation where a module is not told another; norms,
      softmax and rotations are float32 in any case.
    lora: the adapters of the layers, or None.
    attention: one of `ATTENTIONS`, see `attend`.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_size: int
  rope_theta: float = 5e6
  mrope_section: tuple[int, int, int] = (24, 20, 20)
  rms_norm_eps: float = 1e-6
  remat: str = 'none'
  scan_unroll: int = 1
  dtype: str = 'float32'
  lora: lora_lib.LoraConfig | None = None
  attention: str = 'matmul'

  def __post_init__(self) -> None:
    errors.check_choice('dtype', self.dtype, COMPUTE_DTYPES)
    if self.num_heads % self.num_kv_heads:
      raise errors.UsageError(
        f'num_heads={self.num_heads} is not a multiple of '
        f'num_kv_heads={self.num_kv_heads}'
      )
    if self.head_dim % 2 or sum(self.mrope_section) != self.head_dim // 2:
      raise errors.UsageError(
        f'mrope_section={tuple(self.mrope_section)} must sum to half of '
        f'head_dim={self.head_dim}'
      )
    errors.check_choice('remat', self.remat, tuple(REMATS))
    errors.check_choice('attention', self.attention, ATTENTIONS)


@flax.struct.dataclass
class Cache:
  """Keys and values of the slots seen so far.

  Attributes:
    k: rotated keys.
    v: values.
    mask: True at filled slots that hold a token (no padding).
    length: slots filled; the same for every row.
  """

  k: Float[Array, 'layers B slots kv_heads head_dim']
  v: Float[Array, 'layers B slots kv_heads head_dim']
  mask: Bool[Array, 'B slots']
  length: Int32[Array, '']


def make_cache(
  config: DecoderConfig,
  batch: int,
  max_length: int,
  dtype: jnp.dtype | None = None,
) -> Cache:
  """Makes an empty cache of `max_length` slots.

  Its dtype is that of the config unless another is given.
  Writing past `max_length` is the caller's mistake and is not detected (XLA
  clamps the slot), so size the cache for every segment that will come.
  """
  shape = (
    config.num_layers,
    batch,
    max_length,
    config.num_kv_heads,
    config.head_dim,
  )
  dtype = jnp.dtype(config.dtype) if dtype is None else dtype
  return Cache(
    k=jnp.zeros(shape, dtype),
    v=jnp.zeros(shape, dtype),
    mask=jnp.zeros((batch, max_length), bool),
    length=jnp.zeros((), jnp.int32),
  )


def compute_mrope_axis(section: tuple[int, int, int]) -> np.ndarray:
  """Says which axis (0 time, 1 height, 2 width) turns each frequency.

  Interleaved M-RoPE: every frequency starts as time; height takes the indices
  1, 4, ... below 3 * section[1] and width 2, 5, ... below 3 * section[2].

  Returns:
    int [head_dim // 2].
  """
  axis = np.zeros(sum(section), np.int32)
  for dim in (1, 2):
    axis[dim : 3 * section[dim] : 3] = dim
  return axis


@typed
def compute_rope(
  config: DecoderConfig, positions: Int[Array, '3 B S']
) -> tuple[Float[Array, 'B S half'], Float[Array, 'B S half']]:
  """Computes the rotary cosines and sines in float32.

  Args:
    config: gives theta, the head width and the M-RoPE section.
    positions: time, height and width of each slot.

  Returns:
    cos and sin of each frequency's angle.
  """
  half = config.head_dim // 2
  # NumPy float32, as the reference computes it.
  exponent = np.arange(half, dtype=np.float32) * 2 / config.head_dim
  frequency = (1.0 / config.rope_theta**exponent).astype(np.float32)
  frequency = frequency[None, None, :]
  axis = compute_mrope_axis(config.mrope_section)
  angle = jnp.moveaxis(positions[axis], 0, -1).astype(jnp.float32) * frequency
  return jnp.cos(angle), jnp.sin(angle)


@typed
def apply_rope(
  x: Float[Array, 'B S heads head_dim'],
  cos: Float[Array, 'B S half'],
  sin: Float[Array, 'B S half'],
) -> Float[Array, 'B S heads head_dim']:
  """Rotates the pairs (i, i + head_dim / 2) of x in float32."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  cos, sin = cos[:, :, None, :], sin[:, :, None, :]
  rotated = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return rotated.astype(x.dtype)


def rematerialize(module: Any, remat: str) -> Any:
  """Returns a layer's class that keeps what `REMATS` says."""
  policy = REMATS[remat]
  if policy is None:
    return module
  return nn.remat(module, prevent_cse=False, policy=policy)


def partition(
  initializer: Callable[..., Array], names: tuple[str | None, ...]
) -> Callable[..., Any]:
  """Adds the logical axes of a parameter to its initializer."""
  return nn.with_logical_partitioning(initializer, names)


class RMSNorm(nn.Module):
  """Root-mean-square normalisation of the last axis, in float32."""

  epsilon: float
  axis_name: str

  @nn.compact
  def __call__(self, x: Float[Array, '*axes D']) -> Float[Array, '*axes D']:
    """Normalises x."""
    scale = self.param(
      'scale',
      partition(nn.initializers.ones, (self.axis_name,)),
      (x.shape[-1],),
      jnp.float32,
    )
    y = x.astype(jnp.float32)
    y *= jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
    return (y * scale.reshape((1,) * (x.ndim - 1) + (-1,))).astype(x.dtype)


class Linear(nn.Module):
  """Contracts the last `len(inputs)` axes of x with a kernel.

  Attributes:
    inputs: (size, logical axis) of each contracted axis.
    outputs: (size, logical axis) of each axis that replaces them.
    dtype: of the computation.
    use_bias: adds a bias (the vision tower does, the decoder does not).
    lora: adds adapters, or None.
  """

  inputs: tuple[Axis, ...]
  outputs: tuple[Axis, ...]
  dtype: jnp.dtype = jnp.float32
  use_bias: bool = False
  lora: lora_lib.LoraConfig | None = None

  @nn.compact
  def __call__(self, x: Float[Array, '...']) -> Float[Array, '...']:
    """Maps x [..., *inputs] to [..., *outputs]."""
    shape = tuple(size for size, _ in self.inputs + self.outputs)
    names = tuple(name for _, name in self.inputs + self.outputs)
    fan_in = math.prod(size for size, _ in self.inputs)
    kernel = self.param(
      'kernel',
      partition(nn.initializers.normal(fan_in**-0.5), names),
      shape,
      jnp.float32,
    )
    lead = x.shape[: x.ndim - len(self.inputs)]
    # A product of two matrices: on a CPU the backward pass of one with a
    # batch of matrices takes twice as long.
    flat = x.reshape(-1, fan_in).astype(self.dtype)
    y = flat @ kernel.reshape(fan_in, -1).astype(self.dtype)
    if self.lora is not None:
      y += self._adapt(flat, self.lora)
    if self.use_bias:
      bias = self.param(
        'bias',
        partition(nn.initializers.zeros, tuple(n for _, n in self.outputs)),
        tuple(size for size, _ in self.outputs),
        jnp.float32,
      )
      y += bias.reshape(1, -1).astype(self.dtype)
    return y.reshape(*lead, *(size for size, _ in self.outputs))

  def _adapt(
    self, x: Float[Array, 'rows inputs'], lora: lora_lib.LoraConfig
  ) -> Float[Array, 'rows outputs']:
    """Returns what the adapters add, see `lora`."""
    a_names = (*(name for _, name in self.inputs), None)
    b_names = (None, *(name for _, name in self.outputs))
    fan_in = x.shape[-1]

    def draw(rng: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
      return lora_lib.draw_a(rng, shape, fan_in).astype(dtype)

    a = self.param(
      lora_lib.A,
      partition(draw, a_names),
      (*(size for size, _ in self.inputs), lora.rank),
      jnp.float32,
    )
    b = self.param(
      lora_lib.B,
      partition(nn.initializers.zeros, b_names),
      (lora.rank, *(size for size, _ in self.outputs)),
      jnp.float32,
    )
    if lora.dropout and self.has_rng('dropout'):
      x = nn.Dropout(lora.dropout, deterministic=False)(x)
    y = x @ a.reshape(-1, lora.rank).astype(self.dtype)
    return lora.scale * (y @ b.reshape(lora.rank, -1).astype(self.dtype))


@typed
def attend(
  q: Float[Array, 'B S heads head_dim'],
  k: Float[Array, 'B slots kv_heads head_dim'],
  v: Float[Array, 'B slots kv_heads head_dim'],
  allowed: Bool[Array, '#B S slots'],
  *,
  implementation: str = 'matmul',
) -> Float[Array, 'B S heads head_dim']:
  """Computes grouped-query attention; softmax in float32.

  'matmul' is written as batched matrix products that divide by the softmax's
  sum after the second one: on a CPU a quarter quicker, forward and backward,
  than the einsum form, and twice as quick as 'xla', which is
  `jax.nn.dot_product_attention`. 'cudnn' is the same by cuDNN's fused kernel:
  on NVIDIA GPUs, in bfloat16, without an array of S x slots.

  Args:
    q: queries; `heads` is a multiple of `kv_heads`.
    k: keys.
    v: values.
    allowed: True where a query's slot may read a key's.
    implementation: one of `ATTENTIONS`.

  Returns:
    The weighted values.

  Raises:
    UsageError: the machine has not what the implementation needs.
  """
  if implementation != 'matmul':
    if implementation == 'cudnn' and jax.default_backend() != 'gpu':
      raise errors.UsageError(
        f"attention='cudnn' needs an NVIDIA GPU, and this is a"
        f" {jax.default_backend()}: choose 'xla' or 'matmul'"
      )
    library: Any = implementation
    attended: Array = jax.nn.dot_product_attention(
      q, k, v, mask=allowed[:, None], implementation=library
    )
    return attended
  batch, length, heads, head_dim = q.shape
  slots, kv_heads = k.shape[1:3]
  group = heads // kv_heads
  q = (q * head_dim**-0.5).reshape(batch, length, kv_heads, group, head_dim)
  q = q.transpose(0, 2, 3, 1, 4)
  q = q.reshape(batch, kv_heads, group * length, head_dim)
  k = k.transpose(0, 2, 3, 1)
  logits = jnp.matmul(q, k, preferred_element_type=jnp.float32)
  logits = logits.reshape(batch, kv_heads, group, length, slots)
  logits = logits + jnp.where(allowed, 0.0, MASKED_LOGIT)[:, None, None]
  peak = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
  weights = jnp.exp(logits - peak)
  total = jnp.sum(weights, axis=-1, keepdims=True)
  weights = weights.reshape(batch, kv_heads, group * length, slots)
  y = jnp.matmul(
    weights.astype(v.dtype),
    v.transpose(0, 2, 1, 3),
    preferred_element_type=jnp.float32,
  )
  y = y.reshape(batch, kv_heads, group, length, head_dim) / total
  y = y.transpose(0, 3, 1, 2, 4)
  return y.reshape(batch, length, heads, head_dim).astype(v.dtype)


class DecoderLayer(nn.Module):
  """One decoder layer, in the form that `nn.scan` wants."""

  config: DecoderConfig
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    carry: tuple[Array, Array],
    cached: tuple[Array, Array] | None,
    rope: Rope,
    allowed: Array,
    slot: Array,
    deepstack: Array | None,
  ) -> tuple[tuple[Array, Array], tuple[Array, Array] | None]:
    """Runs the layer.

    Args:
      carry: (hidden [B, S, D], index of this layer).
      cached: None, or this layer's (k, v) in the cache.
      rope: cos and sin, see `compute_rope`.
      allowed: bool [B, S, slots] (slots = S without a cache).
      slot: first slot of the segment in the cache; unused without one.
      deepstack: None or [taps, B, S, D].

    Returns:
      The new carry and the layer's updated (k, v), or None without a cache.
    """
    config = self.config
    x, index = carry
    embed = ((config.hidden_size, 'embed'),)
    heads = ((config.num_heads, 'heads'), (config.head_dim, 'head_dim'))
    kv_heads = (
      (config.num_kv_heads, 'kv_heads'),
      (config.head_dim, 'head_dim'),
    )
    mlp = ((config.mlp_size, 'mlp'),)

    def norm(name: str, axis_name: str) -> RMSNorm:
      return RMSNorm(config.rms_norm_eps, axis_name, name=name)

    def linear(
      name: str, inputs: tuple[Axis, ...], outputs: tuple[Axis, ...]
    ) -> Linear:
      lora = config.lora
      if lora is not None and name not in lora.modules:
        lora = None
      return Linear(inputs, outputs, self.dtype, lora=lora, name=name)

    y = norm('attention_norm', 'embed')(x)
    q = norm('query_norm', 'head_dim')(linear('query', embed, heads)(y))
    k = norm('key_norm', 'head_dim')(linear('key', embed, kv_heads)(y))
    v = linear('value', embed, kv_heads)(y)
    q, k = apply_rope(q, *rope), apply_rope(k, *rope)
    if cached is not None:
      start = (0, slot, 0, 0)
      k = jax.lax.dynamic_update_slice(
        cached[0], k.astype(cached[0].dtype), start
      )
      v = jax.lax.dynamic_update_slice(
        cached[1], v.astype(cached[1].dtype), start
      )
      cached = (k, v)
      k, v = k.astype(self.dtype), v.astype(self.dtype)
    attended = attend(q, k, v, allowed, implementation=config.attention)
    x += linear('out', heads, embed)(attended)

    y = norm('mlp_norm', 'embed')(x)
    gate = linear('gate', embed, mlp)(y)
    up = linear('up', embed, mlp)(y)
    x += linear('down', mlp, embed)(nn.silu(gate) * up)

    if deepstack is not None:
      # Dynamic indexing, so that no [layers, B, S, D] array is made.
      taps = deepstack.shape[0]
      tap = jax.lax.dynamic_index_in_dim(
        deepstack, jnp.minimum(index, taps - 1), keepdims=False
      )
      x += jnp.where(index < taps, tap, 0).astype(x.dtype)
    return (x, index + 1), cached


class Decoder(nn.Module):
  """The decoder: embeddings in, hidden states after the final norm out.

  Slot j attends to slot i iff i <= j, mask[i] and, where that is given,
  visible[j, i]; padding may stand anywhere, also between tokens. The hidden
  states at padding slots mean nothing.

  Attributes:
    config: sizes.
    dtype: of the computation; parameters stay float32.
  """

  config: DecoderConfig
  dtype: jnp.dtype = jnp.float32

  def setup(self) -> None:
    """Declares the table, the stacked layers and the final norm."""
    config = self.config
    self.embedding = self.param(
      'embedding',
      partition(nn.initializers.normal(0.02), ('vocab', 'embed')),
      (config.vocab_size, config.hidden_size),
      jnp.float32,
    )
    layer = rematerialize(DecoderLayer, config.remat)
    self.layers = nn.scan(
      layer,
      variable_axes={'params': 0},
      split_rngs={'params': True, 'dropout': True},
      in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast, nn.broadcast),
      length=config.num_layers,
      unroll=config.scan_unroll,
      metadata_params={nn.PARTITION_NAME: 'layers'},
    )(config, self.dtype)
    self.final_norm = RMSNorm(config.rms_norm_eps, 'embed')

  @typed
  def embed(self, tokens: Int[Array, 'B S']) -> Float[Array, 'B S D']:
    """Looks up the embeddings of tokens."""
    return jnp.take(self.embedding, tokens, axis=0).astype(self.dtype)

  @typed
  def __call__(
    self,
    embeddings: Float[Array, 'B S D'],
    positions: Int[Array, '3 B S'],
    mask: Bool[Array, 'B S'],
    *,
    cache: Cache | None = None,
    deepstack: Float[Array, 'taps B S D'] | None = None,
    visible: Bool[Array, 'B S slots'] | None = None,
  ) -> tuple[Float[Array, 'B S D'], Cache | None]:
    """Runs the layers over one segment.

    Args:
      embeddings: of text (see `embed`) and of visual tokens.
      positions: M-RoPE positions (time, height, width).
      mask: True at tokens, False at padding.
      cache: slots before this segment; the segment is written at slots
        length .. length + S.
      deepstack: added after layers 0 .. taps - 1; zeros at text.
      visible: what each slot may attend to; None is all.

    Returns:
      Hidden states and the new cache (None without a cache).
    """
    size = embeddings.shape[1]
    slots = jnp.arange(size)
    keep, cached, start = mask, None, jnp.zeros((), jnp.int32)
    if cache is not None:
      cached, start = (cache.k, cache.v), cache.length
      keep = jax.lax.dynamic_update_slice(cache.mask, mask, (0, start))
    causal = jnp.arange(keep.shape[1])[None, :] <= (start + slots)[:, None]
    allowed = causal[None] & keep[:, None, :]
    if visible is not None:
      allowed &= visible
    rope = compute_rope(self.config, positions)
    carry = (embeddings.astype(self.dtype), jnp.zeros((), jnp.int32))
    (x, _), new = self.layers(carry, cached, rope, allowed, start, deepstack)
    if new is not None:
      cache = Cache(k=new[0], v=new[1], mask=keep, length=start + size)
    return self.final_norm(x), cache

"""Encodes images by a small residual network that learns fast on a CPU.

It is the vision tower of the `tiny` model, behind the same interface as
Qwen3-VL's: pixels in, M visual tokens per image out. A convolutional tower
has no DeepStack features.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.typing import Array, Float, UInt8, typed

_LAYER_NORM_EPS = 1e-6
_PRIOR_SHARPNESS = 3.0


@dataclasses.dataclass(frozen=True)
class ConvTowerConfig:
  """Sizes of the tower.

  Attributes:
    width_px: width of the images it reads.
    height_px: height of the images it reads.
    patch_px: side of the square of pixels that makes one position.
    channels: channels of each stage; each later stage halves the grid.
    blocks: residual blocks of each stage.
    num_heads: attention heads of the pooling.
    num_tokens: M, visual tokens per image.
    output_size: width of a visual token, the decoder's D.
  """

  width_px: int
  height_px: int
  patch_px: int
  channels: tuple[int, ...]
  blocks: tuple[int, ...]
  num_heads: int
  num_tokens: int
  output_size: int

  def __post_init__(self) -> None:
    if len(self.channels) != len(self.blocks):
      raise errors.UsageError(
        f'model.tower.channels={self.channels} and .blocks={self.blocks} must'
        ' be as many: one of each for a stage'
      )
    # A side is cut into patches and then halved between the stages.
    step = self.patch_px * 2 ** (len(self.channels) - 1)
    if self.width_px % step or self.height_px % step:
      raise errors.UsageError(
        f'model.tower.width_px={self.width_px} and .height_px={self.height_px}'
        f' must be multiples of {step}: of patch_px={self.patch_px}, doubled'
        ' after each stage but the last'
      )
    if self.channels[-1] % self.num_heads:
      raise errors.UsageError(
        f'model.tower.num_heads={self.num_heads} must divide the last of'
        f' model.tower.channels={self.channels}'
      )


def space_to_depth(
  x: Float[Array, 'B H W C'], block: int
) -> Float[Array, 'B h w c']:
  """Folds each `block` x `block` square of positions into the channels."""
  b, h, w, c = x.shape
  x = x.reshape(b, h // block, block, w // block, block, c)
  x = x.transpose(0, 1, 3, 2, 4, 5)
  return x.reshape(b, h // block, w // block, block * block * c)


class FlatDense(nn.Module):
  """A dense layer over flattened rows.

  On a CPU the backward pass of a matrix product with several leading axes
  takes twice the time of the same product with one.
  """

  features: int

  @nn.compact
  @typed
  def __call__(self, x: Float[Array, '*B C']) -> Float[Array, '*B D']:
    """Maps the last axis."""
    y = nn.Dense(self.features, name='dense')(x.reshape(-1, x.shape[-1]))
    return y.reshape(*x.shape[:-1], self.features)


class Conv3x3(nn.Module):
  """Convolves as one matrix product over the nine shifted copies.

  XLA's CPU convolution has a slow gradient: at 16 x 24 positions of 64
  channels this form took 0.4 of its time, forward and backward together.
  """

  features: int

  @nn.compact
  @typed
  def __call__(self, x: Float[Array, 'B H W C']) -> Float[Array, 'B H W D']:
    """Convolves with zero padding."""
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
      padded[:, i : i + height, j : j + width]
      for i in range(3)
      for j in range(3)
    ]
    return FlatDense(self.features, name='kernel')(
      jnp.concatenate(shifted, axis=-1)
    )


class ResidualBlock(nn.Module):
  """Adds layer norm -> 3 x 3 convolution -> ReLU -> pointwise to its input."""

  @nn.compact
  @typed
  def __call__(self, x: Float[Array, 'B H W C']) -> Float[Array, 'B H W C']:
    """Applies the block."""
    y = nn.LayerNorm(epsilon=_LAYER_NORM_EPS, name='norm')(x)
    y = nn.relu(Conv3x3(x.shape[-1], name='conv')(y))
    return x + FlatDense(x.shape[-1], name='pointwise')(y)


def _init_prior(
  rng: Array, shape: tuple[int, int, int], dtype: jnp.dtype
) -> Float[Array, 'M H W']:
  """Returns log weights: for each token a bell around its share of columns."""
  del rng
  tokens, height, width = shape
  centres = (jnp.arange(tokens) + 0.5) / tokens
  columns = (jnp.arange(width) + 0.5) / width
  distances = (columns[None] - centres[:, None]) * tokens
  bells = -(distances**2)[:, None] * jnp.ones((1, height, 1))
  return (_PRIOR_SHARPNESS * bells).astype(dtype)


class AttentionPool(nn.Module):
  """Pools positions into a few tokens, one learned query each."""

  num_tokens: int
  num_heads: int
  features: int

  @nn.compact
  @typed
  def __call__(self, x: Float[Array, 'B H W C']) -> Float[Array, 'B M D']:
    """Pools H x W positions into M tokens."""
    _, height, width, c = x.shape
    x = x.reshape(x.shape[0], height * width, c)
    b, p, _ = x.shape
    # Token m starts by looking at its share of the width: the tokens are told
    # apart from the first update on.
    prior = self.param(
      'prior', _init_prior, (self.num_tokens, height, width), jnp.float32
    ).reshape(1, self.num_tokens, 1, p)
    place = self.param(
      'position', nn.initializers.normal(0.02), (p, c), jnp.float32
    )
    queries = self.param(
      'queries',
      nn.initializers.normal(1.0),
      (self.num_tokens, self.num_heads, c // self.num_heads),
      jnp.float32,
    )
    x = x + place[None]
    heads = (b, p, self.num_heads, c // self.num_heads)
    keys = FlatDense(c, name='keys')(x).reshape(heads)
    values = FlatDense(c, name='values')(x).reshape(heads)
    scores = jnp.einsum('mhd,bphd->bmhp', queries, keys)
    scores = scores / jnp.sqrt(c / self.num_heads) + prior
    weights = jax.nn.softmax(scores, axis=-1)
    pooled = jnp.einsum('bmhp,bphd->bmhd', weights, values)
    pooled = pooled.reshape(b, self.num_tokens, c)
    tokens = FlatDense(self.features, name='output')(pooled)
    y = nn.LayerNorm(epsilon=_LAYER_NORM_EPS, name='norm')(tokens)
    y = FlatDense(self.features, name='down')(
      nn.relu(FlatDense(2 * self.features, name='up')(y))
    )
    slot = self.param(
      'slot',
      nn.initializers.normal(0.5),
      (self.num_tokens, self.features),
      jnp.float32,
    )
    out = nn.LayerNorm(epsilon=_LAYER_NORM_EPS, name='output_norm')(tokens + y)
    return out + slot[None]


class ConvTower(nn.Module):
  """Maps images to visual tokens."""

  config: ConvTowerConfig

  @nn.compact
  @typed
  def __call__(self, pixels: UInt8[Array, 'B H W 3']) -> Float[Array, 'B M D']:
    """Encodes images of exactly `config`'s size, sRGB in 0..255."""
    config = self.config
    x = pixels.astype(jnp.float32) / 127.5 - 1.0
    x = space_to_depth(x, config.patch_px)
    x = FlatDense(config.channels[0], name='patch')(x)
    for stage, (features, blocks) in enumerate(
      zip(config.channels, config.blocks, strict=True)
    ):
      if stage:
        x = nn.LayerNorm(epsilon=_LAYER_NORM_EPS, name=f'stride_norm_{stage}')(
          x
        )
        x = FlatDense(features, name=f'stride_{stage}')(space_to_depth(x, 2))
      for block in range(blocks):
        x = ResidualBlock(name=f'stage_{stage}_block_{block}')(x)
    x = nn.LayerNorm(epsilon=_LAYER_NORM_EPS, name='norm')(x)
    return AttentionPool(
      config.num_tokens, config.num_heads, config.output_size, name='pool'
    )(x)

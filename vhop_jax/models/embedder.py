"""Embeds images and texts: vision tower, decoder, pooled last token.

The visual tokens of an image and its DeepStack features are one array of M rows
of (1 + taps) x D numbers, packed: the tokens first, then the features for the
first decoder layers. What caches, gathers and hands on visual tokens need not
know of them.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import vision_conv
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Array, Bool, Float, Int, UInt8, typed

_NORM_EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class EmbedderConfig:
  """Sizes of an embedding model.

  Attributes:
    tower: the vision tower's sizes, which say of what kind it is.
    decoder: the decoder's sizes; its hidden size is D.
  """

  tower: vision_conv.ConvTowerConfig | vision_lib.VisionConfig
  decoder: decoder_lib.DecoderConfig


@typed
def normalize(x: Float[Array, '*B D']) -> Float[Array, '*B D']:
  """Scales each vector to length 1, in float32."""
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(
    jnp.sum(x * x, axis=-1, keepdims=True) + _NORM_EPS**2
  )


def pack_visual(
  tokens: Float[Array, '*rows M D'], deepstack: Float[Array, 'taps *rows M D']
) -> Float[Array, '*rows M packed']:
  """Joins visual tokens and DeepStack features along the last axis."""
  return jnp.concatenate([tokens, *deepstack], axis=-1)


def unpack_visual(
  packed: Float[Array, '*rows packed'], width: int
) -> tuple[Float[Array, '*rows D'], Float[Array, 'taps *rows D'] | None]:
  """Takes apart what `pack_visual` joined.

  Args:
    packed: with one token or feature after the other.
    width: D.

  Returns:
    The tokens, and the features or None if there are none.
  """
  count = packed.shape[-1] // width
  if count == 1:
    return packed, None
  parts = jnp.split(packed, count, axis=-1)
  return parts[0], jnp.stack(parts[1:])


@typed
def find_last(mask: Bool[Array, 'B S']) -> Int[Array, 'B']:
  """Returns the index of each row's last real token."""
  return mask.shape[1] - 1 - jnp.argmax(mask[:, ::-1], axis=1)


def repeat_rows(
  sequence: sequence_lib.Sequence, count: int
) -> sequence_lib.Sequence:
  """Returns a layout of one row as `count` equal rows."""
  repeated: sequence_lib.Sequence = jax.tree.map(
    lambda x: jnp.broadcast_to(x, (count, *x.shape[1:])), sequence
  )
  return repeated


@typed
def take_rows(
  x: Float[Array, 'B S D'], index: Int[Array, 'B T']
) -> Float[Array, 'B T D']:
  """Takes x[b, index[b, t]]."""
  return jnp.take_along_axis(x, index[:, :, None], axis=1)


class TextEncoder(nn.Module):
  """The decoder with visual tokens put in place: what reads a sequence."""

  config: decoder_lib.DecoderConfig

  def setup(self) -> None:
    """Declares the decoder."""
    self.decoder = decoder_lib.Decoder(
      self.config, jnp.dtype(self.config.dtype)
    )

  def __call__(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P packed'] | None,
    cache: decoder_lib.Cache | None = None,
    shift: Float[Array, 'B S D'] | None = None,
    visible: Bool[Array, 'B S slots'] | None = None,
  ) -> tuple[Float[Array, 'B S D'], decoder_lib.Cache | None]:
    """Reads a batch of sequences.

    Args:
      sequence: B rows of S slots.
      visual: the packed visual tokens of each row, one after the other; None
        for pure texts.
      cache: what was read before, for incremental reading.
      shift: added to what the decoder reads at each slot.
      visible: see `decoder.Decoder`.

    Returns:
      The hidden states after the final norm, and the new cache.
    """
    x = self.decoder.embed(sequence.tokens)
    deepstack = None
    if visual is not None:
      is_visual = (sequence.visual_index >= 0)[:, :, None]
      index = jnp.maximum(sequence.visual_index, 0)
      packed = take_rows(visual.astype(x.dtype), index)
      tokens, deepstack = unpack_visual(packed, x.shape[-1])
      x = jnp.where(is_visual, tokens, x)
      if deepstack is not None:
        deepstack = jnp.where(is_visual[None], deepstack, 0)
    if shift is not None:
      x += shift.astype(x.dtype)
    positions = jnp.moveaxis(sequence.positions, 1, 0)
    return self.decoder(
      x,
      positions,
      sequence.mask,
      cache=cache,
      deepstack=deepstack,
      visible=visible,
    )

  def embed(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P packed'] | None,
  ) -> Float[Array, 'B D']:
    """Returns the normalised hidden state of each row's last token."""
    hidden, _ = self(sequence, visual)
    last = find_last(jnp.asarray(sequence.mask))
    return normalize(take_rows(hidden, last[:, None])[:, 0])


class Embedder(nn.Module):
  """The standard embedding model: pixels and words to one space."""

  config: EmbedderConfig

  def setup(self) -> None:
    """Declares tower and text encoder."""
    tower = self.config.tower
    if isinstance(tower, vision_lib.VisionConfig):
      self.tower = vision_lib.VisionTower(
        tower, jnp.dtype(self.config.decoder.dtype)
      )
    else:
      self.tower = vision_conv.ConvTower(tower)
    self.text = TextEncoder(self.config.decoder)

  def encode_images(
    self, pixels: UInt8[Array, 'N H W 3']
  ) -> Float[Array, 'N M packed']:
    """Returns the packed visual tokens of images of one size."""
    tower = self.config.tower
    if not isinstance(tower, vision_lib.VisionConfig):
      return self.tower(pixels)
    count, height, width = pixels.shape[:3]
    grid = [1, height // tower.patch_size, width // tower.patch_size]
    layout = vision_lib.make_patch_layout(
      np.array([grid]), grid_side=tower.grid_side, merge_size=tower.merge_size
    )
    rows = jax.tree.map(lambda x: jnp.repeat(x[None], count, axis=0), layout)
    return self.encode_patches(vision_lib.cut_patches(pixels, tower), rows)

  def encode_patches(
    self,
    patches: Float[Array, 'N patches patch_dim'],
    layout: vision_lib.PatchLayout,
  ) -> Float[Array, 'N M packed']:
    """Returns the packed visual tokens of images cut into patches, one a row.

    Args:
      patches: of `image_processor.ImageProcessor`, padded.
      layout: of each row, see `vision_qwen3_vl.make_patch_layout`.
    """
    tokens, deepstack = self.tower(patches, layout)
    return pack_visual(tokens, deepstack)

  def embed(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P packed'] | None,
  ) -> Float[Array, 'B D']:
    """Returns the embedding of each row."""
    return self.text.embed(sequence, visual)

  def __call__(
    self,
    sequence: sequence_lib.Sequence,
    pixels: UInt8[Array, 'B H W 3'],
  ) -> Float[Array, 'B D']:
    """Embeds rows of one image each, straight from pixels."""
    return self.embed(sequence, self.encode_images(pixels))

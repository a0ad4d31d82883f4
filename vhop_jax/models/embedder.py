"""Embeds images and texts: vision tower, decoder, pooled last token."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import vision_conv
from vhop_jax.typing import Array, Bool, Float, Int, UInt8, typed

_NORM_EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class EmbedderConfig:
  """Sizes of an embedding model.

  Attributes:
    tower: the vision tower's sizes.
    decoder: the decoder's sizes; its hidden size is D.
  """

  tower: vision_conv.ConvTowerConfig
  decoder: decoder_lib.DecoderConfig


@typed
def normalize(x: Float[Array, '*B D']) -> Float[Array, '*B D']:
  """Scales each vector to length 1, in float32."""
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(
    jnp.sum(x * x, axis=-1, keepdims=True) + _NORM_EPS**2
  )


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
    self.decoder = decoder_lib.Decoder(self.config)

  def __call__(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P D'] | None,
    cache: decoder_lib.Cache | None = None,
    shift: Float[Array, 'B S D'] | None = None,
    visible: Bool[Array, 'B S slots'] | None = None,
  ) -> tuple[Float[Array, 'B S D'], decoder_lib.Cache | None]:
    """Reads a batch of sequences.

    Args:
      sequence: B rows of S slots.
      visual: the visual tokens of each row, one after the other; None for
        pure texts.
      cache: what was read before, for incremental reading.
      shift: added to what the decoder reads at each slot.
      visible: see `decoder.Decoder`.

    Returns:
      The hidden states after the final norm, and the new cache.
    """
    x = self.decoder.embed(sequence.tokens)
    if visual is not None:
      is_visual = sequence.visual_index >= 0
      index = jnp.maximum(sequence.visual_index, 0)
      x = jnp.where(is_visual[:, :, None], take_rows(visual, index), x)
    if shift is not None:
      x += shift
    positions = jnp.moveaxis(sequence.positions, 1, 0)
    return self.decoder(
      x, positions, sequence.mask, cache=cache, visible=visible
    )

  def embed(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P D'] | None,
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
    self.tower = vision_conv.ConvTower(self.config.tower)
    self.text = TextEncoder(self.config.decoder)

  def encode_images(
    self, pixels: UInt8[Array, 'N H W 3']
  ) -> Float[Array, 'N M D']:
    """Returns the visual tokens of each image."""
    return self.tower(pixels)

  def embed(
    self,
    sequence: sequence_lib.Sequence,
    visual: Float[Array, 'B P D'] | None,
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

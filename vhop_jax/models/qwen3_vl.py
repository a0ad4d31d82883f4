"""Qwen3-VL: tokens and patches to hidden states, and to logits of words."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Array, Bool, Float, Int, typed


@dataclasses.dataclass(frozen=True)
class Qwen3VLConfig:
  """Sizes of the whole model.

  Attributes:
    vision: the vision tower's sizes.
    decoder: the decoder's sizes.
    image_token_id: the token that stands for a visual token.
    tie_word_embeddings: whether the language head is the embedding table.
  """

  vision: vision_lib.VisionConfig
  decoder: decoder_lib.DecoderConfig
  image_token_id: int = 151655
  tie_word_embeddings: bool = True

  def __post_init__(self) -> None:
    if self.vision.out_size != self.decoder.hidden_size:
      raise errors.UsageError(
        f'vision out_size={self.vision.out_size} differs from the '
        f"decoder's hidden_size={self.decoder.hidden_size}"
      )
    if len(self.vision.deepstack_layers) > self.decoder.num_layers:
      raise errors.UsageError(
        f'{len(self.vision.deepstack_layers)} DeepStack features need as many '
        f'decoder layers, and there are {self.decoder.num_layers}'
      )


@typed
def place_visual(
  embeddings: Float[Array, 'B S D'],
  visual: Float[Array, '*rows merged D'],
  deepstack: Float[Array, 'taps *rows merged D'],
  visual_index: Int[Array, 'B S'],
) -> tuple[Float[Array, 'B S D'], Float[Array, 'taps B S D']]:
  """Puts visual tokens at their slots of the sequences.

  Args:
    embeddings: of the text tokens.
    visual: the visual tokens of all images.
    deepstack: their DeepStack features.
    visual_index: which visual token (counted through the rows) a slot shows;
      negative at text and padding.

  Returns:
    The embeddings with the visual tokens in place, and the DeepStack features
    at the same slots, zeros elsewhere.
  """
  width = embeddings.shape[-1]
  is_visual = (visual_index >= 0)[..., None]
  index = jnp.maximum(visual_index, 0)
  tokens = jnp.take(visual.reshape(-1, width), index, axis=0)
  embeddings = jnp.where(is_visual, tokens.astype(embeddings.dtype), embeddings)
  features = deepstack.reshape(deepstack.shape[0], -1, width)
  features = jnp.take(features, index, axis=1)
  return embeddings, jnp.where(is_visual[None], features, 0)


class Qwen3VL(nn.Module):
  """The vision tower and the decoder.

  Parameters: `vision` (see `vision_qwen3_vl`) and `decoder` (see `decoder`).

  Attributes:
    config: sizes.
    dtype: of the computation; parameters stay float32.
  """

  config: Qwen3VLConfig
  dtype: jnp.dtype = jnp.float32

  def setup(self) -> None:
    """Declares the tower and the decoder."""
    self.vision = vision_lib.VisionTower(self.config.vision, self.dtype)
    self.decoder = decoder_lib.Decoder(self.config.decoder, self.dtype)

  def encode_images(
    self,
    patches: Float[Array, '*rows patches patch_dim'],
    layout: vision_lib.PatchLayout,
  ) -> tuple[
    Float[Array, '*rows merged D'], Float[Array, 'taps *rows merged D']
  ]:
    """Turns patches into visual tokens and DeepStack features."""
    return self.vision(patches, layout)

  @typed
  def __call__(
    self,
    tokens: Int[Array, 'B S'],
    positions: Int[Array, '3 B S'],
    mask: Bool[Array, 'B S'],
    *,
    patches: Float[Array, '*rows patches patch_dim'] | None = None,
    layout: vision_lib.PatchLayout | None = None,
    visual_index: Int[Array, 'B S'] | None = None,
    cache: decoder_lib.Cache | None = None,
  ) -> tuple[Float[Array, 'B S D'], decoder_lib.Cache | None]:
    """Computes the last hidden states of sequences with images in them.

    Args:
      tokens: with an image token for each visual token.
      positions: see `positions.compute_rope_positions`.
      mask: True at tokens, False at padding.
      patches: of all images, packed; None for text alone.
      layout: see `vision_qwen3_vl.make_patch_layout`; goes with `patches`.
      visual_index: see `positions.compute_visual_index`; goes with `patches`.
      cache: slots before this segment.

    Returns:
      Hidden states after the final norm and the new cache (or None).
    """
    x = self.decoder.embed(tokens)
    deepstack = None
    if patches is not None:
      if layout is None or visual_index is None:
        raise ValueError('patches need a layout and a visual_index')
      visual, deepstack = self.encode_images(patches, layout)
      x, deepstack = place_visual(x, visual, deepstack, visual_index)
      if not deepstack.shape[0]:
        deepstack = None
    return self.decoder(x, positions, mask, cache=cache, deepstack=deepstack)


class Head(nn.Module):
  """Holds the kernel of a language head that is not the embedding table."""

  hidden_size: int
  vocab_size: int

  @nn.compact
  def __call__(self) -> Float[Array, 'D V']:
    """Returns the kernel."""
    kernel: Array = self.param(
      'kernel',
      decoder_lib.partition(
        nn.initializers.normal(self.hidden_size**-0.5), ('embed', 'vocab')
      ),
      (self.hidden_size, self.vocab_size),
      jnp.float32,
    )
    return kernel


class Qwen3VLForConditionalGeneration(Qwen3VL):
  """The model with its language head.

  Parameters: those of `Qwen3VL` and, unless the embeddings are tied, `head`
  with `kernel` [embed, vocab].
  """

  def setup(self) -> None:
    """Declares the model and the head."""
    super().setup()
    decoder = self.config.decoder
    if not self.config.tie_word_embeddings:
      self.head = Head(decoder.hidden_size, decoder.vocab_size)

  def compute_logits(
    self, hidden: Float[Array, '*rows D']
  ) -> Float[Array, '*rows V']:
    """Returns the logits of the next token, in float32."""
    if self.config.tie_word_embeddings:
      kernel = self.decoder.embedding.T
    else:
      kernel = self.head()
    flat = hidden.reshape(-1, hidden.shape[-1]).astype(self.dtype)
    # Not rounded to the dtype of the computation: close tokens would tie.
    logits = jnp.matmul(
      flat, kernel.astype(self.dtype), preferred_element_type=jnp.float32
    )
    return logits.reshape(*hidden.shape[:-1], -1)

"""Qwen3-VL without its language-model head: tokens and patches to states."""

from collections.abc import Mapping
import dataclasses
from typing import Any

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
  """

  vision: vision_lib.VisionConfig
  decoder: decoder_lib.DecoderConfig
  image_token_id: int = 151655

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

  @classmethod
  def from_hf_dict(cls, config: Mapping[str, Any]) -> 'Qwen3VLConfig':
    """Reads the content of a Hugging Face `config.json`.

    Args:
      config: the parsed file, with `text_config` and `vision_config`.

    Returns:
      The sizes.

    Raises:
      DataError: if a field is missing or names something not implemented.
    """
    try:
      return _read_hf_dict(cls, config)
    except KeyError as error:
      raise errors.DataError(
        f'config.json lacks {error.args[0]!r}: is it that of a Qwen3-VL model?'
      ) from error


def _read_hf_dict(
  cls: type[Qwen3VLConfig], config: Mapping[str, Any]
) -> Qwen3VLConfig:
  """Reads the fields; a missing one is a KeyError."""
  text, vision = config['text_config'], config['vision_config']
  # transformers 5 writes `rope_parameters`, the released files have
  # `rope_scaling` beside `rope_theta`.
  rope = text.get('rope_parameters') or {
    'rope_theta': text['rope_theta'],
    **(text.get('rope_scaling') or {}),
  }
  for name, value, known in (
    ('text hidden_act', text.get('hidden_act', 'silu'), 'silu'),
    ('text attention_bias', text.get('attention_bias', False), False),
    ('text rope_type', rope.get('rope_type', 'default'), 'default'),
    ('text mrope_interleaved', rope.get('mrope_interleaved', True), True),
    (
      'vision hidden_act',
      vision.get('hidden_act', 'gelu_pytorch_tanh'),
      'gelu_pytorch_tanh',
    ),
    ('vision in_channels', vision.get('in_channels', 3), 3),
  ):
    if value != known:
      raise errors.DataError(
        f'config.json: {name}={value!r} is not implemented, only {known!r}'
      )
  grid_side = int(vision['num_position_embeddings'] ** 0.5)
  return cls(
    vision=vision_lib.VisionConfig(
      hidden_size=vision['hidden_size'],
      num_layers=vision['depth'],
      num_heads=vision['num_heads'],
      mlp_size=vision['intermediate_size'],
      out_size=vision['out_hidden_size'],
      deepstack_layers=tuple(vision['deepstack_visual_indexes']),
      patch_size=vision['patch_size'],
      temporal_patch_size=vision['temporal_patch_size'],
      merge_size=vision['spatial_merge_size'],
      grid_side=grid_side,
    ),
    decoder=decoder_lib.DecoderConfig(
      vocab_size=text['vocab_size'],
      hidden_size=text['hidden_size'],
      num_layers=text['num_hidden_layers'],
      num_heads=text['num_attention_heads'],
      num_kv_heads=text['num_key_value_heads'],
      head_dim=text['head_dim'],
      mlp_size=text['intermediate_size'],
      rope_theta=float(rope['rope_theta']),
      mrope_section=tuple(rope.get('mrope_section', (24, 20, 20))),
      rms_norm_eps=text['rms_norm_eps'],
    ),
    image_token_id=config['image_token_id'],
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

"""Reads and writes the config.json of a Hugging Face Qwen3-VL folder."""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib

FILE = 'config.json'
# How the released files say it; transformers reads both this and its own way.
_ARCHITECTURE = 'Qwen3VLForConditionalGeneration'

# Fields that change no number of a forward pass: names, training and
# generation settings, and what tells tokens apart that we are not shown.
_IGNORED = frozenset(
  (
    '_attn_implementation_autoset',
    '_name_or_path',
    'architectures',
    'bos_token_id',
    'chunk_size_feed_forward',
    'dtype',
    'eos_token_id',
    'id2label',
    'initializer_range',
    'is_encoder_decoder',
    'label2id',
    'max_position_embeddings',
    'max_window_layers',
    'model_type',
    'output_attentions',
    'output_hidden_states',
    'pad_token_id',
    'problem_type',
    'return_dict',
    'torch_dtype',
    'transformers_version',
    'use_cache',
    'video_token_id',
    'vision_end_token_id',
    'vision_start_token_id',
  )
)
# Fields that would change numbers if they were anything else.
_FIXED: Mapping[str, Mapping[str, Any]] = {
  '': {'model_type': 'qwen3_vl'},
  'text_config': {
    'attention_bias': False,
    # Of training alone, and fine-tuning here has none.
    'attention_dropout': 0.0,
    'hidden_act': 'silu',
    'model_type': 'qwen3_vl_text',
    'sliding_window': None,
    'use_sliding_window': False,
  },
  'vision_config': {'hidden_act': 'gelu_pytorch_tanh', 'in_channels': 3},
  'rope': {
    'mrope_interleaved': True,
    'rope_type': 'default',
    'type': 'default',
  },
  'vision rope': {'rope_theta': vision_lib.ROPE_THETA, 'rope_type': 'axial'},
}
_READ: Mapping[str, frozenset[str]] = {
  '': frozenset(
    ('image_token_id', 'text_config', 'tie_word_embeddings', 'vision_config')
  ),
  'text_config': frozenset(
    (
      'head_dim',
      'hidden_size',
      'intermediate_size',
      'num_attention_heads',
      'num_hidden_layers',
      'num_key_value_heads',
      'rms_norm_eps',
      'rope_parameters',
      'rope_scaling',
      'rope_theta',
      'tie_word_embeddings',
      'vocab_size',
    )
  ),
  'vision_config': frozenset(
    (
      'deepstack_visual_indexes',
      'depth',
      'hidden_size',
      'intermediate_size',
      'num_heads',
      'num_position_embeddings',
      'out_hidden_size',
      'patch_size',
      'rope_parameters',
      'spatial_merge_size',
      'temporal_patch_size',
    )
  ),
  'rope': frozenset(('mrope_section', 'rope_theta')),
  'vision rope': frozenset(),
}


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads a folder's config.json.

  Raises:
    DataError: there is no such file, or it is no JSON object.
  """
  path = pathlib.Path(folder) / FILE
  if not path.is_file():
    raise errors.DataError(
      f'{folder} has no {FILE}: give the folder of a Hugging Face model'
    )
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise errors.DataError(
      f'{path} is no JSON ({error}): fetch the model anew'
    ) from error
  if not isinstance(content, dict):
    raise errors.DataError(f'{path} holds no JSON object: fetch it anew')
  return content


def parse(content: Mapping[str, Any]) -> qwen3_vl_lib.Qwen3VLConfig:
  """Turns the content of a config.json into sizes.

  Args:
    content: with `text_config` and `vision_config`.

  Raises:
    DataError: a field is missing, or it or its value is not implemented.
  """
  try:
    return _parse(content)
  except KeyError as error:
    raise errors.DataError(
      f'{FILE} lacks {error.args[0]!r}: is it that of a Qwen3-VL model?'
    ) from error
  except (TypeError, ValueError) as error:
    raise errors.DataError(
      f'{FILE} has a field of the wrong kind ({error}): fetch it anew'
    ) from error
  except errors.UsageError as error:
    raise errors.DataError(f'{FILE}: {error}') from error


def _check(section: str, fields: Mapping[str, Any]) -> None:
  """Refuses fields that would change numbers in a way not implemented."""
  fixed = _FIXED[section]
  shown = f'{section} ' if section else ''
  for name, value in fields.items():
    if name in fixed:
      if value is not None and value != fixed[name]:
        raise errors.DataError(
          f'{FILE}: {shown}{name}={value!r} is not implemented, only'
          f' {fixed[name]!r}'
        )
    elif name not in _READ[section] and name not in _IGNORED:
      raise errors.DataError(
        f'{FILE}: {shown}{name}={value!r} is a field that this version does not'
        ' know, so it may compute other numbers than the model means'
      )


def _parse(content: Mapping[str, Any]) -> qwen3_vl_lib.Qwen3VLConfig:
  """Reads the fields; a missing one is a KeyError."""
  text, vision = dict(content['text_config']), dict(content['vision_config'])
  # transformers 5 writes `rope_parameters`; the released files have
  # `rope_scaling` beside `rope_theta`.
  rope = text.get('rope_parameters') or {
    'rope_theta': text['rope_theta'],
    **(text.get('rope_scaling') or {}),
  }
  _check('', content)
  _check('text_config', text)
  _check('vision_config', vision)
  _check('rope', rope)
  _check('vision rope', vision.get('rope_parameters') or {})
  positions = vision['num_position_embeddings']
  grid_side = round(positions**0.5)
  if grid_side**2 != positions:
    raise errors.DataError(
      f'{FILE}: num_position_embeddings={positions} is no square'
    )
  return qwen3_vl_lib.Qwen3VLConfig(
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
    image_token_id=content['image_token_id'],
    tie_word_embeddings=bool(
      content.get('tie_word_embeddings', text.get('tie_word_embeddings', False))
    ),
  )


def make(config: qwen3_vl_lib.Qwen3VLConfig, dtype: str) -> dict[str, Any]:
  """Makes the content of a config.json.

  Args:
    config: sizes.
    dtype: of the weights, e.g. 'bfloat16'.
  """
  vision, text = config.vision, config.decoder
  return {
    'architectures': [_ARCHITECTURE],
    'dtype': dtype,
    'image_token_id': config.image_token_id,
    'model_type': 'qwen3_vl',
    'text_config': {
      'attention_bias': False,
      'attention_dropout': 0.0,
      'dtype': dtype,
      'head_dim': text.head_dim,
      'hidden_act': 'silu',
      'hidden_size': text.hidden_size,
      'intermediate_size': text.mlp_size,
      'model_type': 'qwen3_vl_text',
      'num_attention_heads': text.num_heads,
      'num_hidden_layers': text.num_layers,
      'num_key_value_heads': text.num_kv_heads,
      'rms_norm_eps': text.rms_norm_eps,
      'rope_parameters': {
        'mrope_interleaved': True,
        'mrope_section': list(text.mrope_section),
        'rope_theta': text.rope_theta,
        'rope_type': 'default',
      },
      'tie_word_embeddings': config.tie_word_embeddings,
      'vocab_size': text.vocab_size,
    },
    'tie_word_embeddings': config.tie_word_embeddings,
    'vision_config': {
      'deepstack_visual_indexes': list(vision.deepstack_layers),
      'depth': vision.num_layers,
      'dtype': dtype,
      'hidden_act': 'gelu_pytorch_tanh',
      'hidden_size': vision.hidden_size,
      'in_channels': 3,
      'intermediate_size': vision.mlp_size,
      'model_type': 'qwen3_vl_vision',
      'num_heads': vision.num_heads,
      'num_position_embeddings': vision.grid_side**2,
      'out_hidden_size': vision.out_size,
      'patch_size': vision.patch_size,
      'spatial_merge_size': vision.merge_size,
      'temporal_patch_size': vision.temporal_patch_size,
    },
  }


def _make_size(
  *,
  hidden_size: int,
  num_layers: int,
  num_heads: int,
  mlp_size: int,
  vision: vision_lib.VisionConfig,
  tie_word_embeddings: bool,
  vocab_size: int = 151936,
  num_kv_heads: int = 8,
  head_dim: int = 128,
  mrope_section: tuple[int, int, int] = (24, 20, 20),
) -> qwen3_vl_lib.Qwen3VLConfig:
  return qwen3_vl_lib.Qwen3VLConfig(
    vision=vision,
    decoder=decoder_lib.DecoderConfig(
      vocab_size=vocab_size,
      hidden_size=hidden_size,
      num_layers=num_layers,
      num_heads=num_heads,
      num_kv_heads=num_kv_heads,
      head_dim=head_dim,
      mlp_size=mlp_size,
      mrope_section=mrope_section,
    ),
    tie_word_embeddings=tie_word_embeddings,
  )


# The released sizes, and one for tests of the same architecture.
SIZES: Mapping[str, qwen3_vl_lib.Qwen3VLConfig] = {
  'tiny': _make_size(
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    mlp_size=96,
    mrope_section=(4, 2, 2),
    vision=vision_lib.VisionConfig(
      hidden_size=32,
      num_layers=2,
      num_heads=2,
      mlp_size=64,
      out_size=64,
      deepstack_layers=(0,),
      grid_side=6,
    ),
    tie_word_embeddings=True,
  ),
  '2b': _make_size(
    hidden_size=2048,
    num_layers=28,
    num_heads=16,
    mlp_size=6144,
    vision=vision_lib.VisionConfig(
      hidden_size=1024,
      num_layers=24,
      num_heads=16,
      mlp_size=4096,
      out_size=2048,
      deepstack_layers=(5, 11, 17),
    ),
    tie_word_embeddings=True,
  ),
  '8b': _make_size(
    hidden_size=4096,
    num_layers=36,
    num_heads=32,
    mlp_size=12288,
    vision=vision_lib.VisionConfig(
      hidden_size=1152,
      num_layers=27,
      num_heads=16,
      mlp_size=4304,
      out_size=4096,
      deepstack_layers=(8, 16, 24),
    ),
    tie_word_embeddings=False,
  ),
}


def update(content: Mapping[str, Any], dtype: str) -> dict[str, Any]:
  """Returns the content of a config.json for the same model in another dtype.

  Args:
    content: of the model's own file; kept but for the dtype.
    dtype: of the weights.
  """

  def walk(value: Any) -> Any:
    if not isinstance(value, dict):
      return value
    return {
      name: dtype if name in ('dtype', 'torch_dtype') and inner else walk(inner)
      for name, inner in value.items()
    }

  updated: dict[str, Any] = walk(dict(content))
  return updated

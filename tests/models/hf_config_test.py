"""Tests what is read of a config.json and what is refused."""

import copy
import json

import pytest

from vhop_jax import errors
from vhop_jax.models import hf_config, hf_names

# The content of Qwen3-VL-2B's config.json, as far as it is read.
HF_2B = {
  'image_token_id': 151655,
  'text_config': {
    'attention_bias': False,
    'head_dim': 128,
    'hidden_act': 'silu',
    'hidden_size': 2048,
    'intermediate_size': 6144,
    'num_attention_heads': 16,
    'num_hidden_layers': 28,
    'num_key_value_heads': 8,
    'rms_norm_eps': 1e-06,
    'rope_scaling': {
      'mrope_interleaved': True,
      'mrope_section': [24, 20, 20],
      'rope_type': 'default',
    },
    'rope_theta': 5000000,
    'vocab_size': 151936,
  },
  'vision_config': {
    'deepstack_visual_indexes': [5, 11, 17],
    'depth': 24,
    'hidden_act': 'gelu_pytorch_tanh',
    'hidden_size': 1024,
    'in_channels': 3,
    'intermediate_size': 4096,
    'num_heads': 16,
    'num_position_embeddings': 2304,
    'out_hidden_size': 2048,
    'patch_size': 16,
    'spatial_merge_size': 2,
    'temporal_patch_size': 2,
  },
}


def test_config_of_2b_is_read():
  config = hf_config.parse(HF_2B | {'tie_word_embeddings': True})
  assert config == hf_config.SIZES['2b']
  assert config.decoder.rope_theta == 5e6
  assert config.vision.grid_side == 48
  assert config.vision.patch_dim == 1536


@pytest.mark.parametrize('name', hf_config.SIZES)
def test_written_config_is_read(name):
  content = json.loads(json.dumps(hf_config.make(hf_config.SIZES[name], 'x')))
  assert hf_config.parse(content) == hf_config.SIZES[name]


@pytest.mark.parametrize(
  ('name', 'with_head', 'count'),
  [
    # What the released files hold.
    ('2b', False, 2_127_532_032),
    ('8b', True, 8_767_123_696),
  ],
)
def test_sizes_have_the_released_number_of_parameters(name, with_head, count):
  tensors = hf_names.make_tensors(hf_config.SIZES[name], with_head=with_head)
  total = 0
  for tensor in tensors.values():
    size = 1
    for side in tensor.shape:
      size *= side
    total += size
  assert total == count


@pytest.mark.parametrize(
  ('part', 'name', 'value', 'message'),
  [
    ('text_config', 'hidden_act', 'gelu', 'hidden_act'),
    ('text_config', 'attention_bias', True, 'attention_bias'),
    ('text_config', 'sliding_window', 128, 'sliding_window=128'),
    ('text_config', 'logit_softcap', 30.0, 'logit_softcap.* not know'),
    ('vision_config', 'hidden_act', 'gelu', 'vision_config hidden_act'),
    ('vision_config', 'window_size', 8, 'window_size'),
    ('vision_config', 'num_position_embeddings', 2300, 'no square'),
    ('vision_config', 'depth', 3, 'deepstack_layers'),
    ('vision_config', 'depth', 'three', 'wrong kind'),
  ],
)
def test_what_is_not_implemented_is_refused(part, name, value, message):
  content = copy.deepcopy(HF_2B)
  content[part][name] = value
  with pytest.raises(errors.DataError, match=message):
    hf_config.parse(content)


def test_scaled_positions_are_refused():
  content = copy.deepcopy(HF_2B)
  content['text_config']['rope_scaling']['rope_type'] = 'yarn'
  with pytest.raises(errors.DataError, match='rope_type'):
    hf_config.parse(content)
  content['text_config']['rope_scaling'] = {'factor': 4.0}
  with pytest.raises(errors.DataError, match=r'rope factor=4\.0'):
    hf_config.parse(content)


def test_config_of_another_model_is_refused():
  with pytest.raises(errors.DataError, match="lacks 'text_config'"):
    hf_config.parse({'model_type': 'bert'})


@pytest.mark.parametrize(
  ('text', 'words'), [('{', 'no JSON'), ('[1]', 'no JSON object')]
)
def test_damaged_file_is_named(tmp_path, text, words):
  (tmp_path / 'config.json').write_text(text)
  with pytest.raises(errors.DataError, match=f'config.json.*{words}'):
    hf_config.read(tmp_path)


def test_dtype_alone_is_updated():
  content = {'dtype': 'float32', 'a': {'torch_dtype': 'x', 'dtype': None}}
  assert hf_config.update(content, 'bfloat16') == {
    'dtype': 'bfloat16',
    'a': {'torch_dtype': 'bfloat16', 'dtype': None},
  }

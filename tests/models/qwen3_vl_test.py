import copy
import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.models import qwen3_vl

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
  config = qwen3_vl.Qwen3VLConfig.from_hf_dict(HF_2B)
  assert config.decoder.num_layers == 28
  assert config.decoder.rope_theta == 5e6
  assert config.decoder.mrope_section == (24, 20, 20)
  assert config.vision.grid_side == 48
  assert config.vision.patch_dim == 1536
  assert config.vision.deepstack_layers == (5, 11, 17)


@pytest.mark.parametrize(
  'part, name, value, message',
  [
    ('text_config', 'hidden_act', 'gelu', 'hidden_act'),
    ('text_config', 'attention_bias', True, 'attention_bias'),
    ('vision_config', 'hidden_act', 'gelu', 'vision hidden_act'),
  ],
)
def test_what_is_not_implemented_is_refused(part, name, value, message):
  content = copy.deepcopy(HF_2B)
  content[part][name] = value
  with pytest.raises(errors.DataError, match=message):
    qwen3_vl.Qwen3VLConfig.from_hf_dict(content)


def test_config_of_another_model_is_refused():
  with pytest.raises(errors.DataError, match="lacks 'text_config'"):
    qwen3_vl.Qwen3VLConfig.from_hf_dict({'model_type': 'bert'})


def test_parts_of_different_width_are_refused():
  config = qwen3_vl.Qwen3VLConfig.from_hf_dict(HF_2B)
  vision = dataclasses.replace(config.vision, out_size=1024)
  with pytest.raises(errors.UsageError, match='out_size=1024'):
    dataclasses.replace(config, vision=vision)


def test_visual_tokens_go_where_the_index_says():
  # Two rows of visual tokens are counted through: the second row's first is
  # token 2.
  visual = jnp.arange(8.0).reshape(2, 2, 2)
  embeddings, deepstack = qwen3_vl.place_visual(
    -jnp.ones((1, 3, 2)), visual, visual[None] * 10, jnp.array([[2, -1, 1]])
  )
  np.testing.assert_array_equal(embeddings[0], [[4, 5], [-1, -1], [2, 3]])
  np.testing.assert_array_equal(deepstack[0, 0], [[40, 50], [0, 0], [20, 30]])

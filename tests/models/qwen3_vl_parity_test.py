"""Compares our Qwen3-VL with transformers' on random tiny models."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax import errors
from vhop_jax.models import convert, qwen3_vl, vision_qwen3_vl
from vhop_jax.models import positions as positions_lib

pytestmark = pytest.mark.parity

torch = pytest.importorskip('torch', reason='needs the extra [parity]')
transformers = pytest.importorskip(
  'transformers', reason='needs the extra [parity]'
)

IMAGE = 90
TOLERANCE = 1e-4

# Layers, heads, key-value heads, head width and DeepStack taps all vary; the
# last one has a vision tower deeper than the decoder and no square table.
CONFIGS = {
  'gqa': dict(
    text=dict(num_hidden_layers=3, num_attention_heads=4, head_dim=16),
    kv=2,
    section=[4, 2, 2],
    vision=dict(depth=3, num_heads=2, hidden_size=32, grid=6),
    taps=[0, 1],
  ),
  'one_tap': dict(
    text=dict(num_hidden_layers=2, num_attention_heads=6, head_dim=12),
    kv=3,
    section=[2, 2, 2],
    vision=dict(depth=2, num_heads=4, hidden_size=48, grid=5),
    taps=[1],
  ),
  'deep_vision': dict(
    text=dict(num_hidden_layers=4, num_attention_heads=3, head_dim=32),
    kv=1,
    section=[6, 5, 5],
    vision=dict(depth=5, num_heads=3, hidden_size=24, grid=9),
    taps=[0, 2, 3],
  ),
}


def make_reference(spec, seed):
  """Makes a random reference model and our config of the same sizes."""
  vision = dict(spec['vision'])
  config = transformers.Qwen3VLConfig(
    text_config=dict(
      vocab_size=97,
      hidden_size=40,
      intermediate_size=56,
      num_key_value_heads=spec['kv'],
      max_position_embeddings=512,
      rope_parameters=dict(
        rope_type='default',
        rope_theta=5e6,
        mrope_section=spec['section'],
        mrope_interleaved=True,
      ),
      **spec['text'],
    ),
    vision_config=dict(
      intermediate_size=52,
      num_position_embeddings=vision.pop('grid') ** 2,
      patch_size=4,
      out_hidden_size=40,
      deepstack_visual_indexes=spec['taps'],
      **vision,
    ),
    image_token_id=IMAGE,
    video_token_id=91,
    vision_start_token_id=92,
    vision_end_token_id=93,
  )
  torch.manual_seed(seed)
  model = transformers.Qwen3VLModel(config).float().eval()
  with torch.no_grad():
    for parameter in model.parameters():
      # The defaults (norms of 1, biases of 0) would hide a forgotten one.
      parameter.add_(torch.randn_like(parameter) * 0.1)
  return model, qwen3_vl.Qwen3VLConfig.from_hf_dict(config.to_dict())


def make_batch(rng, config):
  """Makes right-padded rows with two images, one image and none."""
  grids = np.array([[1, 4, 6], [1, 2, 2], [1, 8, 4]])
  rows = []
  for images in ((0, 1), (2,), ()):
    row = list(rng.integers(1, 89, 3))
    for image in images:
      row += [92] + [IMAGE] * (grids[image].prod() // 4) + [93]
      row += list(rng.integers(1, 89, 2))
    rows.append(row)
  size = max(map(len, rows)) + 2
  tokens = np.zeros((len(rows), size), np.int64)
  mask = np.zeros((len(rows), size), bool)
  for i, row in enumerate(rows):
    tokens[i, : len(row)] = row
    mask[i, : len(row)] = True
  patches = rng.normal(size=(grids.prod(-1).sum(), config.vision.patch_dim))
  return tokens, mask, grids, patches.astype(np.float32)


def run_reference(model, tokens, mask, grids, patches):
  with torch.no_grad():
    output = model(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask.astype(np.int64)),
      pixel_values=torch.tensor(patches),
      image_grid_thw=torch.tensor(grids),
      mm_token_type_ids=torch.tensor((tokens == IMAGE).astype(np.int32)),
    )
  return output.last_hidden_state.numpy()


def run_ours(params, config, tokens, mask, grids, patches, pad):
  vision = config.vision
  layout = vision_qwen3_vl.make_patch_layout(
    grids, grid_side=vision.grid_side, length=len(patches) + pad
  )
  hidden, _ = quick.jit(qwen3_vl.Qwen3VL(config).apply)(
    {'params': params},
    jnp.asarray(tokens, jnp.int32),
    jnp.asarray(
      positions_lib.compute_rope_positions(
        tokens, grids, image_token_id=IMAGE, mask=mask
      )
    ),
    jnp.asarray(mask),
    patches=jnp.pad(patches, ((0, pad), (0, 0))),
    layout=jax.tree.map(jnp.asarray, layout),
    visual_index=jnp.asarray(
      positions_lib.compute_visual_index(tokens, image_token_id=IMAGE)
    ),
  )
  return np.asarray(hidden)


@pytest.mark.parametrize('name', CONFIGS)
def test_last_hidden_state_is_the_reference(name):
  model, config = make_reference(CONFIGS[name], seed=len(name))
  params = convert.convert(model.state_dict(), config)
  batch = make_batch(np.random.default_rng(0), config)
  mask = batch[1]
  reference = run_reference(model, *batch)[mask]
  ours = run_ours(params, config, *batch, pad=8)[mask]
  difference = np.abs(ours - reference).max() / np.abs(reference).max()
  print(f'{name}: relative difference {difference:.2e}')
  assert difference < TOLERANCE


@pytest.mark.parametrize('seed', range(3))
def test_positions_are_the_reference(seed):
  model, config = make_reference(CONFIGS['gqa'], seed=0)
  rng = np.random.default_rng(seed)
  tokens, mask, grids, _ = make_batch(rng, config)
  # Padding anywhere in the text too, which the reference allows.
  mask &= (tokens >= IMAGE) | (rng.random(mask.shape) < 0.7)
  expected, _ = model.get_rope_index(
    torch.tensor(tokens),
    torch.tensor((tokens == IMAGE).astype(np.int32)),
    torch.tensor(grids),
    attention_mask=torch.tensor(mask.astype(np.int64)),
  )
  ours = positions_lib.compute_rope_positions(
    tokens, grids, image_token_id=IMAGE, mask=mask
  )
  np.testing.assert_array_equal(ours, expected.numpy())


def test_position_taps_are_the_reference():
  vision_utils = importlib.import_module('transformers.vision_utils')
  grids = np.array([[1, 2, 2], [1, 6, 48], [1, 20, 14], [2, 4, 6]])
  layout = vision_qwen3_vl.make_patch_layout(grids, grid_side=48)
  index, weight = vision_utils.get_vision_interpolation_indices_and_weights(
    torch.tensor(grids), 48, align_corners=True, spatial_merge_size=2
  )
  rotary = vision_utils.get_vision_position_ids(torch.tensor(grids), 2)
  np.testing.assert_array_equal(layout.position_index, index.numpy())
  np.testing.assert_array_equal(layout.position_weight, weight.numpy())
  np.testing.assert_array_equal(layout.rotary, rotary.numpy())


def test_missing_weight_and_unknown_weight_are_named():
  model, config = make_reference(CONFIGS['one_tap'], seed=0)
  weights = dict(model.state_dict())
  with pytest.raises(errors.DataError, match=r"'visual\.extra'"):
    convert.convert(weights | {'visual.extra': np.zeros(1)}, config)
  del weights['language_model.layers.1.mlp.up_proj.weight']
  with pytest.raises(errors.DataError, match=r'layers\.1\.mlp\.up_proj'):
    convert.convert(weights, config)

"""Compares our Qwen3-VL with transformers' on random tiny models."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax.models import (
  convert,
  generate,
  hf_config,
  qwen3_vl,
  vision_qwen3_vl,
)
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


def make_reference(spec, seed, kind='Qwen3VLModel', tie=False):
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
    tie_word_embeddings=tie,
  )
  torch.manual_seed(seed)
  model = getattr(transformers, kind)(config).float().eval()
  with torch.no_grad():
    for parameter in model.parameters():
      # The defaults (norms of 1, biases of 0) would hide a forgotten one.
      parameter.add_(torch.randn_like(parameter) * 0.1)
  return model, hf_config.parse(config.to_dict())


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


def make_prompt(config, tokens, mask, grids, patches):
  """Lays a batch out as a prompt of ours."""
  layout = vision_qwen3_vl.make_patch_layout(
    grids, grid_side=config.vision.grid_side
  )
  return generate.Prompt(
    tokens=tokens.astype(np.int32),
    positions=positions_lib.compute_rope_positions(
      tokens, grids, image_token_id=IMAGE, mask=mask
    ),
    mask=mask,
    patches=patches,
    layout=layout,
    visual_index=positions_lib.compute_visual_index(
      tokens, image_token_id=IMAGE
    ),
  )


def run_language_model(model, tokens, mask, grids, patches, **settings):
  """Generates with the reference, or computes its logits without settings."""
  with torch.no_grad():
    return (model.generate if settings else model)(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask.astype(np.int64)),
      pixel_values=torch.tensor(patches),
      image_grid_thw=torch.tensor(grids),
      mm_token_type_ids=torch.tensor((tokens == IMAGE).astype(np.int32)),
      **settings,
    )


@pytest.mark.parametrize('tie', [True, False])
def test_logits_and_greedy_text_are_the_reference(tie):
  model, config = make_reference(
    CONFIGS['gqa'], 3, 'Qwen3VLForConditionalGeneration', tie
  )
  params = convert.convert(model.state_dict(), config)
  module = qwen3_vl.Qwen3VLForConditionalGeneration(config)
  tokens, mask, grids, patches = make_batch(np.random.default_rng(0), config)
  reference = run_language_model(model, tokens, mask, grids, patches).logits
  prompt = make_prompt(config, tokens, mask, grids, patches)

  def compute_logits(prompt):
    hidden, _ = module.apply(
      {'params': params},
      prompt.tokens,
      prompt.positions,
      prompt.mask,
      patches=prompt.patches,
      layout=prompt.layout,
      visual_index=prompt.visual_index,
    )
    return module.apply({'params': params}, hidden, method='compute_logits')

  ours = np.asarray(quick.jit(compute_logits)(prompt))
  expected = reference.numpy()
  difference = np.abs(ours - expected)[mask].max() / np.abs(expected).max()
  assert difference < TOLERANCE

  # The reference generates from prompts that are padded at the left.
  sizes = mask.sum(1)
  left_tokens, left_mask = np.zeros_like(tokens), np.zeros_like(mask)
  for row, size in enumerate(sizes):
    left_tokens[row, -size:], left_mask[row, -size:] = tokens[row, :size], True
  batch = (left_tokens, left_mask, grids, patches)
  expected = run_language_model(
    model,
    *batch,
    max_new_tokens=32,
    do_sample=False,
    eos_token_id=None,
    pad_token_id=0,
  )[:, tokens.shape[1] :].numpy()
  for laid_out in (prompt, make_prompt(config, *batch)):
    made = generate.generate(module, params, laid_out, max_new_tokens=32)
    np.testing.assert_array_equal(made.tokens, expected)
  # Else a wrong cache could not show.
  assert len({tuple(row) for row in expected}) == len(expected)
  assert len(set(expected.ravel().tolist())) > 5


@pytest.mark.parametrize('tie', [True, False])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_folders_go_both_ways(tmp_path, tie, dtype):
  kind = 'Qwen3VLForConditionalGeneration'
  model, config = make_reference(CONFIGS['deep_vision'], 1, kind, tie)
  model = model.to(getattr(torch, dtype))
  model.save_pretrained(tmp_path / 'theirs', max_shard_size='60KB')
  params = convert.load_params(tmp_path / 'theirs')
  assert convert.read_config(tmp_path / 'theirs') == config
  for source in (None, tmp_path / 'theirs'):
    ours = convert.save_folder(
      tmp_path / f'ours_{source is None}', params, config, source=source
    )
    again, report = getattr(transformers, kind).from_pretrained(
      ours, output_loading_info=True, dtype='auto'
    )
    assert not any(report.values()), report
    expected, found = model.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
      assert found[name].dtype == weight.dtype
      assert torch.equal(found[name], weight), name

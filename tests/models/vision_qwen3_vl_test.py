import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax import errors
from vhop_jax.models import vision_qwen3_vl as vision_lib

CONFIG = vision_lib.VisionConfig(
  hidden_size=16,
  num_layers=3,
  num_heads=2,
  mlp_size=20,
  out_size=12,
  deepstack_layers=(0, 2),
  patch_size=2,
  grid_side=5,
)
GRIDS = np.array([[1, 4, 2], [1, 2, 2], [1, 2, 4]])


def make_layout(grids, length=None):
  return vision_lib.make_patch_layout(
    np.asarray(grids), grid_side=CONFIG.grid_side, length=length
  )


@functools.cache
def make_params():
  """Makes random parameters, with norms that are not 1."""
  abstract = jax.eval_shape(
    vision_lib.VisionTower(CONFIG).init,
    jax.random.key(0),
    jnp.zeros((4, CONFIG.patch_dim)),
    jax.tree.map(jnp.asarray, make_layout([[1, 2, 2]])),
  )
  rng = np.random.default_rng(0)
  return jax.tree_util.tree_map_with_path(
    lambda path, x: np.asarray(
      ('scale' in str(path[-1])) + 0.3 * rng.normal(size=x.shape), np.float32
    ),
    nn.meta.unbox(abstract),
  )


def make_patches(count, seed=0):
  rng = np.random.default_rng(seed)
  return jnp.asarray(rng.normal(size=(count, CONFIG.patch_dim)), jnp.float32)


def apply_eagerly(patches, layout, config=CONFIG):
  return vision_lib.VisionTower(config).apply(make_params(), patches, layout)


apply = quick.jit(apply_eagerly, static_argnames='config')


def test_packed_images_are_the_images_alone():
  counts = GRIDS.prod(-1)
  patches = make_patches(counts.sum() + 8)
  tokens, deepstack = apply(patches, make_layout(GRIDS, len(patches)))
  assert tokens.shape == (len(patches) // 4, 12)
  assert deepstack.shape == (2, len(patches) // 4, 12)
  assert jnp.isfinite(tokens).all()
  start = 0
  for grid, count in zip(GRIDS, counts, strict=True):
    alone, alone_deepstack = apply(
      patches[start : start + count], make_layout([grid])
    )
    part = slice(start // 4, (start + count) // 4)
    np.testing.assert_allclose(tokens[part], alone, atol=1e-5)
    np.testing.assert_allclose(deepstack[:, part], alone_deepstack, atol=1e-5)
    start += count


def test_rows_are_packs_of_their_own():
  grids = [[[1, 2, 4]], [[1, 4, 2]]]
  patches = jnp.stack([make_patches(8, seed) for seed in range(2)])
  layouts = [make_layout(grid) for grid in grids]
  stacked = jax.tree.map(lambda *x: np.stack(x), *layouts)
  tokens, deepstack = apply(patches, stacked)
  for row in range(2):
    alone, alone_deepstack = apply(patches[row], layouts[row])
    np.testing.assert_allclose(tokens[row], alone, atol=1e-5)
    np.testing.assert_allclose(deepstack[:, row], alone_deepstack, atol=1e-5)


def test_positions_interpolate_between_the_corners_of_the_table():
  # Four rows over a table of side 5: row r stands at r * 4 / 3, so row 1 at
  # 4/3: two thirds of table row 1 and one third of table row 2. Two columns
  # stand at 0 and 4. Blocks of 2 x 2 come one after the other.
  layout = make_layout([[1, 4, 2]])
  np.testing.assert_array_equal(
    layout.rotary,
    [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]],
  )
  np.testing.assert_array_equal(layout.position_index[2], [5, 6, 10, 11])
  np.testing.assert_allclose(
    layout.position_weight[2], [2 / 3, 0, 1 / 3, 0], atol=1e-6
  )
  # The last patch is the table's last entry.
  assert layout.position_index[7] @ layout.position_weight[7] == 24
  np.testing.assert_array_equal(layout.segment, 0)


def test_merged_blocks_come_one_after_the_other():
  # 2 x 4 patches: the left 2 x 2 block, then the right one.
  np.testing.assert_array_equal(
    make_layout([[1, 2, 4]], 12).rotary,
    [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]]
    + [[0, 0]] * 4,
  )
  np.testing.assert_array_equal(
    make_layout([[1, 2, 4]], 12).segment, [0] * 8 + [-1] * 4
  )


@pytest.mark.parametrize('change', [dict(remat='full'), dict(attention='xla')])
def test_remat_and_attention_change_neither_values_nor_gradients(change):
  patches, layout = make_patches(8), make_layout([[1, 4, 2]])

  def loss(patches, config):
    tokens, deepstack = apply_eagerly(patches, layout, config)
    return jnp.sum(jnp.sin(tokens)) + jnp.sum(jnp.cos(deepstack))

  run = quick.jit(jax.value_and_grad(loss), static_argnums=1)
  value, gradient = run(patches, CONFIG)
  other = run(patches, dataclasses.replace(CONFIG, **change))
  np.testing.assert_allclose(other[0], value, rtol=1e-5)
  np.testing.assert_allclose(other[1], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  'grids, length, message',
  [
    ([[1, 3, 2]], None, 'image 0 has 3 x 2 patches'),
    ([[1, 2, 2], [1, 2, 5]], None, 'image 1 has 2 x 5 patches'),
    ([[1, 2, 4]], 4, 'have 8 patches'),
    ([[1, 2, 4]], 10, 'multiple of 4'),
  ],
)
def test_impossible_layouts_are_refused(grids, length, message):
  with pytest.raises(errors.DataError, match=message):
    make_layout(grids, length)


@pytest.mark.parametrize(
  'change, message',
  [
    (dict(deepstack_layers=(2, 0)), 'must ascend'),
    (dict(deepstack_layers=(0, 3)), 'within the 3 blocks'),
    (dict(num_heads=3), 'multiple of 4'),
  ],
)
def test_impossible_sizes_are_refused(change, message):
  with pytest.raises(errors.UsageError, match=message):
    dataclasses.replace(CONFIG, **change)

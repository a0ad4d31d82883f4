"""Tests the parts of the convolutional tower against plain NumPy and lax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import micro, quick
from vhop_jax import errors
from vhop_jax.models import vision_conv

TOWER = micro.SETTINGS['tower']
CONFIG = vision_conv.ConvTowerConfig(
  **{**TOWER, 'channels': (8, 16), 'blocks': (0, 1)}
)


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_space_to_depth_folds_squares_row_by_row():
  # One row of two squares of 2 x 2 positions with one channel.
  x = jnp.arange(8.0).reshape(1, 2, 4, 1)
  folded = vision_conv.space_to_depth(x, 2)
  assert folded.shape == (1, 1, 2, 4)
  assert folded[0, 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_flat_dense_is_dense():
  x, kernel, bias = draw(2, 3, 4, 5), draw(5, 6, seed=1), draw(6, seed=2)
  params = {'dense': {'kernel': kernel, 'bias': bias}}
  y = quick.jit(vision_conv.FlatDense(6).apply)({'params': params}, x)
  np.testing.assert_allclose(
    y, np.einsum('abcd,de->abce', x, kernel) + bias, rtol=1e-4, atol=1e-5
  )


def test_conv3x3_is_a_convolution():
  x, kernel, bias = draw(2, 4, 5, 3), draw(3, 3, 3, 6, seed=1), draw(6, seed=2)
  params = {
    'kernel': {'dense': {'kernel': kernel.reshape(27, 6), 'bias': bias}}
  }
  y = quick.jit(vision_conv.Conv3x3(6).apply)({'params': params}, x)
  expected = jax.lax.conv_general_dilated(
    x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )
  np.testing.assert_allclose(
    y, np.asarray(expected) + bias, rtol=1e-4, atol=1e-5
  )


def test_residual_block_by_numpy():
  x = draw(1, 3, 3, 4)
  module = vision_conv.ResidualBlock()
  params = quick.jit(module.init)(jax.random.key(0), x)['params']
  y = quick.jit(module.apply)({'params': params}, x)
  mean = x.mean(axis=-1, keepdims=True)
  normed = (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)
  padded = np.pad(normed, ((0, 0), (1, 1), (1, 1), (0, 0)))
  kernel = np.asarray(params['conv']['kernel']['dense']['kernel'])
  pointwise = np.asarray(params['pointwise']['dense']['kernel'])
  for i in range(3):
    for j in range(3):
      around = padded[0, i : i + 3, j : j + 3].reshape(-1)
      expected = x[0, i, j] + np.maximum(around @ kernel, 0) @ pointwise
      np.testing.assert_allclose(y[0, i, j], expected, rtol=1e-4, atol=1e-4)


def test_prior_looks_at_each_tokens_share_of_the_width():
  prior = vision_conv._init_prior(jax.random.key(0), (2, 3, 8), jnp.float32)
  # Token 0's centre lies at a quarter of the width, between columns 1 and 2
  # of 8; token 1 mirrors it, and all rows are alike.
  row = np.asarray(prior[0, 0])
  np.testing.assert_allclose(row[1], row[2], rtol=1e-5)
  assert row.argmax() in (1, 2)
  assert (np.diff(row[2:]) < 0).all()
  np.testing.assert_allclose(prior[1], prior[0, :, ::-1], rtol=1e-5)
  np.testing.assert_allclose(prior[:, 0], prior[:, 2])
  # In a softmax most of the weight lies in the left half.
  weights = np.exp(row) / np.exp(row).sum()
  assert weights[:4].sum() > 0.85


def test_tokens_of_a_fresh_tower_see_left_and_right():
  # A picture whose left half changes moves the left token more.
  module = vision_conv.ConvTower(CONFIG)
  pixels = np.random.default_rng(0).integers(
    0, 256, (1, 16, 24, 3), dtype=np.uint8
  )
  params = quick.jit(module.init)(jax.random.key(0), pixels)['params']
  assert params['pool']['prior'].shape == (2, 2, 3)
  encode = quick.jit(lambda x: module.apply({'params': params}, x))
  other = pixels.copy()
  other[:, :, :8] = 255 - other[:, :, :8]
  changed = np.concatenate([other, pixels])
  before = np.asarray(encode(np.concatenate([pixels, pixels])))
  after = np.asarray(encode(changed))
  assert before.shape == (2, 2, TOWER['output_size'])
  moved = np.linalg.norm(after[0] - before[0], axis=-1)
  assert moved[0] > 2 * moved[1]
  # The second picture of the batch did not change, and so do its tokens.
  np.testing.assert_allclose(after[1], before[1], atol=1e-5)


def test_picture_of_another_size_is_refused():
  module = vision_conv.ConvTower(CONFIG)
  init = jax.eval_shape(
    module.init, jax.random.key(0), jnp.zeros((1, 16, 24, 3), jnp.uint8)
  )
  with pytest.raises(Exception, match='shape'):
    jax.eval_shape(module.apply, init, jnp.zeros((1, 24, 24, 3), jnp.uint8))


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'patch_px': 5}, 'width_px=24 .* multiples of 10'),
    ({'height_px': 20}, 'height_px=20 .* multiples of 8'),
    ({'blocks': (1,)}, 'channels=.*blocks='),
    ({'num_heads': 3}, 'num_heads=3'),
  ],
)
def test_sizes_that_do_not_fit_are_usage_errors(change, words):
  values = {**TOWER, 'channels': (8, 16), 'blocks': (0, 1), **change}
  with pytest.raises(errors.UsageError, match=words):
    vision_conv.ConvTowerConfig(**values)

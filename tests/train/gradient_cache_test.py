"""Compares gradients with direct ones, and the memory of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.losses import contrastive
from vhop_jax.train import gradient_cache, sharding

WIDTH, HIDDEN = 6, 48


def make_params():
  rng = np.random.default_rng(0)
  return {
    'in': rng.normal(size=(WIDTH, HIDDEN)).astype(np.float32),
    'out': rng.normal(size=(HIDDEN, WIDTH)).astype(np.float32) / 7,
  }


def make_batch(count):
  rng = np.random.default_rng(1)
  return {
    'x': rng.normal(size=(count, WIDTH)).astype(np.float32),
    # Integers have no gradient.
    'place': np.arange(count),
  }


def encode(params, rows, rng, *, depth=1):
  x = rows['x'] + 0.1 * (rows['place'] % 3)[:, None]
  for _ in range(depth):
    hidden = jnp.tanh(x @ params['in'])
    if rng is not None:
      hidden *= 2.0 * jax.random.bernoulli(rng, 0.5, hidden.shape)
    x = x + hidden @ params['out']
  return x


def compute_loss(embedded):
  half = len(embedded) // 2
  return contrastive.compute_embedding_loss(
    embedded[:half],
    embedded[half:],
    inverse_temperature=5.0,
    query_query=True,
    document_document=True,
    widths=(3, WIDTH),
  )


@pytest.mark.parametrize('chunk', [1, 4, 12])
def test_gradients_are_the_direct_ones(chunk):
  params, batch = make_params(), make_batch(12)

  def cached(params):
    return compute_loss(
      gradient_cache.encode_in_chunks(encode, params, batch, chunk=chunk)
    )

  def direct(params):
    return compute_loss(encode(params, batch, None))

  value, gradients = jax.jit(jax.value_and_grad(cached))(params)
  expected_value, expected = jax.value_and_grad(direct)(params)
  np.testing.assert_allclose(value, expected_value, rtol=1e-6)
  for name in params:
    np.testing.assert_allclose(gradients[name], expected[name], atol=1e-5)
    assert np.abs(expected[name]).max() > 1e-2


def test_both_passes_draw_the_same():
  params, batch, rng = make_params(), make_batch(12), jax.random.key(3)

  def cached(params):
    return compute_loss(
      gradient_cache.encode_in_chunks(encode, params, batch, chunk=4, rng=rng)
    )

  def direct(params):
    # Rows 0, 3, 6, 9 are the first chunk of four.
    parts = [
      encode(params, jax.tree.map(lambda x, i=i: x[i::3], batch), key)
      for i, key in enumerate(jax.random.split(rng, 3))
    ]
    return compute_loss(jnp.stack(parts, axis=1).reshape(12, -1))

  gradients = jax.jit(jax.grad(cached))(params)
  expected = jax.grad(direct)(params)
  for name in params:
    np.testing.assert_allclose(gradients[name], expected[name], atol=1e-5)


def measure_memory(count, chunk):
  """Returns the bytes that the gradient needs beside arguments and results."""

  def loss(params, batch):
    embedded = gradient_cache.encode_in_chunks(
      lambda *args: encode(*args, depth=8), params, batch, chunk=chunk
    )
    return jnp.sum(embedded**2)

  compiled = (
    jax.jit(jax.grad(loss)).lower(make_params(), make_batch(count)).compile()
  )
  return compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_that_of_a_chunk():
  small, large = measure_memory(64, 16), measure_memory(256, 16)
  direct = measure_memory(256, 256)
  # The activations of eight layers, of the whole batch and of a chunk.
  assert direct > 8 * 256 * HIDDEN * 4
  assert large < 0.4 * direct
  # Four times the batch adds its embeddings and their gradients alone.
  assert large - small < 8 * 192 * WIDTH * 4


def count_operations(devices):
  """Returns the floating-point operations of one device."""
  mesh = sharding.make_mesh(data=devices, fsdp=1, tensor=1)
  batch = sharding.put_batch(make_batch(64), mesh)
  params = jax.device_put(make_params(), sharding.replicated(mesh))

  def loss(params, batch):
    embedded = gradient_cache.encode_in_chunks(
      lambda *args: encode(*args, depth=4), params, batch, chunk=16
    )
    return jnp.sum(embedded**2)

  compiled = jax.jit(jax.grad(loss)).lower(params, batch).compile()
  return compiled.cost_analysis()['flops']


def test_devices_share_each_chunk():
  assert count_operations(8) < count_operations(1) / 4


def test_chunk_must_divide_the_batch():
  with pytest.raises(errors.UsageError, match='chunk=5 does not divide'):
    gradient_cache.encode_in_chunks(
      encode, make_params(), make_batch(12), chunk=5
    )

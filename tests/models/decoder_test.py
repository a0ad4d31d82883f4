import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib

CONFIG = decoder_lib.DecoderConfig(
  vocab_size=11,
  hidden_size=16,
  num_layers=3,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_size=24,
  rope_theta=100.0,
  mrope_section=(2, 1, 1),
)
BATCH, SIZE, TAPS = 2, 9, 2


def make_abstract_params():
  return jax.eval_shape(
    decoder_lib.Decoder(CONFIG).init,
    jax.random.key(0),
    jnp.zeros((1, 1, CONFIG.hidden_size)),
    jnp.zeros((3, 1, 1), jnp.int32),
    jnp.ones((1, 1), bool),
  )


@functools.cache
def make_params():
  """Makes random parameters, with norms that are not 1."""
  rng = np.random.default_rng(0)
  return jax.tree_util.tree_map_with_path(
    lambda path, x: np.asarray(
      ('scale' in str(path[-1])) + 0.4 * rng.normal(size=x.shape), np.float32
    ),
    nn.meta.unbox(make_abstract_params()),
  )


def make_inputs(seed=0):
  """Makes a batch with padding in the middle and at the end."""
  rng = np.random.default_rng(seed)
  width = CONFIG.hidden_size
  mask = np.ones((BATCH, SIZE), bool)
  mask[0, 3:5] = False
  mask[1, 7:] = False
  return dict(
    embeddings=jnp.asarray(rng.normal(size=(BATCH, SIZE, width)), jnp.float32),
    positions=jnp.asarray(rng.integers(0, 20, (3, BATCH, SIZE)), jnp.int32),
    mask=jnp.asarray(mask),
    deepstack=jnp.asarray(
      rng.normal(size=(TAPS, BATCH, SIZE, width)), jnp.float32
    ),
  )


def apply_eagerly(inputs, config=CONFIG, cache=None):
  inputs = dict(inputs)
  return decoder_lib.Decoder(config).apply(
    make_params(),
    *(inputs.pop(name) for name in ('embeddings', 'positions', 'mask')),
    cache=cache,
    **inputs,
  )


apply = quick.jit(apply_eagerly, static_argnames='config')


def compute_oracle(params, x, positions, mask, deepstack):
  """Runs one sequence in float64 with loops over layers, heads and slots."""
  p = jax.tree.map(lambda a: np.asarray(a, np.float64), params['params'])

  def norm(y, scale):
    return y / np.sqrt(np.mean(y * y, -1, keepdims=True) + 1e-6) * scale

  def rotate(y, slot):
    # Width 8, so four frequencies; by hand: the second is height's (index 1),
    # the third width's (index 2), the others time's.
    angle = [
      positions[axis, slot] / CONFIG.rope_theta ** (i / 4)
      for i, axis in enumerate((0, 1, 2, 0))
    ]
    z = (y[:4] + 1j * y[4:]) * np.exp(1j * np.array(angle))
    return np.concatenate([z.real, z.imag])

  for layer in range(CONFIG.num_layers):
    w = jax.tree.map(lambda a: a[layer], p['layers'])  # noqa: B023
    y = norm(x, w['attention_norm']['scale'])
    out = np.zeros_like(x)
    for head in range(CONFIG.num_heads):
      kv = head // 2
      q = norm(y @ w['query']['kernel'][:, head], w['query_norm']['scale'])
      k = norm(y @ w['key']['kernel'][:, kv], w['key_norm']['scale'])
      v = y @ w['value']['kernel'][:, kv]
      q = np.stack([rotate(q[s], s) for s in range(SIZE)])
      k = np.stack([rotate(k[s], s) for s in range(SIZE)])
      for s in range(SIZE):
        allowed = [i for i in range(s + 1) if mask[i]]
        weight = np.exp(np.array([q[s] @ k[i] for i in allowed]) / 8**0.5)
        weight /= weight.sum()
        out[s] += weight @ v[allowed] @ w['out']['kernel'][head]
    x = x + out
    y = norm(x, w['mlp_norm']['scale'])
    gate = y @ w['gate']['kernel']
    inner = gate / (1 + np.exp(-gate)) * (y @ w['up']['kernel'])
    x = x + inner @ w['down']['kernel']
    if layer < TAPS:
      x = x + deepstack[layer]
  return norm(x, p['final_norm']['scale'])


def test_layers_are_the_numpy_oracle():
  inputs = make_inputs()
  hidden, cache = apply(inputs)
  assert cache is None
  for row in range(BATCH):
    expected = compute_oracle(
      make_params(),
      np.asarray(inputs['embeddings'][row], np.float64),
      np.asarray(inputs['positions'][:, row]),
      np.asarray(inputs['mask'][row]),
      np.asarray(inputs['deepstack'][:, row], np.float64),
    )
    np.testing.assert_allclose(hidden[row], expected, atol=2e-5)


def test_segments_through_the_cache_are_the_parallel_pass():
  inputs = make_inputs()
  expected, _ = apply(inputs)
  # Room to spare: slots beyond `length` must not be read.
  cache = decoder_lib.make_cache(CONFIG, BATCH, SIZE + 3)
  cache = cache.replace(k=cache.k + 7, v=cache.v + 7)
  parts = []
  for start, end in ((0, 4), (4, 5), (5, 9)):
    part = {
      name: x[:, start:end] if x.ndim < 3 or name == 'embeddings' else x
      for name, x in inputs.items()
    }
    part['positions'] = inputs['positions'][:, :, start:end]
    part['deepstack'] = inputs['deepstack'][:, :, start:end]
    hidden, cache = apply(part, cache=cache)
    parts.append(hidden)
  np.testing.assert_allclose(jnp.concatenate(parts, 1), expected, atol=1e-5)
  assert cache.length == SIZE
  np.testing.assert_array_equal(cache.mask[:, :SIZE], inputs['mask'])
  assert not cache.mask[:, SIZE:].any()


def test_cache_goes_through_scan():
  inputs = make_inputs()
  expected, _ = apply(inputs)

  def step(cache, slot):
    hidden, cache = apply_eagerly(slot, cache=cache)
    return cache, hidden[:, 0]

  # A leading axis of slots, and segments of length 1.
  slots = {
    'embeddings': jnp.moveaxis(inputs['embeddings'], 1, 0)[:, :, None],
    'mask': jnp.moveaxis(inputs['mask'], 1, 0)[:, :, None],
    'positions': jnp.moveaxis(inputs['positions'], 2, 0)[..., None],
    'deepstack': jnp.moveaxis(inputs['deepstack'], 2, 0)[:, :, :, None],
  }
  cache = decoder_lib.make_cache(CONFIG, BATCH, SIZE)
  _, hidden = quick.jit(lambda *x: jax.lax.scan(step, *x))(cache, slots)
  np.testing.assert_allclose(jnp.moveaxis(hidden, 0, 1), expected, atol=1e-5)


def test_jit_is_eager():
  inputs = make_inputs()
  eager, _ = apply_eagerly(inputs)
  jitted, _ = apply(inputs)
  np.testing.assert_allclose(jitted, eager, atol=1e-5)


def test_later_slots_and_padding_change_nothing_before_or_beside_them():
  inputs = make_inputs()
  before, _ = apply(inputs)
  changed = dict(inputs)
  noise = jnp.zeros((BATCH, SIZE, 1)).at[:, 6:].set(5.0).at[0, 3:5].set(5.0)
  changed['embeddings'] = inputs['embeddings'] + noise
  after, _ = apply(changed)
  kept = np.asarray(inputs['mask']) & (np.arange(SIZE)[None] < 6)
  np.testing.assert_array_equal(before[kept], after[kept])
  # The last token of row 0 reads slots 6 .. 8, so it must move.
  assert jnp.abs(before[0, -1] - after[0, -1]).max() > 1e-2


def test_padding_before_the_first_token_gives_finite_gradients():
  inputs = make_inputs()
  inputs['mask'] = inputs['mask'].at[:, :2].set(False)

  def loss(embeddings):
    hidden, _ = apply_eagerly({**inputs, 'embeddings': embeddings})
    return jnp.sum(hidden[:, 5] ** 2)

  gradient = quick.jit(jax.grad(loss))(inputs['embeddings'])
  assert jnp.isfinite(gradient).all()
  np.testing.assert_array_equal(gradient[:, :2], 0)


@pytest.mark.parametrize(
  'change',
  [
    dict(remat='full'),
    dict(remat='dots'),
    dict(scan_unroll=3),
    dict(attention='xla'),
  ],
)
def test_remat_unroll_and_attention_change_neither_values_nor_gradients(change):
  inputs = make_inputs()

  def loss(params, config):
    hidden, _ = decoder_lib.Decoder(config).apply(
      params, inputs['embeddings'], inputs['positions'], inputs['mask']
    )
    return jnp.sum(jnp.sin(hidden))

  run = quick.jit(jax.value_and_grad(loss), static_argnums=1)
  expected = run(make_params(), CONFIG)
  got = run(make_params(), dataclasses.replace(CONFIG, **change))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
    got,
    expected,
  )


def test_sections_of_the_released_models_interleave():
  # Section [24, 20, 20] of 64: height 1, 4, .., 58; width 2, 5, .., 59; the
  # last four frequencies are time's.
  axis = decoder_lib.compute_mrope_axis((24, 20, 20))
  np.testing.assert_array_equal(axis[:60], np.tile([0, 1, 2], 20))
  np.testing.assert_array_equal(axis[60:], 0)


def test_embed_reads_the_table():
  embeddings = decoder_lib.Decoder(CONFIG).apply(
    make_params(), jnp.array([[3, 0]]), method='embed'
  )
  np.testing.assert_array_equal(
    embeddings[0], make_params()['params']['embedding'][jnp.array([3, 0])]
  )


def test_parameters_name_their_logical_axes():
  params = make_abstract_params()['params']
  assert params['embedding'].names == ('vocab', 'embed')
  assert params['layers']['key']['kernel'].names == (
    'layers',
    'embed',
    'kv_heads',
    'head_dim',
  )
  assert params['layers']['down']['kernel'].names == ('layers', 'mlp', 'embed')
  assert params['layers']['key']['kernel'].value.shape == (3, 16, 2, 8)


@pytest.mark.parametrize(
  'change, message',
  [
    (dict(num_kv_heads=3), 'num_kv_heads=3'),
    (dict(mrope_section=(2, 2, 1)), 'half of head_dim=8'),
    (dict(remat='some'), "remat='some'"),
  ],
)
def test_impossible_sizes_are_refused(change, message):
  with pytest.raises(errors.UsageError, match=message):
    dataclasses.replace(CONFIG, **change)


def test_fused_attention_without_a_gpu_is_refused():
  config = dataclasses.replace(CONFIG, attention='cudnn')
  inputs = make_inputs()
  with pytest.raises(errors.UsageError, match="'cudnn' needs an NVIDIA GPU"):
    decoder_lib.Decoder(config).apply(
      make_params(), inputs['embeddings'], inputs['positions'], inputs['mask']
    )


@pytest.mark.parametrize('attention', ['matmul', 'xla'])
def test_bfloat16_is_near_float32(attention):
  config = dataclasses.replace(CONFIG, attention=attention)
  inputs = make_inputs()
  results = [
    quick.jit(decoder_lib.Decoder(config, dtype).apply)(
      make_params(), inputs['embeddings'], inputs['positions'], inputs['mask']
    )[0]
    for dtype in (jnp.float32, jnp.bfloat16)
  ]
  assert results[1].dtype == jnp.bfloat16
  difference = np.abs(np.asarray(results[1], np.float32) - results[0])
  # Eight bits of mantissa: errors of 2^-9 a product, over some layers.
  mask = np.asarray(inputs['mask'])
  assert difference[mask].mean() < 0.02 * np.abs(results[0])[mask].mean()

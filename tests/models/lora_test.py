"""Tests the adapters: by hand, merged, and with dropout."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import micro, quick, qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.models import decoder, lora, pretrained
from vhop_jax.models import router as router_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

LORA = lora.LoraConfig(rank=3, alpha=6.0, modules=tuple(lora.MODULES))
CONFIG = dataclasses.replace(qwen3_vl_folder.CONFIG.decoder, lora=LORA)


@pytest.fixture(scope='module')
def base():
  return qwen3_vl_folder.make_params(qwen3_vl_folder.CONFIG)['decoder']


@pytest.fixture(scope='module')
def adapters(base):
  """Returns adapters of which neither factor is zero."""
  made = lora.init(base, LORA, jax.random.key(0))
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: np.float32(0.1 * rng.normal(size=x.shape)), made
  )


def run(config, params, rngs=None):
  rng = np.random.default_rng(1)
  size = 5
  hidden, _ = quick.jit(decoder.Decoder(config).apply)(
    {'params': params},
    jnp.asarray(rng.normal(size=(2, size, config.hidden_size)), jnp.float32),
    jnp.broadcast_to(jnp.arange(size)[None, None], (3, 2, size)),
    jnp.ones((2, size), bool),
    rngs=rngs,
  )
  return np.asarray(hidden)


def test_product_is_that_of_the_paper():
  # x W = [3, 4], A maps x = [1, 2] to 1 * 1 + 2 * 1 = 3, B to [3, 6], and
  # alpha / r = 2 makes it [6, 12].
  module = decoder.Linear(
    ((2, None),), ((2, None),), lora=lora.LoraConfig(rank=1, alpha=2.0)
  )
  params = {
    'kernel': jnp.array([[1.0, 0.0], [1.0, 2.0]]),
    'lora_a': jnp.array([[1.0], [1.0]]),
    'lora_b': jnp.array([[1.0, 2.0]]),
  }
  y = module.apply({'params': params}, jnp.array([[1.0, 2.0]]))
  np.testing.assert_allclose(y, [[9.0, 16.0]])


def test_module_declares_what_init_draws(base):
  module = decoder.Decoder(CONFIG)
  shapes = jax.eval_shape(
    lambda rng: module.init(
      rng,
      jnp.zeros((1, 2, CONFIG.hidden_size)),
      jnp.zeros((3, 1, 2), jnp.int32),
      jnp.ones((1, 2), bool),
    )['params'],
    jax.random.key(0),
  )
  joined = lora.join(base, lora.init(base, LORA, jax.random.key(0)))
  wanted = jax.tree.map(lambda x: x.shape, jax.tree.map(jnp.asarray, joined))
  unboxed = router_lib.nn.meta.unbox(shapes)
  # The embedding is looked up elsewhere.
  del wanted['embedding']
  found = jax.tree.map(lambda x: x.shape, unboxed)
  found.pop('embedding', None)
  assert found == wanted


def test_new_adapters_change_nothing(base):
  adapters = lora.init(base, LORA, jax.random.key(0))
  plain = run(dataclasses.replace(CONFIG, lora=None), base)
  np.testing.assert_allclose(
    run(CONFIG, lora.join(base, adapters)), plain, atol=1e-6
  )
  layers = adapters['layers']
  assert set(layers) == set(lora.MODULES)
  # Uniform within 1 / sqrt(64), as PEFT draws: its deviation is bound / sqrt 3.
  a = np.asarray(layers['query']['lora_a'])
  assert a.shape == (2, 64, 3)
  assert np.abs(a).max() <= 1 / 8
  assert a.std() == pytest.approx(1 / 8 / np.sqrt(3), rel=0.1)


def test_merged_is_unmerged(base, adapters):
  joined = lora.join(base, adapters)
  expected = run(CONFIG, joined)
  merged = lora.merge(joined, LORA)
  assert jax.tree.structure(merged) == jax.tree.structure(base)
  plain = dataclasses.replace(CONFIG, lora=None)
  np.testing.assert_allclose(run(plain, merged), expected, atol=1e-5)
  # Each kind of module counts.
  for name in lora.MODULES:
    part = {k: v for k, v in adapters['layers'].items() if k != name}
    others = lora.merge(lora.join(base, {'layers': part}), LORA)
    assert np.abs(run(plain, others) - expected).max() > 1e-3, name


def test_only_named_modules_adapt(base):
  some = dataclasses.replace(LORA, modules=('value', 'down'))
  layers = lora.init(base, some, jax.random.key(0))['layers']
  assert set(layers) == {'value', 'down'}


def test_parts_come_back(base, adapters):
  parts = lora.split(lora.join(base, adapters))
  for part, expected in zip(parts, (base, adapters), strict=True):
    assert all(jax.tree.leaves(micro.find_equal(part, expected)))


def test_dropout_spares_the_base_and_needs_a_key(base, adapters):
  config = dataclasses.replace(
    CONFIG, lora=dataclasses.replace(LORA, dropout=0.5)
  )
  joined = lora.join(base, adapters)
  certain = run(config, joined)
  np.testing.assert_allclose(certain, run(CONFIG, joined), atol=1e-6)
  drawn = [
    run(config, joined, {'dropout': jax.random.key(k)}) for k in (0, 1, 0)
  ]
  np.testing.assert_array_equal(drawn[0], drawn[2])
  assert np.abs(drawn[0] - drawn[1]).max() > 1e-3
  # Without adapters there is nothing to drop.
  zeros = jax.tree.map(np.zeros_like, adapters)
  np.testing.assert_allclose(
    run(config, lora.join(base, zeros), {'dropout': jax.random.key(0)}),
    run(dataclasses.replace(CONFIG, lora=None), base),
    atol=1e-6,
  )


def test_recomputed_layers_draw_the_same_dropout(base, adapters):
  lora_config = dataclasses.replace(LORA, dropout=0.5)
  x = np.random.default_rng(2).normal(size=(1, 3, CONFIG.hidden_size))

  def differentiate(remat):
    module = decoder.Decoder(
      dataclasses.replace(CONFIG, lora=lora_config, remat=remat)
    )

    def loss(adapters):
      hidden, _ = module.apply(
        {'params': lora.join(base, adapters)},
        jnp.asarray(x, jnp.float32),
        jnp.broadcast_to(jnp.arange(3)[None, None], (3, 1, 3)),
        jnp.ones((1, 3), bool),
        rngs={'dropout': jax.random.key(1)},
      )
      return hidden[0, -1, :8].sum()

    return quick.jit(jax.grad(loss))(adapters)

  kept, recomputed = differentiate('none'), differentiate('full')
  for a, b in zip(
    jax.tree.leaves(recomputed), jax.tree.leaves(kept), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max())


def test_base_of_bfloat16_keeps_its_dtype(base, adapters):
  half = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), base)
  joined = lora.join(half, adapters)
  merged = lora.merge(joined, LORA)
  assert {x.dtype.name for x in jax.tree.leaves(merged)} == {'bfloat16'}
  # The sum is rounded once, to 8 bits, after it is made in float32.
  whole = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), half)
  exact = lora.merge(lora.join(whole, adapters), LORA)
  for a, b in zip(jax.tree.leaves(merged), jax.tree.leaves(exact), strict=True):
    np.testing.assert_array_equal(a, b.astype(jnp.bfloat16))


def test_sides_of_a_router_share_the_base(embedder):
  config = dataclasses.replace(LORA, modules=('query', 'value'))
  made = pretrained.make_router(embedder, inverse_temperature=20.0, lora=config)
  joined = router_lib.make_variables(made.params)['params']
  assert 'base' not in joined
  for side in ('state', 'gallery'):
    layers = joined[side]['decoder']['layers']
    base = made.params['base']['decoder']['layers']
    assert layers['gate']['kernel'] is base['gate']['kernel']
    assert (
      layers['query']['lora_a']
      is (made.params[side]['decoder']['layers']['query']['lora_a'])
    )


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'rank': 0}, 'rank=0'),
    ({'alpha': 0.0}, r'alpha=0\.0'),
    ({'dropout': 1.0}, r'dropout=1\.0'),
    ({'modules': ()}, 'modules is empty'),
    ({'modules': ('q_proj',)}, "'q_proj': choose query"),
  ],
)
def test_settings_out_of_range_are_refused(changes, words):
  with pytest.raises(errors.UsageError, match=words):
    lora.LoraConfig(**{'rank': 2, 'alpha': 4.0, **changes})

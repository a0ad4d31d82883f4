"""Tests that the router reads the same sequence in both of its ways."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.env import rollout
from vhop_jax.models import pretrained

SETTINGS = {
  'template': 'tiny',
  'tower': {
    'width_px': 24,
    'height_px': 16,
    'patch_px': 4,
    'channels': [8, 16],
    'blocks': [0, 1],
    'num_heads': 2,
    'num_tokens': 2,
    'output_size': 32,
  },
  'decoder': {
    'vocab_size': 320,
    'hidden_size': 32,
    'num_layers': 2,
    'num_heads': 4,
    'num_kv_heads': 2,
    'head_dim': 8,
    'mlp_size': 48,
    'rope_theta': 1e4,
    'mrope_section': [2, 1, 1],
    'rms_norm_eps': 1e-6,
    'remat': 'none',
    'scan_unroll': 1,
  },
}
TEXTS = ['Find the photo.', 'Find the photo where this object stands alone']


@pytest.fixture(scope='module')
def embedder():
  """Returns a random embedding model."""
  import flax.linen as nn

  params = pretrained.init_params(SETTINGS, jax.random.key(0))
  return pretrained.make_pretrained(SETTINGS, nn.meta.unbox(params))


@pytest.fixture(scope='module')
def router(embedder):
  """Returns a router whose two sides and head all differ."""
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  keys = iter(jax.random.split(jax.random.key(1), 100))
  return made.replace_params(
    jax.tree.map(
      lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), made.params
    )
  )


@pytest.fixture(scope='module')
def visual():
  """Returns the visual tokens of seven images."""
  return np.random.default_rng(0).normal(size=(7, 2, 32)).astype(np.float32)


def encode(router, prefix, query, selected):
  """Returns the states of whole trajectories."""
  return router.module.apply(
    {'params': router.params},
    jax.tree.map(jnp.asarray, prefix),
    router.embedder.maker.segments(1),
    jnp.asarray(query),
    jnp.asarray(selected),
    method='encode_states',
  )


def test_a_saved_router_loads_for_its_own_embedder_only(
  embedder, router, tmp_path
):
  path = tmp_path / 'router.safetensors'
  pretrained.save_router(path, router, training={})
  loaded = pretrained.load_router(path, embedder)
  same = jax.tree.map(
    lambda a, b: np.shape(a) == np.shape(b) and np.array_equal(a, b),
    loaded.params,
    router.params,
  )
  assert all(jax.tree.leaves(same))
  other = dataclasses.replace(embedder, fingerprint='0' * 64)
  with pytest.raises(errors.DataError, match='another embedding model'):
    pretrained.load_router(path, other)


def test_untrained_router_is_the_embedding_model(embedder, visual):
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  prefix = embedder.maker.queries(TEXTS)
  states = encode(made, prefix, visual[:2], np.zeros((2, 0, 2, 32)))
  queries, _ = made.module.apply(
    {'params': made.params}, states, method='make_queries'
  )
  expected = embedder.module.apply(
    {'params': embedder.params},
    jax.tree.map(jnp.asarray, prefix),
    jnp.asarray(visual[:2]),
    method='embed',
  )
  np.testing.assert_allclose(queries[:, 0], expected, atol=1e-5)


def test_cached_reading_equals_the_parallel_pass(router, visual):
  prefix = router.embedder.maker.queries(TEXTS)
  assert len(set(prefix.mask.sum(axis=1))) == 2  # One row is padded.
  selected = visual[np.array([[2, 3, 4], [5, 6, 2]])]
  states = encode(router, prefix, visual[:2], selected)
  segment = router.embedder.maker.segments(1)
  variables = {'params': router.params}
  context = router.module.apply(
    variables,
    jax.tree.map(jnp.asarray, prefix),
    jnp.asarray(visual[:2]),
    max_length=prefix.tokens.shape[1] + 3 * segment.tokens.shape[1],
    method='start',
  )
  np.testing.assert_allclose(context.state, states[:, 0], atol=1e-4)
  for t in range(3):
    context = router.module.apply(
      variables, context, segment, jnp.asarray(selected[:, t]), method='advance'
    )
    np.testing.assert_allclose(context.state, states[:, t + 1], atol=1e-4)


def test_a_row_does_not_depend_on_its_batch(router, visual):
  selected = visual[np.array([[2, 3], [5, 6]])]
  maker = router.embedder.maker
  both = encode(router, maker.queries(TEXTS), visual[:2], selected)
  alone = encode(router, maker.queries(TEXTS[:1]), visual[:1], selected[:1])
  np.testing.assert_allclose(both[:1], alone, atol=1e-5)


def test_greedy_scan_equals_a_loop_that_reads_all_anew(router, visual):
  maker = router.embedder.maker
  prefix = maker.queries(TEXTS)
  gallery = np.random.default_rng(1).normal(size=(7, 32)).astype(np.float32)
  gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
  start = np.array([1, 4])
  result = rollout.select_greedily(
    router.module,
    router.params,
    prefix,
    maker.segments(1),
    start,
    visual,
    gallery,
    steps=5,
  )
  for row in range(2):
    chosen: list[int] = []
    for t in range(5):
      states = encode(
        router,
        jax.tree.map(lambda x, row=row: x[row : row + 1], prefix),
        visual[start[row]][None],
        visual[np.array(chosen, int)][None],
      )
      query = np.asarray(states[0, t]) @ np.asarray(
        router.params['select']['kernel']
      )
      scores = gallery @ query / np.linalg.norm(query)
      scores[[start[row], *chosen]] = -np.inf
      chosen.append(int(scores.argmax()))
      np.testing.assert_allclose(result.scores[row, t], scores.max(), atol=1e-4)
    assert chosen == result.selected[row].tolist()
    assert len({start[row], *chosen}) == 6

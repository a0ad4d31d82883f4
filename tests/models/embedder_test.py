"""Tests how sequences are pooled into embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import micro, quick
from vhop_jax.models import embedder as embedder_lib

WIDTH = micro.SETTINGS['decoder']['hidden_size']


@pytest.fixture(scope='module')
def embed(embedder):
  return quick.jit(
    lambda sequence, visual: embedder.module.apply(
      {'params': embedder.params}, sequence, visual, method='embed'
    )
  )


def draw_visual(count):
  rng = np.random.default_rng(0)
  return rng.normal(size=(count, 2, WIDTH)).astype(np.float32)


def test_normalize_by_hand():
  x = jnp.array([[3.0, 4.0], [0.0, 0.0]], jnp.bfloat16)
  y = embedder_lib.normalize(x)
  assert y.dtype == jnp.float32
  np.testing.assert_allclose(y, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-5)
  slope = jax.grad(lambda x: embedder_lib.normalize(x).sum())(jnp.zeros((1, 2)))
  assert np.isfinite(slope).all()


def test_find_last_and_take_rows_by_hand():
  mask = jnp.array([[True, True, False], [True, True, True]])
  last = embedder_lib.find_last(mask)
  assert last.tolist() == [1, 2]
  x = jnp.arange(12.0).reshape(2, 3, 2)
  rows = embedder_lib.take_rows(x, jnp.array([[1, 1], [2, 0]]))
  assert rows.tolist() == [[[2, 3], [2, 3]], [[10, 11], [6, 7]]]


def test_embedding_ignores_padding_and_its_batch(embedder, embed):
  maker, visual = embedder.maker, draw_visual(2)
  texts = ['Find the photo.', 'Find the photo where this object stands.']
  both = np.asarray(embed(maker.queries(texts), visual))
  np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, rtol=1e-5)
  for i in range(2):
    alone = embed(maker.queries(texts[i : i + 1]), visual[i : i + 1])
    np.testing.assert_allclose(both[i], alone[0], atol=1e-5)


def test_each_visual_token_stands_at_its_own_place(embedder, embed):
  # Exchanging the two tokens is exchanging the two halves of the picture.
  visual = draw_visual(1)
  made = embedder.maker.documents(1)
  swapped = made.replace(
    visual_index=np.where(
      made.visual_index < 0, made.visual_index, 1 - made.visual_index
    )
  )
  expected = embed(made, visual[:, ::-1])
  np.testing.assert_allclose(embed(swapped, visual), expected, atol=1e-6)
  assert np.abs(embed(made, visual) - expected).max() > 1e-3


def test_call_embeds_pixels(embedder, embed):
  pixels = np.random.default_rng(0).integers(
    0, 256, (2, 16, 24, 3), dtype=np.uint8
  )
  sequence = embedder.maker.documents(2)
  run = quick.jit(
    lambda *args: (
      embedder.module.apply({'params': embedder.params}, *args),
      embedder.module.apply(
        {'params': embedder.params}, args[1], method='encode_images'
      ),
    )
  )
  embedded, visual = run(sequence, pixels)
  np.testing.assert_allclose(embedded, embed(sequence, visual), atol=1e-5)

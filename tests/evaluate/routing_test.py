"""Tests how a router is measured on a world."""

import numpy as np
import pytest

from tests.models import quick
from vhop_jax import errors
from vhop_jax.evaluate import routing
from vhop_jax.index import gallery as gallery_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

STEPS = 4


@pytest.fixture(scope='module')
def source(embedder, folder):
  return routing.load_gallery_source(folder, embedder)


@pytest.fixture(scope='module')
def gallery(router, source):
  return routing.make_gallery(router, source)


@pytest.fixture(scope='module')
def score(router, gallery):
  """Returns a function that scores the gallery along a path, [T, N].

  One parallel pass reads the path; what is not yet seen at a decision cannot
  change its scores.
  """
  maker = router.embedder.maker

  @quick.jit
  def make_queries(prefix, visual, selected):
    states = router.module.apply(
      {'params': router.params},
      prefix,
      maker.segments(1),
      visual,
      selected,
      method='encode_states',
    )
    return router.module.apply(
      {'params': router.params}, states, method='make_queries'
    )[0]

  def score(query, path):
    world = gallery.world
    source = world.index(query.image)
    queries = make_queries(
      maker.queries([query.instruction], length=64),
      gallery.visual[[source]],
      gallery.visual[list(path[:-1])][None],
    )
    scores = np.asarray(queries)[0] @ gallery.embeddings.T
    for step in range(len(path)):
      scores[step, [source, *path[:step]]] = -np.inf
    return scores

  return score


def test_gallery_is_embedded_by_the_gallery_side(
  router, embedder, source, gallery
):
  np.testing.assert_array_equal(gallery.visual, source.visual)
  np.testing.assert_allclose(
    np.linalg.norm(gallery.embeddings, axis=1), 1, rtol=1e-5
  )
  other = gallery_lib.embed_images(embedder, source.visual)
  assert np.abs(gallery.embeddings - other).max() > 0.01


def test_greedy_selection_follows_the_scores(router, gallery, score):
  world = gallery.world
  made = routing.select_greedily(router, gallery, steps=STEPS)
  assert [t.query_id for t in made] == [q.id for q in world.queries]
  for query, trajectory in zip(world.queries, made, strict=True):
    path = [world.index(i) for i in trajectory.selected]
    scores = score(query, path)
    assert path == scores.argmax(axis=1).tolist()
    np.testing.assert_allclose(trajectory.scores, scores.max(axis=1), atol=1e-4)


def test_teacher_forced_ranks_by_plain_loops(router, gallery, score):
  world = gallery.world
  ranks = routing.compute_teacher_forced_ranks(router, gallery)
  assert ranks.shape == (len(world.queries), 3)
  for query, row in zip(world.queries, ranks, strict=True):
    chain = [world.index(i) for i in query.chains[0]]
    for rank, scores, gold in zip(row, score(query, chain), chain, strict=True):
      assert rank == 1 + np.sum(scores > scores[gold])


def test_measures_are_those_of_the_world(router, source, gallery):
  measures = routing.measure(router, source, steps=STEPS)
  ranks = routing.compute_teacher_forced_ranks(router, gallery)
  assert measures['hop2_r1'] == pytest.approx(np.mean(ranks[:, 1] <= 1))
  assert measures['hop3_r2'] == pytest.approx(np.mean(ranks[:, 2] <= 2))
  found = [
    not set(query.answers).isdisjoint(trajectory.selected)
    for query, trajectory in zip(
      gallery.world.queries,
      routing.select_greedily(router, gallery, steps=STEPS),
      strict=True,
    )
  ]
  assert measures['set_success'] == pytest.approx(np.mean(found))


def test_worlds_drawn_alike_are_refused(folder, other_folder):
  routing.check_other_world(other_folder, folder)
  with pytest.raises(errors.DataError, match='share objects'):
    routing.check_other_world(folder, folder)

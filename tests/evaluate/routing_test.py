"""Tests how a router is measured on a world."""

import numpy as np
import pytest

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


def score(router, gallery, query, selected):
  """Scores the gallery after some selections, all read anew in one pass."""
  world = gallery.world
  prefix = router.embedder.maker.queries([query.instruction])
  visual = gallery.visual[[world.index(query.image)]]
  states = router.module.apply(
    {'params': router.params},
    prefix,
    router.embedder.maker.segments(1),
    visual,
    gallery.visual[selected][None],
    method='encode_states',
  )
  queries, _ = router.module.apply(
    {'params': router.params}, states, method='make_queries'
  )
  return gallery.embeddings @ np.asarray(queries)[0, -1]


def test_gallery_is_embedded_by_the_gallery_side(
  router, embedder, source, gallery
):
  np.testing.assert_array_equal(gallery.visual, source.visual)
  np.testing.assert_allclose(
    np.linalg.norm(gallery.embeddings, axis=1), 1, rtol=1e-5
  )
  other = gallery_lib.embed_images(embedder, source.visual)
  assert np.abs(gallery.embeddings - other).max() > 0.01


def test_greedy_selection_follows_the_scores(router, gallery):
  world = gallery.world
  made = routing.select_greedily(router, gallery, steps=STEPS)
  assert [t.query_id for t in made] == [q.id for q in world.queries]
  for query, trajectory in list(zip(world.queries, made, strict=True))[:2]:
    selected = []
    for image_id, value in zip(
      trajectory.selected, trajectory.scores, strict=True
    ):
      scores = score(router, gallery, query, selected)
      scores[[world.index(query.image), *selected]] = -np.inf
      assert world.index(image_id) == np.argmax(scores)
      np.testing.assert_allclose(value, scores.max(), atol=1e-4)
      selected.append(world.index(image_id))


def test_teacher_forced_ranks_by_plain_loops(router, gallery):
  world = gallery.world
  ranks = routing.compute_teacher_forced_ranks(router, gallery)
  assert ranks.shape == (len(world.queries), 3)
  for query, row in list(zip(world.queries, ranks, strict=True))[:2]:
    chain = [world.index(i) for i in query.chains[0]]
    for hop, rank in enumerate(row):
      scores = score(router, gallery, query, chain[:hop])
      scores[[world.index(query.image), *chain[:hop]]] = -np.inf
      assert rank == 1 + np.sum(scores > scores[chain[hop]])


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

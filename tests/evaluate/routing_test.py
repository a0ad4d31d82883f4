"""Tests how a router is measured on a world."""

import numpy as np
import pytest

from tests.models import micro, quick
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
      maker.segment(),
      visual,
      1 + np.arange(selected.shape[1])[None],
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


def test_gated_routing_tells_what_was_decided(router, source):
  kinds, ends = set(), set()
  for stop in (-4.0, -2.0, 0.0, 2.0):
    opened = micro.open_gates(router, stop=stop)
    gallery = routing.make_gallery(opened, source)
    made = routing.route(opened, gallery, budget=9)
    for query, trajectory in zip(gallery.world.queries, made, strict=True):
      assert trajectory.query_id == query.id
      check_decisions(query, trajectory, budget=9)
      kinds |= {decision.kind for decision in trajectory.decisions}
      ends.add(trajectory.ended)
  assert kinds == {'select', 'backtrack', 'stop'}
  assert ends == {'stop', 'budget'}


def check_decisions(query, trajectory, *, budget):
  """Asserts that the decisions are allowed and lead to the stack."""
  stack = []
  for decision in trajectory.decisions:
    if decision.kind == 'select':
      assert decision.image not in (query.image, *stack)
      assert abs(decision.score) <= 1.001
      stack.append(decision.image)
    elif decision.kind == 'backtrack':
      assert decision.p_backtrack > 0.5 >= decision.p_stop
      assert decision.image == stack.pop()
    else:
      assert decision.p_stop > 0.5
  assert trajectory.selected == tuple(stack)
  assert len(trajectory.scores) == len(stack)
  stopped = trajectory.ended == 'stop'
  assert (trajectory.decisions[-1].kind == 'stop') == stopped
  assert stopped or len(trajectory.decisions) == budget


def test_stopping_can_be_bound_to_the_hop_count(open_router, source):
  gallery = routing.make_gallery(open_router, source)
  for trajectory in routing.route(
    open_router, gallery, budget=9, stops_at_hops=True
  ):
    if trajectory.ended == 'stop':
      assert len(trajectory.selected) == 3


def test_searched_chains_are_stopped_ones(open_router, source):
  gallery = routing.make_gallery(open_router, source)
  for query, trajectory in zip(
    gallery.world.queries,
    routing.search_chains(open_router, gallery, longest=3, width=2),
    strict=True,
  ):
    assert trajectory.ended == 'stop'
    assert 1 <= len(trajectory.selected) <= 3
    assert len(set(trajectory.selected)) == len(trajectory.scores)
    assert query.image not in trajectory.selected
    assert all(abs(score) <= 1.001 for score in trajectory.scores)


def test_teacher_forced_ranks_by_plain_loops(router, gallery, score):
  world = gallery.world
  ranks = routing.compute_teacher_forced_ranks(router, gallery)
  assert ranks.shape == (len(world.queries), 3)
  for query, row in zip(world.queries, ranks, strict=True):
    chain = [world.index(i) for i in query.chains[0]]
    for rank, scores, gold in zip(row, score(query, chain), chain, strict=True):
      assert rank == 1 + np.sum(scores > scores[gold])


def test_measures_are_those_of_the_world(router, source, gallery):
  measures = routing.measure(
    router, source, steps=STEPS, budget=9, rejection='selection'
  )
  assert 'success' not in measures
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


def test_gates_are_measured_where_they_were_trained(open_router, source):
  measures = routing.measure(
    open_router, source, steps=STEPS, budget=9, rejection='selection'
  )
  routed = routing.route(
    open_router, routing.make_gallery(open_router, source), budget=9
  )
  assert measures['decisions'] == pytest.approx(
    np.mean([len(t.decisions) for t in routed])
  )
  right = [
    t.ended == 'stop' and t.selected[-1] in query.answers
    for query, t in zip(source.world.queries, routed, strict=True)
  ]
  assert measures['success'] == pytest.approx(np.mean(right))


def test_worlds_drawn_alike_are_refused(folder, other_folder):
  routing.check_other_world(other_folder, folder)
  with pytest.raises(errors.DataError, match='share objects'):
    routing.check_other_world(folder, folder)

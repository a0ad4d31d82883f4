"""Tests retrieval without routing by plain loops and by a known world."""

import numpy as np
import pytest

from tests.evaluate import oracle
from vhop_jax.evaluate import baselines
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.worlds import world as world_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

STEPS = 3


@pytest.fixture(scope='module')
def gallery(embedder, folder):
  return gallery_lib.load_gallery(embedder, folder)


def embed(embedder, gallery, text, images):
  """Embeds one instruction with some images of the gallery."""
  visual = gallery.visual[images].reshape(1, -1, gallery.visual.shape[-1])
  sequence = embedder.maker.queries([text], images=len(images))
  return gallery_lib.embed_queries(embedder, sequence, visual)[0]


def test_single_shot_ranks_all_but_the_query_image(embedder, gallery):
  world = gallery.world
  made = baselines.run_single_shot(embedder, gallery, steps=STEPS)
  for query, trajectory in zip(world.queries, made, strict=True):
    source = world.index(query.image)
    scores = gallery.embeddings @ embed(
      embedder, gallery, query.instruction, [source]
    )
    order = [i for i in np.argsort(-scores) if i != source][:STEPS]
    assert trajectory.query_id == query.id
    assert trajectory.selected == tuple(world.images[i].id for i in order)
    np.testing.assert_allclose(trajectory.scores, scores[order], atol=1e-5)


@pytest.mark.parametrize('keep_history', [False, True])
def test_steps_take_the_best_image_and_go_on_from_it(
  embedder, gallery, keep_history
):
  world = gallery.world
  made = baselines.run_steps(
    embedder, gallery, steps=STEPS, keep_history=keep_history
  )
  for query, trajectory in zip(world.queries, made, strict=True):
    seen = [world.index(query.image)]
    for image_id, score in zip(
      trajectory.selected, trajectory.scores, strict=True
    ):
      images = seen if keep_history else seen[-1:]
      scores = gallery.embeddings @ embed(
        embedder, gallery, query.instruction, images
      )
      scores[seen] = -np.inf
      assert world.index(image_id) == np.argmax(scores)
      np.testing.assert_allclose(score, scores.max(), atol=1e-5)
      seen.append(world.index(image_id))


def count_right(world, trajectories):
  outcomes = scores_lib.compute_outcomes(world, trajectories, answer='hops')
  return outcomes.values['exact_chain'].mean()


def test_best_path_search_sees_through_dead_ends(world, model, monkeypatch):
  monkeypatch.setattr(
    gallery_lib, 'embed_queries', oracle.make_embed_queries(world)
  )
  gallery = oracle.make_gallery(world)

  def search(beam):
    return baselines.search_best_path(model, gallery, beam=beam, wording=0)

  whole = search(16)
  assert count_right(world, whole) == 1
  assert all(t.scores == (1, 1, 1) for t in whole)
  # A single path is caught in them.
  assert count_right(world, search(1)) < 1


def test_best_path_search_is_refused_where_no_hop_is_told(make_world, model):
  world = make_world(prompt='vague')
  with pytest.raises(ValueError, match='vague'):
    baselines.search_best_path(
      model, oracle.make_gallery(world), beam=2, wording=0
    )
  assert isinstance(world, world_lib.World)

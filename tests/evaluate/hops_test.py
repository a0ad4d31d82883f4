"""Tests what each hop is asked by itself, against a model that knows all."""

import numpy as np
import pytest

from tests.evaluate import oracle
from vhop_jax.evaluate import hops
from vhop_jax.index import gallery as gallery_lib


def test_hops_of_the_world_made_by_hand(make_world):
  told = hops.list_told_hops(make_world())
  assert [(h.query, h.hop, h.source, h.side, h.target) for h in told] == [
    (0, 0, 0, None, 1),
    (0, 1, 1, 'right', 2),
    (0, 2, 2, 'left', 3),
    (1, 0, 0, None, 4),
    (1, 1, 4, 'left', 5),
    (1, 2, 5, 'right', 6),
  ]
  assert [h.excluded for h in told[:3]] == [(0,), (0, 1), (0, 1, 2)]


def test_place_of_the_carried_object_is_that_of_the_worlds_relations(
  make_world,
):
  image = make_world().images[1]
  for relations, places in (
    ('sides', ['left', 'right']),
    ('depth', ['front', 'back']),
    ('height', ['top', 'bottom']),
  ):
    found = [
      hops.find_carried_side(image, thing.uid, relations)
      for thing in image.objects
    ]
    assert found == places


def test_a_model_that_knows_all_is_stopped_by_dead_ends_alone(
  world, model, monkeypatch
):
  monkeypatch.setattr(
    gallery_lib, 'embed_queries', oracle.make_embed_queries(world)
  )
  gallery = oracle.make_gallery(world)
  ranks = hops.compute_told_ranks(model, gallery, seed=0)
  assert sorted(ranks) == [0, 1, 2]
  told = hops.list_told_hops(world)
  for hop, values in ranks.items():
    # What scores as well as the gold image counts as better.
    expected = []
    for h in told:
      if h.hop == hop:
        query = world.queries[h.query]
        place = ('left', 'right').index(h.side) if h.side else 0
        links = world.link_graph().valid_links(
          world.spec,
          query.hops[hop],
          world.images[h.source].id,
          world.images[h.source].objects[place],
        )
        targets = {world.index(link.target_id) for link in links}
        expected.append(len(targets - set(h.excluded)))
    assert values.tolist() == expected
  assert max(ranks[0].max(), ranks[1].max()) > 1
  assert ranks[2].max() == 1
  recall = hops.compute_told_recall(model, gallery, seed=0)
  assert recall['hop3_r1'] == 1
  assert recall['hop1_r1'] == pytest.approx(np.mean(ranks[0] == 1))
  assert recall['hop1_r10'] == 1

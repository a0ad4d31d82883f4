"""Tests the training routes against the worlds they come from."""

import dataclasses
import itertools
import json
import re

import jax
import numpy as np
import pytest

from tests import reading
from vhop_jax import errors
from vhop_jax.data import routes as routes_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.worlds import builder, wordings
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import world as world_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

SETTINGS = {
  'seed': 3,
  'batch_size': 4,
  'family_size': 10,
  'max_text_tokens': 64,
  'reword': False,
  'compose_frac': 0.0,
  'walk_frac': 0.0,
  'decisions': 3,
  'turns': {'wrong_frac': 0.0, 'equal_frac': 0.5, 'deeper_frac': 0.3},
  'threads': 2,
}


@pytest.fixture(scope='module')
def route_set(world):
  """Returns the world's routes; the visual tokens of image i are all i."""
  visual = np.zeros((len(world.images), 2, 3), np.float32)
  visual += np.arange(len(world.images))[:, None, None]
  return routes_lib.RouteSet(
    tuple(routes_lib.make_routes(world, 0)),
    visual,
    routes_lib.make_walks(world, 0),
  )


def find_fitting(world, hop, carried, seen):
  pictures = [image.objects for image in world.images]
  return reading.find_fitting(
    pictures, carried, seen, relation=hop.relation, colour=hop.colour
  )


def test_routes_follow_the_links(world):
  offset = 100
  routes = routes_lib.make_routes(world, offset)
  assert len(routes) == len(world.queries)
  dead_ends = 0
  for route, query in zip(routes, world.queries, strict=True):
    assert route.instruction == query.instruction
    assert world.images[route.query_image - offset].id == query.image
    source = route.query_image - offset
    (start,) = world.images[source].objects
    carried, seen = start.uid, {source}
    for hop, gold, equals in zip(
      query.hops, route.chains[0], route.equals[0], strict=True
    ):
      fitting = find_fitting(world, hop, carried, seen)
      assert gold - offset in fitting
      others = sorted(offset + i for i in fitting if i != gold - offset)
      assert list(equals) == others
      dead_ends += len(others)
      source = gold - offset
      carried = fitting[source]
      seen.add(source)
    assert world.images[source].id == query.answers[0]
    assert route.family == tuple(
      offset + i
      for i, image in enumerate(world.images)
      if image.family == query.family
    )
  # At this level every query meets a dead end.
  assert dead_ends >= len(routes)


@pytest.mark.parametrize('extra_hops', [0, 1])
def test_walks_are_all_that_can_be_asked_from_a_query_image(world, extra_hops):
  walks = routes_lib.make_walks(world, 0, extra_hops=extra_hops)
  longest = world.spec.hops + extra_hops
  relations = ('leftof', 'rightof')

  def follow(chain, hops, carried):
    found = {(chain[1:], hops)} if len(hops) >= world.spec.hops else set()
    if len(hops) == longest:
      return found
    for relation in relations:
      for colour in objects_lib.COLOURS:
        hop = world_lib.Hop(relation, colour)
        fitting = find_fitting(world, hop, carried, chain)
        for image, other in fitting.items():
          found |= follow((*chain, image), (*hops, hop), other)
    return found

  gold = 0
  for query in world.queries:
    start = world.index(query.image)
    expected = follow((start,), (), world.images[start].objects[0].uid)
    made = walks[start]
    assert {(walk.chains[0], walk.hops) for walk in made} == expected
    assert len(made) == len(expected) > 2
    for walk in made:
      assert all(
        image not in equals
        for image, equals in zip(walk.chains[0], walk.equals[0], strict=True)
      )
    gold += any(
      walk.chains[0] == tuple(world.index(i) for i in query.chains[0])
      and walk.hops == query.hops
      for walk in made
    )
  assert gold == len(world.queries)


def test_walks_of_vague_prompts_go_from_every_image(pool, tmp_path):
  spec = world_lib.Spec(
    level=4, families=2, seed=8, resolution=24, prompt='vague'
  )
  builder.build_world(spec, tmp_path / 'w', pool=pool, progress=False)
  world = world_lib.load_world(tmp_path / 'w')
  walks = routes_lib.make_walks(world, 0)
  shown = [{o.uid for o in image.objects} for image in world.images]
  for start, made in walks.items():
    expected = set()
    family = [
      i
      for i, image in enumerate(world.images)
      if image.family == world.images[start].family
    ]
    for path in itertools.permutations(family, 1 + spec.hops):
      # Each image shares an object with the next: any of the first image's, and
      # then the one that was not there before.
      carried = shown[path[0]]
      for image in path[1:]:
        met = carried & shown[image] if len(shown[image]) == 2 else set()
        carried = shown[image] - met if met else set()
      if carried:
        expected.add(path)
    found = {(walk.query_image, *walk.chains[0]) for walk in made}
    assert found == expected
    assert {path[0] for path in found} > {start}
    for walk in made:
      assert walk.kind == 'vague'
      # What is ignored at the first hop shows an object of the first image.
      first = {walk.chains[0][0], *walk.equals[0][0]}
      assert first == {
        i
        for i in family
        if i != walk.query_image
        and len(shown[i]) == 2
        and shown[i] & shown[walk.query_image]
      }


def test_rewording_asks_for_the_same(world):
  rng = np.random.default_rng(0)
  route = routes_lib.make_routes(world, 0)[0]
  texts = set()
  for _ in range(40):
    other = route.reword(rng)
    texts.add(other.instruction)
    words = re.findall(r'(left|right) of an? (\w+) object', other.instruction)
    assert [
      world_lib.Hop(f'{side}of', colour) for side, colour in words
    ] == list(route.hops)
    assert dataclasses.replace(other, instruction=route.instruction) == route
  assert len(texts) == len(wordings.PRECISE)
  composed = [route.reword(rng, compose_frac=0.5) for _ in range(100)]
  assert 30 < sum(r.instruction not in texts for r in composed) < 70
  assert {dataclasses.replace(r, instruction='') for r in composed} == {
    dataclasses.replace(route, instruction='')
  }


def test_worlds_are_joined_and_encoded_once(
  world, folder, other_folder, embedder, tmp_path, monkeypatch, capsys
):
  made = routes_lib.load_routes(
    [folder, other_folder], embedder, cache=tmp_path / 'visual'
  )
  assert 'read world 2/2' in capsys.readouterr().out
  other = world_lib.load_world(other_folder)
  assert len(made) == len(world.queries) + len(other.queries)
  count = len(world.images)
  last = made[len(made) - 1]
  assert last.query_image == count + other.index(other.queries[-1].image)
  np.testing.assert_allclose(
    made.visual[count:],
    gallery_lib.encode_images(embedder, world_lib.read_pixels(other_folder)),
    atol=1e-5,
  )

  # The second time nothing is encoded.
  monkeypatch.setattr(gallery_lib, 'encode_images', None)
  again = routes_lib.load_routes(
    [folder, other_folder], embedder, cache=tmp_path / 'visual'
  )
  np.testing.assert_array_equal(again.visual, made.visual)
  assert again.routes == made.routes
  files = sorted((tmp_path / 'visual').iterdir())
  assert [path.suffix for path in files] == ['.npy'] * 2


def test_mirrored_world_comes_after_each_world(
  world, folder, other_folder, embedder, tmp_path
):
  made = routes_lib.load_routes(
    [folder, other_folder], embedder, cache=tmp_path / 'visual', mirror=True
  )
  count, queries = len(world.images), len(world.queries)
  pixels = world_lib.read_pixels(folder)
  np.testing.assert_allclose(
    made.visual[count : 2 * count],
    gallery_lib.encode_images(embedder, pixels[:, :, ::-1]),
    atol=1e-5,
  )
  for number in range(queries):
    plain, mirrored = made[number], made[queries + number]
    assert [hop.colour for hop in plain.hops] == [
      hop.colour for hop in mirrored.hops
    ]
    for hop, other in zip(plain.hops, mirrored.hops, strict=True):
      assert {hop.relation, other.relation} == {'leftof', 'rightof'}
    words = re.findall(r'(left|right) of an? (\w+)', mirrored.instruction)
    assert [f'{side}of' for side, _ in words] == [
      hop.relation for hop in mirrored.hops
    ]
    for name in ('chains', 'equals', 'answers', 'family', 'query_image'):
      moved = jax.tree.map(lambda i: i + count, getattr(plain, name))
      assert getattr(mirrored, name) == moved
    walks = [made.walks[route.query_image] for route in (plain, mirrored)]
    assert len(walks[0]) == len(walks[1])
  # The next world begins after both.
  other = world_lib.load_world(other_folder)
  first = made[2 * queries]
  assert first.query_image == 2 * count + other.index(other.queries[0].image)


def test_worlds_of_several_lengths_join(
  folder, embedder, maker, pool, tmp_path
):
  spec = world_lib.Spec(level=2, families=2, seed=8, resolution=24, hops=2)
  builder.build_world(spec, tmp_path / 'w', pool=pool, progress=False)
  routes = routes_lib.load_routes(
    [folder, tmp_path / 'w'], embedder, cache=tmp_path / 'visual'
  )
  assert {len(r.chains[0]) for r in routes.routes} == {2, 3}
  batch = next(make_batches(routes, maker, batch_size=12))
  assert set(batch['lengths'][:, 0].tolist()) == {2, 3}
  for row, length in enumerate(batch['lengths'][:, 0]):
    chain = batch['chains'][row, 0]
    assert (chain[:length] >= 0).all()
    assert (chain[length:] == routes_lib.PAD).all()
    assert batch['answers'][row].tolist() == [chain[length - 1]]
    assert batch['action'][row, :length].tolist() == chain[:length].tolist()


def test_all_chains_of_a_vague_prompt_count(embedder, maker, pool, tmp_path):
  spec = world_lib.Spec(
    level=4, families=2, seed=8, resolution=24, prompt='vague'
  )
  builder.build_world(spec, tmp_path / 'w', pool=pool, progress=False)
  routes = routes_lib.load_routes(
    [tmp_path / 'w'], embedder, cache=tmp_path / 'visual'
  )
  most = max(len(r.chains) for r in routes.routes)
  assert most > 1
  batch = next(make_batches(routes, maker, batch_size=4))
  assert batch['chains'].shape == (4, most, 3)
  for row in range(4):
    known = {
      tuple(c)
      for c, n in zip(
        batch['chains'][row].tolist(), batch['lengths'][row], strict=True
      )
      if n
    }
    assert tuple(batch['action'][row, :3].tolist()) in known
    answers = set(batch['answers'][row].tolist()) - {routes_lib.PAD}
    assert answers == {chain[-1] for chain in known}


def test_missing_world_is_a_data_error(embedder, tmp_path):
  with pytest.raises(errors.DataError, match='no world in'):
    routes_lib.load_routes([tmp_path], embedder, cache=tmp_path / 'visual')


def make_batches(route_set, maker, **changes):
  return routes_lib.make_batches(route_set, maker, **{**SETTINGS, **changes})


def read_chains(batch):
  """Returns the images of each row's gold chain, known by their tokens."""
  return batch['candidate_visual'][batch['chains'][:, 0]][:, :, 0, 0].astype(
    int
  )


def match_routes(route_set, batch):
  """Returns the route of each row, known by its images."""
  queries = batch['query_visual'][:, 0, 0].astype(int)
  chains = read_chains(batch)
  known = {(r.query_image, r.chains[0]): r for r in route_set.routes}
  return [
    known[int(query), tuple(chain.tolist())]
    for query, chain in zip(queries, chains, strict=True)
  ]


def test_candidates_are_the_families_images_once(route_set, maker):
  batches = make_batches(route_set, maker)
  shared = 0
  for _ in range(6):
    batch = next(batches)
    routes = match_routes(route_set, batch)
    numbers = batch['candidate_visual'][:, 0, 0].astype(int)
    keep = batch['candidate_mask']
    assert len(numbers) == len(keep) == 40
    wanted = {i for route in routes for i in route.family}
    assert sorted(numbers[keep].tolist()) == sorted(wanted)
    shared += len({route.family for route in routes}) < len(routes)
    for row, route in enumerate(routes):
      assert tuple(numbers[batch['chains'][row, 0]]) == route.chains[0]
      assert numbers[batch['query_candidate'][row]] == route.query_image
      for hop, equals in enumerate(route.equals[0]):
        mask = batch['equal_mask'][row, hop]
        assert sorted(numbers[mask].tolist()) == list(equals)
        assert keep[mask].all()
  # Some batch has both routes of a family: its images compete once.
  assert shared


def test_prefix_is_the_instruction_with_the_query_image(route_set, maker):
  batch = next(make_batches(route_set, maker))
  texts = [route.instruction for route in match_routes(route_set, batch)]
  expected = maker.queries(texts, length=64)
  np.testing.assert_array_equal(batch['prefix/tokens'], expected.tokens)
  np.testing.assert_array_equal(batch['prefix/mask'], expected.mask)


def test_an_epoch_has_every_route_once_in_changing_order(route_set, maker):
  batches = make_batches(route_set, maker, batch_size=len(route_set))
  orders = []
  for _ in range(2):
    routes = match_routes(route_set, next(batches))
    assert set(routes) == set(route_set.routes)
    orders.append(routes)
  assert orders[0] != orders[1]
  other = make_batches(route_set, maker, batch_size=len(route_set), seed=4)
  assert match_routes(route_set, next(other)) != orders[0]


def test_walks_take_the_place_of_routes(route_set, maker):
  batches = make_batches(route_set, maker, batch_size=20, walk_frac=0.5)
  gold = {(r.query_image, r.chains[0]) for r in route_set.routes}
  seen, count = set(), 0
  for _ in range(10):
    batch = next(batches)
    queries = batch['query_visual'][:, 0, 0].astype(int)
    chains = read_chains(batch)
    for query, chain in zip(queries, chains, strict=True):
      known = {walk.chains[0] for walk in route_set.walks[int(query)]}
      assert tuple(chain.tolist()) in known
      seen.add((int(query), tuple(chain.tolist())))
      count += (int(query), tuple(chain.tolist())) not in gold
  assert len(seen) > len(gold)
  assert 30 < count < 100


def test_longer_walks_come_as_often_as_others(route_set, maker, world):
  longer = dataclasses.replace(
    route_set, walks=routes_lib.make_walks(world, 0, extra_hops=1)
  )
  batches = make_batches(
    longer,
    maker,
    batch_size=20,
    walk_frac=1,
    decisions=4,
    max_text_tokens=80,
  )
  drawn = []
  for _ in range(10):
    batch = next(batches)
    for row in range(20):
      length = int(batch['lengths'][row, 0])
      chain = batch['chains'][row, 0]
      assert (chain[length:] == routes_lib.PAD).all()
      # One relation and one colour for each hop are asked for.
      tokens = batch['prefix/tokens'][row]
      words = maker.tokenizer.decode(tokens.tolist())
      assert len(re.findall(r'left|right', words)) == length
      drawn.append(length)
  assert set(drawn) == {3, 4}
  assert 70 < drawn.count(4) < 130


@pytest.mark.parametrize('changes', [{}, {'reword': True, 'walk_frac': 0.5}])
@pytest.mark.parametrize('start', [1, 5])
def test_restored_position_is_uninterrupted(route_set, maker, start, changes):
  whole = make_batches(route_set, maker, **changes)
  parts = make_batches(route_set, maker, **changes)
  for _ in range(start):
    next(whole)
    next(parts)
  state = json.loads(json.dumps(parts.get_state()))
  resumed = make_batches(route_set, maker, **changes)
  resumed.set_state(state)
  for _ in range(4):
    a, b = next(whole), next(resumed)
    assert a.keys() == b.keys()
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'family_size': 2}, 'raise data.family_size'),
    ({'max_text_tokens': 9}, 'limit of 9'),
  ],
)
def test_limits_are_usage_errors(route_set, maker, change, words):
  # Raised in a thread of Grain's, caught here.
  with pytest.raises(errors.UsageError, match=words):
    next(make_batches(route_set, maker, **change))

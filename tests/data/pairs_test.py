"""Tests the batches of pretraining by reading their texts back."""

import collections
import dataclasses
import hashlib

import numpy as np
import pytest

from tests import reading
from vhop_jax import errors
from vhop_jax.data import pairs
from vhop_jax.worlds import extras
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds.assets import procedural

SPEC = pairs.PairSpec(
  seed=5,
  resolution=24,
  groups=2,
  window=2,
  repeats=2,
  group_size=6,
  views=3,
  singles=2,
  queries=25,
  captions=12,
  hard_frac=0.5,
  dress_frac=0.0,
  swap_frac=0.4,
  alone_frac=0.33,
  vague_frac=0.2,
  partial_frac=0.3,
  twin_frac=0.0,
  logo_frac=0.0,
  household_frac=0.0,
  front_frac=0.0,
  clutter_frac=0.0,
  strong_frac=0.0,
  max_query_tokens=36,
  max_caption_tokens=30,
)
PICTURES = 3 * 3 + 2


@pytest.fixture(scope='module')
def groups():
  return [pairs.make_group((SPEC, number)) for number in range(4)]


@pytest.fixture(scope='module')
def make_batches(maker):
  def make(spec=SPEC):
    return pairs.PairBatches(spec, maker, workers=0)

  return make


@pytest.fixture(scope='module')
def eight(make_batches):
  """Returns the batches of two windows."""
  batches = make_batches()
  return [next(batches) for _ in range(8)]


def make_batch(groups, maker, spec=SPEC, seed=0):
  return pairs.make_batch(spec, np.random.default_rng(seed), groups, maker)


def assert_equal(a, b):
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_array_equal(a[name], b[name])


def read_texts(maker, batch, name):
  return [reading.read_text(maker, row) for row in batch[f'{name}/tokens']]


def list_pictures(groups):
  """Returns the objects of each picture of a batch, left to right."""
  return [things for group in groups for things in group.things]


def test_queries_positives_are_what_their_words_say(groups, maker):
  batch = make_batch(groups[:2], maker)
  pictures = list_pictures(groups[:2])
  assert len(pictures) == 2 * PICTURES
  kinds = collections.Counter()
  for words, source, positive in zip(
    read_texts(maker, batch, 'query'),
    batch['query_source'],
    batch['query_positive'],
    strict=True,
  ):
    side, relation, colour = reading.parse_single_hop(words)
    shown = pictures[source]
    assert (side is None) == (len(shown) == 1)
    carried = shown[-1 if side == 'right' else 0]
    fitting = reading.find_fitting(
      pictures, carried.uid, {source}, relation=relation, colour=colour
    )
    assert positive.tolist() == [i in fitting for i in range(len(pictures))]
    assert positive.any()
    kinds[relation is not None, colour is not None] += 1
  # Precise, vague, and both kinds of partial queries are there.
  assert len(kinds) == 4


def test_captions_positives_are_what_their_words_say(groups, maker):
  batch = make_batch(groups[:2], maker)
  pictures = list_pictures(groups[:2])

  def name(thing):
    pattern = '' if thing.pattern == 'plain' else f'{thing.pattern} '
    words = f'{thing.colour} {pattern}{thing.type}'.replace(
      'two_tone', 'two - tone'
    )
    return words.replace('_', ' ')

  sizes = set()
  for words, positive in zip(
    read_texts(maker, batch, 'caption'), batch['caption_positive'], strict=True
  ):
    text = ' '.join(words).removesuffix(' .').removeprefix('a photo of ')
    if ' left of ' in text:
      parts = text.split(' left of ')
    elif ' right of ' in text:
      parts = text.replace(' to the right of ', ' right of ')
      parts = parts.split(' right of ')[::-1]
    else:
      parts = [text]
    parts = [part.split(' ', 1)[1] for part in parts]  # Without the article.
    expected = [[name(o) for o in objects] == parts for objects in pictures]
    assert positive.tolist() == expected
    assert any(expected)
    sizes.add(len(parts))
  assert sizes == {1, 2}


def test_each_token_is_labelled_with_its_object(groups, maker):
  batch = make_batch(groups[:2], maker)
  pictures = list_pictures(groups[:2])
  numbers = {}
  for objects, row, labels in zip(
    pictures, batch['object'], batch['attributes'], strict=True
  ):
    both = objects if len(objects) == 2 else objects * 2
    for thing, number, label in zip(both, row, labels, strict=True):
      assert numbers.setdefault(thing.uid, number) == number
      assert tuple(label) == pairs.compute_labels(thing)
  assert len(set(numbers.values())) == len(numbers) == 12
  thing = pictures[0][0]
  _, colour, second, pattern = pairs.compute_labels(thing)
  assert list(objects_lib.COLOURS)[colour] == thing.colour
  assert list(objects_lib.COLOURS)[second] == thing.second_colour
  assert objects_lib.PATTERNS[pattern] == thing.pattern
  for label, count in zip(
    batch['attributes'].max(axis=(0, 1)), pairs.count_labels(), strict=True
  ):
    assert label < count


def test_every_object_is_seen_in_each_view(groups):
  for group in groups:
    assert len(group.members) == len(group.pixels) == PICTURES
    seen = collections.Counter(m for row in group.members for m in row)
    assert set(seen) == set(range(6))
    assert set(seen.values()) <= {3, 4}
    for view in range(3):
      rows = group.members[3 * view : 3 * view + 3]
      assert sorted(m for row in rows for m in row) == list(range(6))
    assert [len(row) for row in group.members[9:]] == [1, 1]
    assert group.pixels.shape[1:] == (16, 24, 3)


def test_objects_belong_to_no_world(groups):
  owned = [
    {thing.uid for things in group.things for thing in things}
    for group in groups
  ]
  uids = set.union(*owned)
  assert len(uids) == sum(map(len, owned)) == 4 * 6
  assert all(uid.startswith('pretrain-5/') for uid in uids)
  other = pairs.make_group((dataclasses.replace(SPEC, seed=6), 0))
  shapes = [
    [thing.shape for things in group.things for thing in things]
    for group in (other, groups[0])
  ]
  assert shapes[0] != shapes[1]


def test_hard_groups_share_few_types_or_colours():
  spec = dataclasses.replace(
    SPEC, hard_frac=1.0, group_size=12, views=2, singles=0, alone_frac=0
  )
  few = collections.Counter()
  for number in range(6):
    rng = np.random.default_rng(number)
    things = pairs._sample_objects(spec, rng, number, procedural.PROCEDURAL)
    types = {thing.type for thing in things}
    colours = {thing.colour for thing in things}
    assert len(types) <= 3 or len(colours) <= 2
    few['types' if len(types) <= 3 else 'colours'] += 1
  assert len(few) == 2


def test_dressed_groups_share_colours_and_pattern_but_not_the_type():
  spec = dataclasses.replace(SPEC, dress_frac=1.0, hard_frac=1.0, group_size=12)
  rng = np.random.default_rng(0)
  things = pairs._sample_objects(spec, rng, 0, procedural.PROCEDURAL)
  dresses = {(x.colour, x.second_colour, x.pattern) for x in things}
  assert len(dresses) <= 3
  assert len({thing.type for thing in things}) > 6


def test_swapped_views_exchange_the_sides():
  def list_views(swap_frac):
    spec = dataclasses.replace(SPEC, swap_frac=swap_frac)
    members = pairs._sample_members(spec, np.random.default_rng(0))
    return [members[3 * view : 3 * view + 3] for view in range(3)]

  first, second, third = list_views(1.0)
  assert first == third
  assert second == [row[::-1] for row in first]
  first, second, third = list_views(0.0)
  assert len({frozenset(map(frozenset, v)) for v in (first, second, third)}) > 1


@pytest.mark.parametrize(('alone_frac', 'count'), [(0, 0), (0.4, 10), (1, 25)])
def test_share_of_queries_from_objects_alone_is_kept(
  groups, maker, alone_frac, count
):
  spec = dataclasses.replace(SPEC, alone_frac=alone_frac)
  batch = make_batch(groups[:2], maker, spec)
  pictures = list_pictures(groups[:2])
  sources = collections.Counter(batch['query_source'].tolist())
  alone = {i: n for i, n in sources.items() if len(pictures[i]) == 1}
  assert sum(alone.values()) == count
  # Each picture has its turn before one comes again.
  assert not alone or max(alone.values()) - min(alone.values()) <= 1


def test_shares_of_vague_and_partial_queries_are_kept(groups, maker):
  for vague, partial, wanted in (
    (1.0, 0.0, {(False, False)}),
    (0.0, 1.0, {(True, False), (False, True)}),
    (0.0, 0.0, {(True, True)}),
  ):
    spec = dataclasses.replace(SPEC, vague_frac=vague, partial_frac=partial)
    batch = make_batch(groups[:1], maker, spec)
    found = {
      (relation is not None, colour is not None)
      for _, relation, colour in map(
        reading.parse_single_hop, read_texts(maker, batch, 'query')
      )
    }
    assert found == wanted


def test_same_spec_gives_the_same_batches(make_batches, eight):
  batches = make_batches()
  for i, batch in enumerate(eight):
    assert batches.get_state() == {'next': i}
    assert_equal(next(batches), batch)
  shapes = {name: array.shape for name, array in eight[0].items()}
  assert shapes['pixels'] == (2 * PICTURES, 16, 24, 3)
  assert shapes['query/tokens'] == (25, 36)
  assert shapes['caption/tokens'] == (12, 30)
  assert shapes['query_positive'] == (25, 2 * PICTURES)


@pytest.mark.parametrize('start', [1, 2, 3, 4, 7])
def test_restored_position_gives_the_same_batches(make_batches, eight, start):
  # In the first window, in its repetition, and in the second window.
  batches = make_batches()
  batches.set_state({'next': start})
  for batch in eight[start : start + 2]:
    assert_equal(next(batches), batch)


def test_position_may_go_back(make_batches, eight):
  batches = make_batches()
  for _ in range(5):
    next(batches)
  batches.set_state({'next': 1})
  assert_equal(next(batches), eight[1])


def test_repeats_show_the_same_pictures_in_other_company(eight):
  def digest(batch):
    return frozenset(
      hashlib.sha256(p.tobytes()).hexdigest() for p in batch['pixels']
    )

  sets = [digest(batch) for batch in eight]
  # A window is two batches, gone through twice.
  assert sets[0] | sets[1] == sets[2] | sets[3]
  assert not (sets[0] | sets[1]) & (sets[4] | sets[5])
  # By chance a window may be cut alike again, but not both.
  assert {*sets[:2]} != {*sets[2:4]} or {*sets[4:6]} != {*sets[6:]}
  texts = [batch['query/tokens'].tolist() for batch in eight]
  assert all(texts[i] != texts[j] for i in range(8) for j in range(i))


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'group_size': 7}, 'group_size=7 must be even'),
    ({'views': 1}, 'views=1'),
    ({'singles': 7}, 'singles=7'),
    ({'singles': 0}, 'alone_frac=0.33 needs pictures of one object'),
  ],
)
def test_groups_that_cannot_be_drawn_are_usage_errors(change, words):
  with pytest.raises(errors.UsageError, match=words):
    dataclasses.replace(SPEC, **change)


def test_text_beyond_the_limit_is_a_usage_error(groups, maker):
  spec = dataclasses.replace(SPEC, max_caption_tokens=5)
  with pytest.raises(errors.UsageError, match='limit of 5'):
    make_batch(groups[:1], maker, spec)


def test_look_alikes_are_of_the_group_and_change_nothing_else():
  spec = dataclasses.replace(SPEC, twin_frac=0.5, hard_frac=0.0)
  twins = 0
  for number in range(4):
    group = pairs.make_group((spec, number))
    things = {thing.uid: thing for row in group.things for thing in row}
    for thing in things.values():
      if thing.change:
        twins += 1
        same = ('type', 'colour', 'pattern')
        assert any(
          other.uid != thing.uid
          and all(getattr(other, name) == getattr(thing, name) for name in same)
          for other in things.values()
        )
  assert 4 <= twins <= 16


def test_pictures_of_logos_show_objects_of_their_own(maker):
  spec = dataclasses.replace(SPEC, logo_frac=1.0, resolution=96)
  groups = [pairs.make_group((spec, number)) for number in range(2)]
  for group in groups:
    assert group.printed == 'logo'
    logos = {}
    uids = []
    for members, things in zip(group.members, group.things, strict=True):
      for mark, thing in zip(members, things, strict=True):
        assert logos.setdefault(mark, thing.logo) == thing.logo
        uids.append(thing.uid)
    assert len(set(logos.values())) == len(logos) == 6
    assert len(set(uids)) == len(uids)
  batch = make_batch(groups, maker, spec)
  pictures = list_pictures(groups)
  for text, source, positives in zip(
    read_texts(maker, batch, 'query'),
    batch['query_source'],
    batch['query_positive'],
    strict=True,
  ):
    assert 'logo' in text
    # Every picture that is wanted shows one of the source's logos.
    borne = {thing.logo for thing in pictures[source]}
    for i in np.flatnonzero(positives):
      assert borne & {thing.logo for thing in pictures[i]}
    assert positives.any()


def test_shares_change_no_other_group():
  """What is not chosen for another kind is drawn as it would be without."""
  spec = dataclasses.replace(SPEC, logo_frac=0.5)
  kinds = set()
  for number in range(6):
    group = pairs.make_group((spec, number))
    kinds.add(group.printed)
    if not group.printed:
      plain = pairs.make_group((SPEC, number))
      np.testing.assert_array_equal(group.pixels, plain.pixels)
  assert kinds == {'', 'logo'}


@pytest.mark.parametrize(
  ('share', 'roles'),
  [('front_frac', [{'foreground'}]), ('clutter_frac', [{'clutter'}])],
)
def test_further_objects_stand_in_a_share_of_the_pictures(
  monkeypatch, share, roles
):
  spec = dataclasses.replace(SPEC, **{share: 0.5})
  scenes = draw_scenes(monkeypatch, spec)
  assert len(scenes) == 4 * PICTURES
  full = [scene for scene in scenes if scene.extras]
  assert 0.25 < len(full) / len(scenes) < 0.75
  for scene in full:
    assert {extra.role for extra in scene.extras} in roles
    assert 1 <= len(scene.extras) <= 3
    types = {thing.object.type for thing in scene.placements}
    assert not types & {e.placement.object.type for e in scene.extras}
  counts = {len(scene.extras) for scene in full}
  assert counts == ({1} if share == 'front_frac' else {1, 2, 3})


def test_strong_pictures_are_textured_throughout(monkeypatch):
  plain, strong = (
    draw_scenes(monkeypatch, dataclasses.replace(SPEC, strong_frac=frac))
    for frac in (0.0, 1.0)
  )
  shares = [
    np.mean([scene.camera.fov > 0.9 for scene in scenes])
    for scenes in (plain, strong)
  ]
  assert shares[0] == 0 < shares[1]
  assert all(scene.background.wall_distance for scene in strong)


def test_objects_without_room_for_more_are_pictured_alone(monkeypatch):
  spec = dataclasses.replace(SPEC, front_frac=1.0)

  def refuse(*args):
    raise extras.NoRoomError('none')

  monkeypatch.setattr(extras, 'sample_scene', refuse)
  assert not any(scene.extras for scene in draw_scenes(monkeypatch, spec))


def draw_scenes(monkeypatch, spec):
  """Returns the scenes of four groups, without rendering them."""
  scenes = []

  class Renderer:
    def render(self, scene):
      scenes.append(scene)
      return np.zeros((16, 24, 3), np.uint8)

  monkeypatch.setattr(pairs.render_pool, 'get_renderer', lambda _: Renderer())
  for number in range(4):
    pairs.make_group((spec, number))
  return scenes

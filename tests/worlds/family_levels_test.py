"""Tests families of levels 5 to 7: look-alikes, shared logos, shared texts."""

import collections
import dataclasses

import pytest

from vhop_jax import errors
from vhop_jax.worlds import family as family_lib
from vhop_jax.worlds import geometry, prints
from vhop_jax.worlds import world as world_lib

PACK = geometry.PACKS['procedural']


def make(level, number=0, **values):
  values = {'families': 1, 'seed': 5, 'resolution': 224} | values
  spec = world_lib.Spec(level=level, **values)
  return family_lib.make_family(spec, number, PACK)


def list_things(family):
  return [thing for objects in family.images.values() for thing in objects]


@pytest.mark.parametrize('prompt', ['precise', 'vague'])
def test_level_5_has_two_images_of_look_alikes_more(prompt):
  for number in range(5):
    family = make(5, number, prompt=prompt)
    twins = [thing for thing in list_things(family) if thing.change]
    assert len(twins) == 2
    assert {'ta', 'tb'} < family.images.keys()
    things = {thing.uid: thing for thing in list_things(family)}
    for twin in twins:
      # Told apart by the one change from exactly one other object.
      same = ('type', 'colour', 'pattern')
      look_alikes = [
        thing
        for thing in things.values()
        if thing.uid != twin.uid
        and all(getattr(thing, n) == getattr(twin, n) for n in same)
        and (thing.shape == twin.shape) == (twin.change == 'trim')
      ]
      assert look_alikes
      changed = [
        sum(a != b for a, b in zip(thing.shape, twin.shape, strict=True))
        + (thing.second_colour != twin.second_colour)
        for thing in look_alikes
      ]
      assert 1 in changed


@pytest.mark.parametrize(('level', 'name'), [(6, 'logo'), (7, 'text')])
def test_a_print_is_on_objects_of_different_types(level, name):
  owners = collections.defaultdict(list)
  family = make(level)
  for thing in list_things(family):
    owners[getattr(thing, name)].append(thing)
  assert '' not in owners
  shared = [things for things in owners.values() if len(things) > 1]
  # Start and links of both chains, at least.
  assert len(shared) >= 5
  for things in shared:
    assert len({thing.uid for thing in things}) == len(things)
    assert len({thing.type for thing in things}) == len(things)


@pytest.mark.parametrize(('level', 'name'), [(6, 'logo'), (7, 'text')])
def test_chain_links_share_a_print_and_lead_to_the_asked_colour(level, name):
  family = make(level)
  for route, hops in zip(family.routes, family.hops, strict=True):
    [carried] = family.images[route.query]
    for slot, hop in zip(route.slots, hops, strict=True):
      left, right = family.images[slot]
      subject, other = (
        (left, right) if hop.relation == 'leftof' else (right, left)
      )
      assert getattr(subject, name) == getattr(carried, name)
      assert subject.uid != carried.uid
      assert other.colour == hop.colour
      carried = other


def test_what_makes_a_link_varies_in_colour():
  same = []
  for number in range(4):
    family = make(6, number, families=4)
    for route in family.routes:
      [carried] = family.images[route.query]
      left, right = family.images[route.slots[0]]
      seen = left if left.logo == carried.logo else right
      same.append(seen.colour == carried.colour)
  assert not all(same)


def test_families_of_a_world_share_no_print():
  logos = [
    {thing.logo for thing in list_things(make(6, number, families=9))}
    for number in range(9)
  ]
  assert len(set.union(*logos)) == sum(map(len, logos))


def test_halves_of_the_prints_are_kept():
  pools = {name: prints.list_prints(7, name) for name in ('train', 'test')}
  for name, pool in pools.items():
    texts = {thing.text for thing in list_things(make(7, prints=name))}
    assert texts <= set(pool)


def test_worlds_that_cannot_be_are_refused():
  with pytest.raises(errors.UsageError, match=r'families=60.*59 families'):
    world_lib.Spec(level=6, families=60, seed=0, prints='test')
  with pytest.raises(errors.UsageError, match='resolution=96'):
    world_lib.Spec(level=7, families=1, seed=0)
  with pytest.raises(errors.UsageError, match='nothing is printed below L6'):
    world_lib.Spec(level=5, families=1, seed=0, prints='test')
  with pytest.raises(errors.UsageError, match='choose all, train, test'):
    world_lib.Spec(level=6, families=1, seed=0, prints='half')


def test_prints_alone_tell_two_keys_apart():
  spec = world_lib.Spec(level=6, families=1, seed=0)
  assert spec.key == 'L6-precise-3hop-procedural-seed0'
  assert dataclasses.replace(spec, prints='test').key != spec.key

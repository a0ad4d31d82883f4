"""Breaks worlds of levels 5 to 7 on purpose; the verifier must notice."""

import dataclasses

import pytest

from vhop_jax.worlds import builder, render_pool, verify
from vhop_jax.worlds import world as world_lib


@pytest.fixture(scope='module')
def worlds():
  return {
    level: builder.make_world(
      world_lib.Spec(level=level, families=2, seed=5, resolution=224),
      render_pool.RenderPool(0),
    )
    for level in (5, 6, 7)
  }


def find_rules(world):
  return {breach.rule for breach in verify.verify_world(world)}


def change_objects(world, change, *, where=lambda image: True):
  """Replaces objects in the records and in the scenes of some images."""
  images = []
  for image in world.images:
    if where(image):
      scene = dict(image.scene)
      scene['placements'] = [
        {**p, 'object': change(type(image.objects[0]).from_json(p['object']))}
        for p in scene['placements']
      ]
      for placement in scene['placements']:
        placement['object'] = placement['object'].to_json()
      image = dataclasses.replace(
        image, objects=tuple(map(change, image.objects)), scene=scene
      )
    images.append(image)
  return dataclasses.replace(world, images=tuple(images))


@pytest.mark.parametrize('level', [5, 6, 7])
def test_good_worlds_keep_every_rule(worlds, level):
  assert find_rules(worlds[level]) == set()


@pytest.mark.parametrize('level', [5, 6, 7])
def test_scene_without_its_look_alike_is_noticed(worlds, level):
  world = change_objects(
    worlds[level],
    lambda thing: dataclasses.replace(thing, change=''),
  )
  assert find_rules(world) == {'distractor-L5'}


@pytest.mark.parametrize('name', ['colour', 'pattern', 'type'])
def test_look_alike_has_the_colour_pattern_and_type_of_what_links(worlds, name):
  other = {'colour': 'none', 'pattern': 'other', 'type': 'mug'}[name]
  world = change_objects(
    worlds[5],
    lambda thing: dataclasses.replace(
      thing, **{name: other} if thing.change else {}
    ),
  )
  assert 'distractor-L5' in find_rules(world)


def test_look_alike_in_another_relation_is_none(worlds):
  """A look-alike on the wrong side is told from the object by the side."""
  images = tuple(
    dataclasses.replace(image, objects=image.objects[::-1])
    if any(thing.change for thing in image.objects)
    else image
    for image in worlds[5].images
  )
  world = dataclasses.replace(worlds[5], images=images)
  assert find_rules(world) == {'distractor-L5', 'order'}


def test_look_alike_with_the_same_logo_is_a_second_way(worlds):
  """What is to be told from the linking object must not link itself."""
  world = worlds[6]
  query = world.queries[0]
  search = verify.Search(world)
  chain = list(search.follow(query, query.chains[0]))
  for _, carried, _, _ in chain:
    changed = change_objects(
      world,
      lambda thing, logo=carried.logo: (
        dataclasses.replace(thing, logo=logo)
        if thing.change and thing.type == carried.type  # noqa: B023
        else thing
      ),
      where=lambda image: image.family == query.family,
    )
    if changed != world:
      assert {'unique-chain', 'answers'} <= find_rules(changed) or (
        'distractor-L5' in find_rules(changed)
      )
      return
  pytest.fail('no look-alike in the family')


@pytest.mark.parametrize('level', [5, 6, 7])
def test_each_object_bears_what_its_level_links_by(worlds, level):
  wrong = {
    5: {'logo': 'github'},
    6: {'text': 'MOKA'},
    7: {'text': ''},
  }[level]
  first = worlds[level].images[0].objects[0].uid
  world = change_objects(
    worlds[level],
    lambda thing: (
      dataclasses.replace(thing, **wrong) if thing.uid == first else thing
    ),
  )
  assert 'print' in find_rules(world)


def test_print_links_two_different_objects(worlds):
  world = worlds[6]
  query = world.queries[0]
  [start] = world.images[world.index(query.image)].objects
  gold = world.images[world.index(query.chains[0][0])]
  [seen] = [thing for thing in gold.objects if thing.logo == start.logo]
  # The same thing again, as in the levels below.
  again = change_objects(
    world, lambda thing: start if thing.uid == seen.uid else thing
  )
  assert 'print' in find_rules(again)
  # Another thing of the same type.
  like = dataclasses.replace(start, uid=seen.uid, colour=seen.colour)
  world = change_objects(
    world, lambda thing: like if thing.uid == seen.uid else thing
  )
  assert 'print' in find_rules(world)


def test_logo_of_another_family_is_noticed(worlds):
  world = worlds[6]
  [one] = [i for i in world.images if i.id == world.queries[0].image]
  other = next(i for i in world.images if i.family != one.family)
  logo = other.objects[0].logo
  changed = change_objects(
    world,
    lambda thing: dataclasses.replace(thing, logo=logo),
    where=lambda image: image.id == one.id,
  )
  assert 'families' in find_rules(changed)


def turn(image, radians):
  placements = [
    {**p, 'yaw': p['yaw'] + radians} for p in image.scene['placements']
  ]
  return dataclasses.replace(
    image, scene={**image.scene, 'placements': placements}
  )


def test_print_that_is_turned_away_is_noticed(worlds):
  images = list(worlds[7].images)
  images[3] = turn(images[3], 3.0)
  world = dataclasses.replace(worlds[7], images=tuple(images))
  breaches = [b for b in verify.verify_world(world) if b.rule == 'print']
  assert {b.where for b in breaches} == {images[3].id}
  assert 'turned away' in breaches[0].message


def test_print_that_is_too_small_to_read_is_noticed(worlds):
  images = list(worlds[7].images)
  scene = images[3].scene
  placements = [{**p, 'scale': 0.2 * p['scale']} for p in scene['placements']]
  images[3] = dataclasses.replace(
    images[3], scene={**scene, 'placements': placements}
  )
  world = dataclasses.replace(worlds[7], images=tuple(images))
  breaches = [b for b in verify.verify_world(world) if b.rule == 'print']
  assert {b.where for b in breaches} == {images[3].id}
  assert 'px high' in breaches[0].message

"""Compares worlds written by hand that share one thing each."""

import dataclasses
import itertools

import pytest

from vhop_jax import errors
from vhop_jax.worlds import disjoint, wordings
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import world as world_lib

HOPS = (
  world_lib.Hop('leftof', 'red'),
  world_lib.Hop('rightof', 'orange'),
  world_lib.Hop('leftof', 'orange'),
  world_lib.Hop('rightof', 'blue'),
  world_lib.Hop('rightof', 'white'),
)


def thing(name, shape=0.5):
  return objects_lib.Object(name, 'mug', 'red', 'blue', 'plain', (shape,))


def make_world(number, *, wording='standard', text=None):
  """Makes a world of one image, and of one query if there is a text."""
  shown = thing(f'uid{number}', number / 10)
  scene = {
    'placements': [{'object': shown.to_json()}],
    'background': {'wall_distance': number},
  }
  query = world_lib.Query('0_leftof', 0, '00000', text, (), (), ())
  return world_lib.World(
    world_lib.Spec(4, 1, number, wording=wording),
    (world_lib.ImageRecord('00000', 0, (shown,), scene),),
    (query,) if text else (),
  )


def change_image(world, **values):
  [image] = world.images
  return dataclasses.replace(
    world, images=(dataclasses.replace(image, **values),)
  )


@pytest.fixture
def compare(monkeypatch):
  def run(*worlds):
    named = {f'w{i}': world for i, world in enumerate(worlds)}
    monkeypatch.setattr(world_lib, 'load_world', named.__getitem__)
    return disjoint.compare_worlds(list(named))

  return run


def list_kinds(comparison):
  return [breach.message.split()[2] for breach in comparison.breaches]


def say_all(wording):
  """Returns every instruction of a wording, of all lengths."""
  texts = []
  for kind, count in itertools.product(level_lib.PROMPTS, range(1, 6)):
    for one in wordings.WORDINGS[''][wording][kind]:
      texts.append(
        prompt_lib.say_vague(one, count)
        if kind == 'vague'
        else prompt_lib.say_precise(one, HOPS[:count])
      )
  return texts


def test_worlds_that_share_nothing_are_counted(compare):
  found = compare(make_world(1, text='Go on, then stop.'), make_world(2))
  assert found.breaches == ()
  assert found.counts == {
    'object': 2,
    'scene': 2,
    'background': 2,
    'clause': 2,
  }
  assert '2 objects, 2 scenes, 2 backgrounds, 2 clauses' in found.describe()


def test_same_object_is_found_by_its_looks_and_by_its_uid(compare):
  first, second = make_world(1), make_world(2)
  [image] = first.images
  looks = dataclasses.replace(image.objects[0], uid='another')
  found = compare(first, change_image(second, objects=(looks,)))
  assert list_kinds(found) == ['object']
  assert [b.where for b in found.breaches] == ['w1']
  assert 'with w0: image 00000 here, 00000 there' in found.breaches[0].message
  uid = dataclasses.replace(image.objects[0], shape=(0.9,))
  found = compare(first, change_image(second, objects=(uid,)))
  assert list_kinds(found) == ['uid']


def test_object_that_is_in_the_scene_alone_is_found(compare):
  # Something in front that no record lists, at whatever depth.
  first, second = (
    change_image(world, scene={**world.images[0].scene, 'more': [[{'a': own}]]})
    for world, own in (
      (make_world(1), thing('x', 0.7).to_json()),
      (make_world(2), thing('y', 0.7).to_json()),
    )
  )
  assert list_kinds(compare(first, second)) == ['object']


def test_same_scene_and_same_background_are_found(compare):
  first, second = make_world(1), make_world(2)
  scene = {'background': {'wall_distance': 1}, 'placements': []}
  found = compare(first, change_image(second, scene=scene))
  assert list_kinds(found) == ['background']
  empty = {'camera': 3}
  found = compare(
    change_image(first, scene=empty), change_image(second, scene=empty)
  )
  assert list_kinds(found) == ['scene']


def test_what_one_world_has_twice_is_not_shared(compare):
  world = make_world(1)
  twice = dataclasses.replace(world, images=world.images * 2)
  assert compare(twice, make_world(2)).breaches == ()
  assert len(compare(make_world(1), twice).breaches) == 4


def test_standard_worlds_may_share_wordings(compare):
  worlds = (
    make_world(1, text='Find it. Go left of a red object, then stop.'),
    make_world(2, text='Go right of an orange object, then go on.'),
  )
  found = compare(*worlds)
  assert found.breaches == ()
  assert found.shared_clauses == 1


def test_rephrased_world_may_share_none_with_a_standard_one(compare):
  standard = make_world(1, text='Find it. Go left of a red object, then stop.')
  for text, shared in (
    ('Go right of an orange object. Which is it?', True),
    ('Which is left of a red object?', False),
  ):
    rephrased = make_world(2, wording='rephrased', text=text)
    for worlds in ((standard, rephrased), (rephrased, standard)):
      found = compare(*worlds)
      assert list_kinds(found) == (['but'] if shared else [])
      if shared:
        assert found.breaches[0].where == f'w{worlds.index(rephrased)}'
        assert "'go <relation> <colour> object'" in found.breaches[0].message
    twin = make_world(3, wording='rephrased', text=text)
    assert compare(rephrased, twin).breaches == ()


def test_no_wording_that_is_to_be_new_has_a_clause_of_a_standard_one():
  standard, rephrased = (
    {
      clause
      for text in say_all(wording)
      for clause in disjoint.list_clauses(text)
    }
    for wording in ('standard', 'rephrased')
  )
  assert len(standard) > len(rephrased) > 6
  assert not standard & rephrased


def test_clauses_do_not_depend_on_what_a_world_decides():
  for one in wordings.PRECISE:
    said = {
      tuple(
        disjoint.list_clauses(
          prompt_lib.say_precise(
            one,
            (
              world_lib.Hop(relation, colour),
              world_lib.Hop(relation, 'black'),
            ),
          )
        )
      )
      for relation in prompt_lib.RELATION_WORDS
      for colour in objects_lib.COLOURS
      if colour != 'black'
    }
    assert len(said) == 1
  for one in wordings.VAGUE:
    said = {
      frozenset(disjoint.list_clauses(prompt_lib.say_vague(one, count)))
      for count in range(2, 6)
    }
    assert len(said) == 1
  assert disjoint.list_clauses('Go on; is it an orange one?') == [
    'go on',
    'is it <colour> <number>',
  ]


def test_worlds_on_disk_are_compared(folder, other_folder):
  found = disjoint.compare_worlds([folder, other_folder])
  assert found.breaches == ()
  assert found.counts['background'] == found.counts['scene'] > 40
  assert found.shared_clauses > 0


def test_comparing_needs_two_worlds(folder):
  with pytest.raises(errors.UsageError, match='two worlds'):
    disjoint.compare_worlds([folder])
  # The same folder named twice is one world.
  assert disjoint.compare_worlds([folder, folder]).breaches == ()

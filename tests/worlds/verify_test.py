"""Breaks worlds on purpose; each rule must notice, and only that rule.

Most tests use a world written by hand, so that nothing of the generator is
taken on trust. It has no scenes, which breaks the rule `order` only.
"""

import dataclasses

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import verify
from vhop_jax.worlds import world as world_lib


def thing(uid, kind, colour):
  shape = (len(uid) / 100, ord(uid[0]) / 200)
  return objects_lib.Object(uid, kind, colour, 'white', 'plain', shape)


START = thing('s', 'kettle', 'red')
LINK = thing('g', 'mug', 'blue')
GOAL = thing('h', 'bowl', 'green')
SIBLING = thing('t', 'mug', 'blue')  # Of the link's type and colour.
WRONG = thing('w', 'hat', 'yellow')
DEAD = thing('e', 'drum', 'blue')

# Asked: left of a blue object, then right of a green object.
PICTURES = {
  'query': (START,),
  'gold1': (START, LINK),
  'gold2': (GOAL, LINK),
  'wrong relation': (SIBLING, START),
  'wrong colour': (WRONG, LINK),
  'dead end': (START, DEAD),
}
HOPS = (world_lib.Hop('leftof', 'blue'), world_lib.Hop('rightof', 'green'))
TEXT = (
  'Follow the links: this object is left of a blue object, that object is'
  ' right of a green object.'
)


def make_world(
  pictures=None, *, level=4, prompt='precise', with_chains=True, **values
):
  """Makes the hand-written world, with other pictures or query values."""
  pictures = PICTURES if pictures is None else pictures
  ids = {name: f'{i:05d}' for i, name in enumerate(pictures)}
  query = world_lib.Query(
    id='0_leftof',
    family=0,
    image=ids['query'],
    instruction=TEXT,
    hops=HOPS,
    chains=((ids['gold1'], ids['gold2']),),
    answers=(ids['gold2'],),
  )
  return world_lib.World(
    spec=world_lib.Spec(
      level, 1, 0, hops=2, prompt=prompt, with_chains=with_chains
    ),
    images=tuple(
      world_lib.ImageRecord(ids[name], 0, objects, {'name': name})
      for name, objects in pictures.items()
    ),
    queries=(dataclasses.replace(query, **values),),
  )


def find_rules(world, pixels=None):
  breaches = verify.verify_world(world, pixels)
  return {breach.rule for breach in breaches} - {'order'}


def without(name):
  return {key: value for key, value in PICTURES.items() if key != name}


def change_image(world, i, **values):
  images = list(world.images)
  images[i] = dataclasses.replace(images[i], **values)
  return dataclasses.replace(world, images=tuple(images))


def test_good_worlds_keep_every_rule(world):
  assert find_rules(make_world()) == set()
  assert verify.verify_world(world) == []


@pytest.mark.parametrize(
  ('missing', 'rule'),
  [
    ('wrong relation', 'distractor-L2'),
    ('wrong colour', 'distractor-L3'),
    ('dead end', 'distractor-L4'),
  ],
)
def test_each_distractor_is_missed(missing, rule):
  pictures = without(missing)
  if missing == 'wrong relation':
    # The sibling stays as the mate that level 1 asks for.
    pictures['elsewhere'] = (SIBLING, WRONG)
  assert find_rules(make_world(pictures)) == {rule}


@pytest.mark.parametrize(
  ('missing', 'level'),
  [('wrong relation', 1), ('wrong colour', 2), ('dead end', 3)],
)
def test_distractors_of_higher_levels_are_not_asked_for(missing, level):
  pictures = without(missing)
  pictures['elsewhere'] = (SIBLING, WRONG)
  if level == 1:
    pictures = {
      name: pictures[name] for name in ('query', 'gold1', 'gold2', 'elsewhere')
    }
  if level == 2:
    pictures.pop('dead end')
  assert find_rules(make_world(pictures, level=level)) == set()


@pytest.mark.parametrize('mate', ['type', 'colour'])
def test_object_of_the_same_type_and_of_the_same_colour_is_asked_for(mate):
  sibling = dataclasses.replace(SIBLING, **{mate: {'type': 'key'}.get(mate)})
  if mate == 'colour':
    # At level 1 no colour is checked, so only this rule can notice.
    sibling = dataclasses.replace(SIBLING, colour='pink')
  pictures = {
    'query': (START,),
    'gold1': (START, LINK),
    'gold2': (GOAL, LINK),
    'elsewhere': (sibling, WRONG),
  }
  breaches = verify.verify_world(make_world(pictures, level=1))
  messages = [b.message for b in breaches if b.rule == 'distractor-L1']
  assert messages == [f'no other object of the same {mate}']


@pytest.mark.parametrize(
  ('level', 'prompt', 'faults'),
  [
    (4, 'precise', ['wrong relation', 'wrong colour']),
    (2, 'precise', ['wrong relation']),
    (1, 'precise', []),
    (4, 'vague', []),
  ],
)
def test_step_has_the_faults_that_its_level_asks_for(level, prompt, faults):
  search = verify.Search(make_world(level=level, prompt=prompt))
  step = verify.Step('00000', 'rightof', WRONG)
  assert search.find_faults(step, HOPS[0]) == faults
  assert search.is_valid(step, HOPS[0]) == (not faults)


def test_wrong_relation_counts_from_level_3_only_in_the_right_colour():
  pink = dataclasses.replace(SIBLING, colour='pink')
  pictures = {**PICTURES, 'wrong relation': (pink, START)}
  assert 'distractor-L2' in find_rules(make_world(pictures))
  pictures = {k: v for k, v in pictures.items() if k[0] in 'qgw'}
  del pictures['wrong colour']
  pictures['elsewhere'] = (WRONG, DEAD)
  assert 'distractor-L2' not in find_rules(make_world(pictures, level=2))


def test_scene_that_can_be_finished_is_no_dead_end():
  pictures = {**PICTURES, 'way on': (GOAL, DEAD)}
  assert find_rules(make_world(pictures)) == {
    'unique-chain',
    'chains',
    'answers',
    'distractor-L4',
  }


def test_second_valid_answer_is_noticed():
  again = thing('k', 'boot', 'green')
  rules = find_rules(make_world({**PICTURES, 'again': (again, LINK)}))
  assert rules == {'unique-chain', 'chains', 'answers'}


def test_missing_answer_is_noticed():
  rules = find_rules(make_world(without('gold2') | {'gold2': (LINK, GOAL)}))
  assert {'unique-chain', 'chains', 'answers'} <= rules


def test_recorded_chain_and_answer_are_compared_with_those_found():
  assert find_rules(make_world(chains=(('00001', '00004'),))) == {'chains'}
  assert find_rules(make_world(answers=('00004',))) == {'answers'}
  assert find_rules(make_world(chains=(('00001', '99999'),))) == {'chains'}


def test_world_without_chains_is_searched_for_its_answers():
  none = {'with_chains': False, 'chains': ()}
  assert find_rules(make_world(**none)) == set()
  assert find_rules(make_world(**none, answers=('00004',))) == {'answers'}
  assert find_rules(make_world(**none, answers=('99999',))) == {'chains'}
  assert 'query-image' in find_rules(make_world(**none, image='00001'))
  assert 'chains' in find_rules(make_world(**none, image='99999'))
  again = thing('k', 'boot', 'green')
  rules = find_rules(make_world({**PICTURES, 'again': (again, LINK)}, **none))
  assert rules == {'unique-chain', 'answers'}


def test_world_without_chains_records_none():
  assert find_rules(make_world(with_chains=False)) == {'chains'}
  assert find_rules(make_world(chains=())) == {'chains'}


def test_restored_chains_are_those_recorded(world):
  assert verify.restore_chains(world) is world
  bare = make_world(with_chains=False, chains=())
  assert verify.restore_chains(bare) == make_world()


def test_hops_are_what_the_chain_shows():
  # At level 1 neither is checked by the search itself.
  pictures = {k: v for k, v in PICTURES.items() if k[0] in 'qg'}
  pictures['elsewhere'] = (SIBLING, WRONG)
  for hops in (
    (HOPS[0], world_lib.Hop('leftof', 'green')),
    (HOPS[0], world_lib.Hop('rightof', 'pink')),
    HOPS[:1],
  ):
    assert find_rules(make_world(pictures, level=1, hops=hops)) == {'hops'}


def test_vague_query_must_list_all_of_at_least_two_chains():
  pictures = {
    'query': (START,),
    'gold1': (START, LINK),
    'gold2': (GOAL, LINK),
    'b1': (SIBLING, START),
    'b2': (SIBLING, WRONG),
  }
  chains = (('00001', '00002'), ('00003', '00004'))
  good = {'chains': chains, 'answers': ('00002', '00004')}
  text = 'Start from this object and go on for two links.'
  values = {'level': 1, 'prompt': 'vague', 'instruction': text}
  assert find_rules(make_world(pictures, **values, **good)) == set()
  bad = {**good, 'chains': chains[:1]}
  assert find_rules(make_world(pictures, **values, **bad)) == {'chains'}
  del pictures['b2']
  only = {'chains': chains[:1], 'answers': ('00002',)}
  assert 'chains' in find_rules(make_world(pictures, **values, **only))


@pytest.mark.parametrize(
  'text',
  [
    TEXT.replace('left', 'right'),
    TEXT.replace('blue', 'pink'),
    TEXT.replace('is left of', 'is beside'),
    TEXT + ' It is yellow.',
    TEXT + ' Look right.',
    'Find the last photo.',
  ],
)
def test_prompt_must_say_the_route_and_nothing_else(text):
  assert find_rules(make_world(instruction=text)) == {'prompt'}


@pytest.mark.parametrize('word', ['red', 'left'])
def test_vague_prompt_must_not_tell_colour_or_side(word):
  world = make_world(prompt='vague', instruction=f'Find a {word} one.')
  assert 'prompt' in find_rules(world)


def test_query_id_is_family_and_relation_and_used_once():
  assert find_rules(make_world(id='0_rightof')) == {'query-id'}
  world = make_world()
  twice = dataclasses.replace(world, queries=world.queries * 2)
  assert find_rules(twice) == {'query-id'}


def test_query_image_shows_the_start_alone():
  pictures = {**PICTURES, 'query': (START, WRONG)}
  assert 'query-image' in find_rules(make_world(pictures))


def test_ids_are_the_positions():
  world = make_world()
  assert find_rules(change_image(world, 1, id='1')) == {'ids'}
  swapped = world.images[1::-1] + world.images[2:]
  assert find_rules(dataclasses.replace(world, images=swapped)) == {'ids'}


def test_families_share_no_object():
  assert find_rules(change_image(make_world(), 3, family=1)) == {'families'}
  assert 'families' in find_rules(make_world(family=7, id='7_leftof'))


def test_object_keeps_its_looks_and_has_no_double():
  changed = dataclasses.replace(LINK, pattern='dotted')
  world = change_image(make_world(), 4, objects=(WRONG, changed))
  assert find_rules(world) == {'objects'}
  double = dataclasses.replace(WRONG, uid='another')
  world = make_world({**PICTURES, 'more': (double, SIBLING)})
  assert find_rules(world) == {'objects'}


def test_image_shows_one_or_two_different_objects():
  assert find_rules(change_image(make_world(), 3, objects=())) == {'view'}
  twice = change_image(make_world(), 3, objects=(START, START))
  assert find_rules(twice) == {'view'}


def test_no_scene_is_there_twice():
  world = change_image(make_world(), 3, scene={'name': 'gold1'})
  assert find_rules(world) == {'same-scene'}


def test_scene_shows_the_objects_in_the_recorded_order(world):
  position = next(
    i for i, image in enumerate(world.images) if len(image.objects) == 2
  )
  image = world.images[position]
  swapped = change_image(world, position, objects=image.objects[::-1])
  orders = [b for b in verify.verify_world(swapped) if b.rule == 'order']
  assert [breach.where for breach in orders] == [image.id]
  # The camera decides what is left, not the order of the placements.
  scene = {**image.scene, 'placements': image.scene['placements'][::-1]}
  same = change_image(world, position, scene=scene)
  assert 'order' not in {b.rule for b in verify.verify_world(same)}


def test_pictures_are_all_different_and_as_many_as_the_records():
  pixels = np.zeros((6, 64, 96, 3), np.uint8)
  pixels[:] = np.arange(6)[:, None, None, None]
  assert find_rules(make_world(), pixels) == set()
  assert find_rules(make_world(), pixels[:5]) == {'count'}
  assert find_rules(make_world(), pixels[:, :, :48]) == {'count'}
  pixels[5] = pixels[2]
  assert find_rules(make_world(), pixels) == {'same-pixels'}


def test_refused_queries_are_those_that_break_a_rule():
  assert verify.find_refused_queries(make_world()) == {}
  refused = verify.find_refused_queries(make_world(without('dead end')))
  assert list(refused) == ['0_leftof']
  assert refused['0_leftof'].rule == 'distractor-L4'


def test_comparing_needs_two_worlds(folder):
  with pytest.raises(errors.UsageError, match='two worlds'):
    verify.verify_disjoint([folder])

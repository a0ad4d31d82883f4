"""Breaks worlds on purpose; each rule must notice, and only that rule.

Most tests use a world written by hand, so that nothing of the generator is
taken on trust. It has no scenes, which breaks the rule `order` only.
"""

import dataclasses
import inspect
import json
import re
import shutil

import numpy as np
import pytest

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
  pictures=None,
  *,
  level=4,
  prompt='precise',
  with_chains=True,
  relations='sides',
  **values,
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
      level,
      1,
      0,
      hops=2,
      prompt=prompt,
      with_chains=with_chains,
      relations=relations,
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


def make_vague_world(*missing, level=4, **values):
  """Makes a hand-written world of which both chains are valid."""
  pictures = {
    'query': (START,),
    'gold1': (START, LINK),
    'gold2': (GOAL, LINK),
    'sibling1': (SIBLING, START),
    'sibling2': (SIBLING, WRONG),
    'dead end': (START, DEAD),
  }
  chains = (('00001', '00002'), ('00003', '00004'))
  for name in missing:
    del pictures[name]
  return make_world(
    pictures,
    level=level,
    prompt='vague',
    **{
      'instruction': 'Start from this object and go on for two links.',
      'chains': chains,
      'answers': ('00002', '00004'),
      **values,
    },
  )


def order_by_family(world):
  """Returns a world whose families stand together in the gallery."""
  images = sorted(world.images, key=lambda image: image.family)
  ids = {image.id: f'{i:05d}' for i, image in enumerate(images)}
  return dataclasses.replace(
    world,
    images=tuple(dataclasses.replace(i, id=ids[i.id]) for i in images),
    queries=tuple(
      dataclasses.replace(
        query,
        image=ids[query.image],
        chains=tuple(tuple(ids[i] for i in c) for c in query.chains),
        answers=tuple(sorted(ids[i] for i in query.answers)),
      )
      for query in world.queries
    ),
  )


# For each rule of a world in memory one that breaks it; the tests below break
# each rule in every way that there is.
BROKEN = {
  'ids': lambda: change_image(make_world(), 1, id='7'),
  'view': lambda: change_image(make_world(), 3, objects=()),
  'families': lambda: change_image(make_world(), 3, family=1),
  'objects': lambda: make_world(
    {**PICTURES, 'more': (dataclasses.replace(WRONG, uid='x'), SIBLING)}
  ),
  'same-scene': lambda: change_image(make_world(), 3, scene={'name': 'gold1'}),
  'query-id': lambda: make_world(id='0_rightof'),
  'query-image': lambda: make_world({**PICTURES, 'query': (START, WRONG)}),
  'hops': lambda: make_world(hops=HOPS[:1]),
  'unique-chain': lambda: make_world(
    {**PICTURES, 'again': (thing('k', 'boot', 'green'), LINK)}
  ),
  'chains': lambda: make_world(chains=()),
  'answers': lambda: make_world(answers=('00004',)),
  'prompt': lambda: make_world(instruction='Find the last photo.'),
  'distractor-L1': lambda: make_world(
    {
      'query': (START,),
      'gold1': (START, LINK),
      'gold2': (GOAL, LINK),
    },
    level=1,
  ),
  'distractor-L2': lambda: make_world(
    {**without('wrong relation'), 'elsewhere': (SIBLING, WRONG)}
  ),
  'distractor-L3': lambda: make_world(without('wrong colour')),
  'distractor-L4': lambda: make_world(without('dead end')),
}
# These need a real gallery, pixels or files; those of levels 5 to 7 are in
# verify_levels_test.py, those of extras in verify_scene_test.py.
BROKEN_ELSEWHERE = {
  *('leak', 'count', 'same-pixels', 'fingerprint'),
  *('distractor-L5', 'print', 'extras'),
}


def test_every_rule_is_broken_on_purpose():
  rules = re.findall(r"Breach\(\s*'([\w-]+)'", inspect.getsource(verify))
  assert set(rules) == {*BROKEN, *BROKEN_ELSEWHERE}
  assert not BROKEN.keys() & BROKEN_ELSEWHERE


@pytest.mark.parametrize('rule', BROKEN)
def test_broken_world_is_caught_under_the_rule_it_breaks(rule):
  breaches = verify.verify_world(BROKEN[rule]())
  [first, *_] = [breach for breach in breaches if breach.rule == rule]
  # Every breach says where it is: a query or an image of the world.
  assert first.where in ('0_leftof', '0_rightof') or first.where.isdecimal()


def test_good_worlds_keep_every_rule(world):
  assert find_rules(make_vague_world()) == set()
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
  step = verify.Step('00000', START, 'rightof', WRONG)
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


def test_wrong_colour_counts_only_in_the_asked_relation():
  pictures = {**PICTURES, 'wrong colour': (LINK, WRONG)}
  assert find_rules(make_world(pictures)) == {'distractor-L3'}


@pytest.mark.parametrize(
  'dead_end',
  [(DEAD, START), (START, dataclasses.replace(DEAD, colour='pink'))],
  ids=['relation', 'colour'],
)
def test_dead_end_must_satisfy_every_local_check(dead_end):
  pictures = {**PICTURES, 'dead end': dead_end}
  assert find_rules(make_world(pictures)) == {'distractor-L4'}


def test_look_alike_is_not_the_linking_object():
  twin = dataclasses.replace(LINK, uid='g2', shape=(0.3, 0.4))
  pictures = {**PICTURES, 'gold2': (GOAL, twin)}
  rules = find_rules(make_world(pictures))
  assert rules == {'unique-chain', 'chains', 'answers', 'hops'}


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


@pytest.mark.parametrize('make', [make_world, make_vague_world])
def test_no_chain_is_recorded_twice(make):
  [query] = make().queries
  assert find_rules(make(chains=query.chains * 2)) == {'chains'}


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
  values = {'chains': (('00001', '00002'),), 'answers': ('00002',)}
  rules = find_rules(make_vague_world(chains=values['chains']))
  assert rules == {'chains'}
  rules = find_rules(make_vague_world(answers=values['answers']))
  assert rules == {'answers'}
  world = make_vague_world('sibling2', level=1, **values)
  assert find_rules(world) == {'chains'}


def test_vague_query_meets_mates_and_dead_ends_alone():
  assert find_rules(make_vague_world('dead end')) == {'distractor-L4'}
  assert find_rules(make_vague_world('dead end', level=3)) == set()
  pictures = {
    'sibling1': (dataclasses.replace(SIBLING, type='key'), START),
    'sibling2': (dataclasses.replace(SIBLING, type='key'), WRONG),
  }
  world = make_vague_world()
  for i, objects in zip((3, 4), pictures.values(), strict=True):
    world = change_image(world, i, objects=objects)
  assert find_rules(world) == {'distractor-L1'}


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


@pytest.mark.parametrize(
  ('relations', 'first', 'second', 'phrases'),
  [
    ('depth', 'infrontof', 'behind', ('in front of', 'behind')),
    ('height', 'ontop', 'below', ('on top of', 'below')),
  ],
)
def test_other_relations_are_searched_and_read_back(
  relations, first, second, phrases
):
  values = {
    'relations': relations,
    'id': f'0_{first}',
    'hops': (world_lib.Hop(first, 'blue'), world_lib.Hop(second, 'green')),
  }
  text = TEXT.replace('left of', phrases[0]).replace('right of', phrases[1])
  assert find_rules(make_world(**values, instruction=text)) == set()
  for wrong in (
    TEXT,
    text.replace(phrases[0], phrases[1]),
    text + ' Look left.',
    text + f' It is {phrases[1]} this.',
  ):
    assert find_rules(make_world(**values, instruction=wrong)) == {'prompt'}
  # The same pictures say nothing of another world's relations.
  values['relations'] = 'sides'
  rules = find_rules(make_world(**values, instruction=text))
  assert {'unique-chain', 'chains', 'hops'} <= rules


@pytest.mark.parametrize('word', ['red', 'left', 'front', 'behind', 'top'])
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


def test_scene_that_cannot_be_read_is_noticed(world):
  placed = world.images[0].scene['placements'][0]
  for scene in (
    {},
    {**world.images[0].scene, 'placements': [{**placed, 'object': {}}]},
  ):
    breaches = verify.verify_world(change_image(world, 0, scene=scene))
    [order] = [breach for breach in breaches if breach.rule == 'order']
    assert (order.where, order.message[:21]) == (
      world.images[0].id,
      'has no readable scene',
    )


def test_gallery_in_the_order_of_its_families_leaks(world):
  breaches = verify.verify_world(order_by_family(world))
  assert {breach.rule for breach in breaches} == {'leak'}


def test_fingerprints_are_compared(folder, tmp_path):
  assert verify.verify_folder(folder) == []
  for kind in ('content', 'pixels'):
    copy = shutil.copytree(folder, tmp_path / kind)
    path = copy / world_lib.HEADER_FILE
    header = json.loads(path.read_text())
    header['fingerprint'][kind] = '0' * 64
    path.write_text(json.dumps(header))
    [breach] = verify.verify_folder(copy)
    assert breach.rule == 'fingerprint'
    assert breach.message.startswith(kind)


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

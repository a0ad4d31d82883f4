import dataclasses

import pytest

from vhop_jax.worlds import link_graph
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import world as world_lib


def thing(uid, colour='red'):
  return objects_lib.Object(uid, 'kettle', colour, 'blue', 'plain', ())


A, B, C = thing('a'), thing('b', 'green'), thing('c', 'blue')


def make_graph(relations='sides'):
  pictures = [(A,), (A, B), (C, A), (B, C)]
  return link_graph.LinkGraph(
    [
      world_lib.ImageRecord(f'{i:05d}', 0, objects, {})
      for i, objects in enumerate(pictures)
    ],
    level=4,
    relations=relations,
  )


def test_links_lead_to_the_other_images_of_an_object():
  links = make_graph().links('00000', A)
  assert [(x.target_id, x.subject, x.relation, x.other) for x in links] == [
    ('00001', A, 'leftof', B),
    ('00002', A, 'rightof', C),
  ]
  assert [x.target_id for x in make_graph().links('00001', A)] == ['00002']


def test_prints_link_different_objects_from_level_6_on():
  def bearing(uid, logo, text=''):
    return dataclasses.replace(thing(uid), logo=logo, text=text)

  start, same, other = bearing('s', 'x'), bearing('t', 'x'), bearing('u', 'y')
  images = [
    world_lib.ImageRecord('00000', 0, (start,), {}),
    world_lib.ImageRecord('00001', 0, (other, same), {}),
    world_lib.ImageRecord('00002', 0, (start, other), {}),
  ]
  [one, two] = link_graph.LinkGraph(images, level=6).links('00000', start)
  assert (one.target_id, one.subject, one.relation) == (
    '00001',
    same,
    'rightof',
  )
  assert (two.target_id, two.subject) == ('00002', start)
  # Where objects themselves make links, the same logo makes none.
  [link] = link_graph.LinkGraph(images, level=5).links('00000', start)
  assert link.target_id == '00002'


@pytest.mark.parametrize(
  ('relations', 'pair'),
  [('depth', ['infrontof', 'behind']), ('height', ['ontop', 'below'])],
)
def test_relation_of_a_link_is_that_of_the_worlds_pair(relations, pair):
  links = make_graph(relations).links('00000', A)
  assert [link.relation for link in links] == pair


def test_valid_links_apply_the_constraints_of_the_level():
  def targets(level, prompt, hop):
    spec = world_lib.Spec(level, 1, 0, prompt=prompt)
    links = make_graph().valid_links(spec, hop, '00000', A)
    return [link.target_id for link in links]

  right_of_red = world_lib.Hop('rightof', 'red')
  assert targets(1, 'precise', right_of_red) == ['00001', '00002']
  assert targets(2, 'precise', right_of_red) == ['00002']
  assert targets(3, 'precise', right_of_red) == []
  assert targets(3, 'precise', world_lib.Hop('rightof', 'blue')) == ['00002']
  assert targets(4, 'vague', right_of_red) == ['00001', '00002']

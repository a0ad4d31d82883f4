import collections

import pytest

from vhop_jax.worlds import family as family_lib
from vhop_jax.worlds import geometry, wordings
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import world as world_lib

PACK = geometry.PACKS['procedural']


def make(number=0, **values):
  values = {'level': 4, 'families': 1, 'seed': 5} | values
  return family_lib.make_family(world_lib.Spec(**values), number, PACK)


def test_family_is_the_same_whatever_was_made_before():
  alone = make(3)
  for number in range(3):
    make(number)
  assert make(3, families=50, resolution=224) == alone


def test_chain_links_share_one_object_and_stand_in_the_asked_relation():
  family = make()
  for route, hops in zip(family.routes, family.hops, strict=True):
    [carried] = family.images[route.query]
    for slot, hop in zip(route.slots, hops, strict=True):
      left, right = family.images[slot]
      expected = left if hop.relation == 'leftof' else right
      assert expected == carried
      carried = right if hop.relation == 'leftof' else left
      assert carried.colour == hop.colour


def test_sibling_chain_mirrors_every_relation():
  a, b = make().hops
  mirror = {'leftof': 'rightof', 'rightof': 'leftof'}
  assert [mirror[hop.relation] for hop in a] == [hop.relation for hop in b]
  assert a[0].relation == 'leftof'
  assert a[0].colour == b[0].colour


@pytest.mark.parametrize('prompt', ['precise', 'vague'])
@pytest.mark.parametrize(
  ('relations', 'pair'),
  [('depth', ('infrontof', 'behind')), ('height', ('ontop', 'below'))],
)
def test_other_relations_take_the_place_of_left_and_right(
  relations, pair, prompt
):
  for number in range(6):
    family = make(number, relations=relations, prompt=prompt)
    a, b = family.hops
    assert a[0].relation == pair[0]
    assert {hop.relation for hop in (*a, *b)} == set(pair)
    for hop, sibling in zip(a, b, strict=True):
      assert {hop.relation, sibling.relation} == set(pair)
    # The object of the first relation is named first.
    for route, hops in zip(family.routes, family.hops, strict=True):
      [carried] = family.images[route.query]
      for slot, hop in zip(route.slots, hops, strict=True):
        first, second = family.images[slot]
        assert (first if hop.relation == pair[0] else second) == carried
        carried = second if hop.relation == pair[0] else first


@pytest.mark.parametrize(
  ('values', 'count'),
  [
    # k images a chain, one query image, and the level's distractors.
    ({'level': 1}, 2 * 3 + 2),
    ({'level': 2}, 2 * 3 + 1),
    ({'level': 3}, 2 * 3 + 1 + 1),
    ({'level': 1, 'prompt': 'vague'}, 2 * 3 + 1),
    ({'level': 4, 'prompt': 'vague'}, 2 * 3 + 1 + 2),
    ({'level': 3, 'hops': 5}, 2 * 5 + 1 + 1),
  ],
)
def test_family_has_the_images_of_its_level(values, count):
  assert len(make(**values).images) == count


def test_level_4_keeps_to_about_four_and_a_half_images_a_query():
  # Two dead ends; where two relations in a row agree they are cross-linked
  # and stand for the wrong colour too (3 of 4 families), else one image more.
  spec = world_lib.Spec(level=4, families=400, seed=5)
  sizes = collections.Counter(
    len(family_lib.list_slots(spec, number)) for number in range(400)
  )
  assert set(sizes) == {9, 10}
  assert sizes[9] / 400 == pytest.approx(0.75, abs=0.08)


@pytest.mark.parametrize('kind', ['precise', 'vague'])
@pytest.mark.parametrize('wording', ['standard', 'rephrased'])
def test_family_is_asked_for_in_the_wording_of_its_world(kind, wording):
  family = make(prompt=kind, wording=wording)
  for hops, text in zip(family.hops, family.instructions, strict=True):
    said = [
      prompt_lib.say_vague(one, len(hops))
      if kind == 'vague'
      else prompt_lib.say_precise(one, hops)
      for one in wordings.WORDINGS[''][wording][kind]
    ]
    assert text in said


def test_chains_of_level_1_have_starts_of_their_own():
  family = make(level=1)
  starts = {family.images[route.query][0].uid for route in family.routes}
  assert len(starts) == 2


def test_uids_of_other_worlds_and_families_differ():
  families = [make(), make(1), make(seed=6), make(level=3), make(hops=2)]
  uids = [
    {o.uid for objects in family.images.values() for o in objects}
    for family in families
  ]
  assert len(set.union(*uids)) == sum(map(len, uids))


def test_generator_depends_on_seed_family_and_purpose():
  spec, other = (world_lib.Spec(4, 1, seed) for seed in (1, 2))
  draws = [
    family_lib.make_rng(*key).integers(2**32)
    for key in ((spec, 0, 'a'), (spec, 0, 'b'), (spec, 1, 'a'), (other, 0, 'a'))
  ]
  assert len(set(draws)) == 4
  assert family_lib.make_rng(spec, 0, 'a').integers(2**32) == draws[0]


def test_slots_are_known_before_anything_else_is_made():
  spec = world_lib.Spec(4, 9, 5)
  for number in range(9):
    slots = family_lib.list_slots(spec, number)
    assert slots == list(family_lib.make_family(spec, number, PACK).images)

import re

import numpy as np
import pytest

from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt
from vhop_jax.worlds import world as world_lib

HOPS = (
  world_lib.Hop('leftof', 'red'),
  world_lib.Hop('rightof', 'orange'),
  world_lib.Hop('leftof', 'green'),
  world_lib.Hop('leftof', 'blue'),
  world_lib.Hop('rightof', 'white'),
)
DRAWS = 60  # Enough to see every wording.


def draw(function, *args, **kwargs):
  rng = np.random.default_rng(0)
  return {function(rng, *args, **kwargs) for _ in range(DRAWS)}


def draw_everything():
  texts = set()
  for count in range(1, 6):
    texts |= draw(prompt.precise, HOPS[:count])
    texts |= draw(prompt.vague, count)
  for side in (None, *prompt.PLACES.values()):
    for relation in (None, *level_lib.RELATIONS):
      for colour in (None, 'orange', 'red'):
        texts |= draw(
          prompt.single_hop, side=side, relation=relation, colour=colour
        )
  for pattern in objects_lib.PATTERNS:
    thing = objects_lib.Object('u', 'teddy bear', 'red', 'blue', pattern, ())
    other = objects_lib.Object('v', 'kettle', 'orange', 'blue', pattern, ())
    texts |= draw(prompt.caption, [thing])
    texts |= draw(prompt.caption, [thing, other])
  return texts


def test_there_are_at_least_four_wordings_of_each_kind():
  assert len(draw(prompt.precise, HOPS[:3])) >= 4
  assert len(draw(prompt.vague, 3)) >= 4


@pytest.mark.parametrize('count', range(1, 6))
def test_precise_prompt_says_each_hop_once_in_order(count):
  for text in draw(prompt.precise, HOPS[:count]):
    told = re.findall(r'(left|right) of an? (\w+) object', text)
    assert told == [(h.relation[:-2], h.colour) for h in HOPS[:count]], text


@pytest.mark.parametrize(
  ('relations', 'words'),
  [
    (('infrontof', 'behind'), ('in front of', 'behind')),
    (('ontop', 'below'), ('on top of', 'below')),
  ],
)
def test_other_relations_are_worded_in_order(relations, words):
  hops = [
    world_lib.Hop(relations[0], 'red'),
    world_lib.Hop(relations[1], 'blue'),
  ]
  for text in draw(prompt.precise, hops):
    told = re.findall(rf'({"|".join(words)}) a (\w+) object', text)
    assert told == [(words[0], 'red'), (words[1], 'blue')], text
    assert not re.search('to the (in|on|behind|below)', text), text
    assert 'left' not in text and 'right' not in text, text


def test_colour_is_no_name_where_both_objects_have_it():
  hops = (world_lib.Hop('leftof', 'red'), world_lib.Hop('leftof', 'red'))
  for text in draw(prompt.precise, hops):
    assert 'the red object' not in text
    assert text.count('a red object') == 2


@pytest.mark.parametrize('count', range(1, 6))
def test_vague_prompt_says_no_relation_and_no_colour(count):
  for text in draw(prompt.vague, count):
    words = set(prompt.split_words(text))
    assert not words & {'left', 'right', *objects_lib.COLOURS}, text


def test_three_hops_are_said_in_about_forty_words():
  texts = draw(prompt.precise, HOPS[:3]) | draw(prompt.vague, 3)
  assert max(len(text.split()) for text in texts) <= 42


def test_every_text_is_a_sentence_with_the_right_articles():
  for text in draw_everything():
    assert '  ' not in text
    assert '{' not in text
    assert not re.search(r'\ba [aeiou]|\ban [^aeiou]', text), text
    if text[0].isupper():
      assert text[-1] in '.?', text


def test_vocabulary_is_small_and_holds_every_word():
  words = set(prompt.all_words())
  assert len(words) <= 256
  for text in draw_everything():
    assert set(prompt.split_words(text)) <= words, text


def test_single_hop_names_the_side_it_is_about():
  for text in draw(
    prompt.single_hop, side='right', relation='leftof', colour='red'
  ):
    assert 'the object on the right' in text
    assert 'left of a red object' in text


def test_place_of_an_object_is_said_as_its_relation():
  texts = {
    relation: draw(
      prompt.single_hop, side=place, relation=relation, colour='red'
    ).pop()
    for relation, place in prompt.PLACES.items()
  }
  assert len(prompt.PLACES) == 6
  for relation, words in (
    ('infrontof', 'the object in front'),
    ('behind', 'the object behind'),
    ('ontop', 'the object on top'),
    ('below', 'the object below'),
  ):
    assert words in texts[relation].lower()


def test_caption_tells_which_object_is_left():
  left = objects_lib.Object('u', 'kettle', 'red', 'blue', 'striped', ())
  right = objects_lib.Object('v', 'mug', 'orange', 'blue', 'plain', ())
  texts = draw(prompt.caption, [left, right])
  assert 'a red striped kettle left of an orange mug' in texts
  assert 'an orange mug right of a red striped kettle' in texts

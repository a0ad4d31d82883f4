import dataclasses
import hashlib
import re

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt, verify, wordings
from vhop_jax.worlds import world as world_lib

HOPS = (
  world_lib.Hop('leftof', 'red'),
  world_lib.Hop('rightof', 'orange'),
  world_lib.Hop('leftof', 'green'),
  world_lib.Hop('leftof', 'blue'),
  world_lib.Hop('rightof', 'white'),
)
DRAWS = 60  # Enough to see every wording.
ALL_WORDINGS = [
  (kind, wording)
  for by_wording in wordings.WORDINGS.values()
  for kinds in by_wording.values()
  for kind, choices in kinds.items()
  for wording in choices
]
REPHRASED = [
  (mark, kind, wording)
  for mark, by_wording in wordings.WORDINGS.items()
  for kind, choices in by_wording['rephrased'].items()
  for wording in choices
]
MARKS = sorted(wordings.WORDINGS)
ROUTES = st.lists(
  st.builds(
    world_lib.Hop,
    relation=st.sampled_from(sorted(prompt.RELATION_WORDS)),
    colour=st.sampled_from(sorted(objects_lib.COLOURS)),
  ),
  min_size=1,
  max_size=5,
)


def draw(function, *args, **kwargs):
  rng = np.random.default_rng(0)
  return {function(rng, *args, **kwargs) for _ in range(DRAWS)}


def draw_everything():
  texts = set()
  for count in range(1, 6):
    texts |= draw(prompt.route, HOPS[:count], 'precise')
    texts |= draw(prompt.route, HOPS[:count], 'vague')
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


def say(kind, wording, hops):
  if kind == 'vague':
    return prompt.say_vague(wording, len(hops))
  return prompt.say_precise(wording, hops)


def find_mistakes(text):
  """Returns what is wrong with a text's English, as far as a rule can say."""
  patterns = {
    'an article': r'\b[Aa] [aeiou]|\b[Aa]n [^aeiou]',
    'a doubled word': r'\b(\w+) \1\b',
    'a doubled mark': r'[^\w\s]\s*[^\w\s]',
    'a space': r'\s\s|\s[.,;:?]|[.,;:?](?=\w)|^\s|\s$|[^\w .,;:?]',
    'a start': r'^[^A-Z]|[.?] [^A-Z]',
    'a capital within': r'[^.?] [A-Z]',
    'an end': r'[^.?]$',
    'a plural': r'\bone links\b|\b(two|three|four|five) link\b',
    'a mark of a question': r'^Which[^?]*$|^(?!Which).*[?]',
    'a relation': r'\bto the (?!left|right|photo|next|last)|\bof of\b',
  }
  return [
    name for name, pattern in patterns.items() if re.search(pattern, text)
  ]


def test_there_are_at_least_four_wordings_of_each_kind():
  assert len(draw(prompt.route, HOPS[:3], 'precise')) >= 4
  assert len(draw(prompt.route, HOPS[:3], 'vague')) >= 4


@pytest.mark.parametrize(
  ('text', 'mistake'),
  [
    ('Find a orange object.', 'an article'),
    ('Find an red object.', 'an article'),
    ('Find the the photo.', 'a doubled word'),
    ('Find the photo.. ', 'a doubled mark'),
    ('Find the  photo.', 'a space'),
    ('Find the photo , then go on.', 'a space'),
    ('Find the photo.Then go on.', 'a space'),
    ('Find {subject}.', 'a space'),
    ('find the photo.', 'a start'),
    ('Find the photo. then go on.', 'a start'),
    ('Find the photo, Then go on.', 'a capital within'),
    ('Find the photo', 'an end'),
    ('Go on for one links.', 'a plural'),
    ('Go on for three link.', 'a plural'),
    ('Which photo is it.', 'a mark of a question'),
    ('Find the photo?', 'a mark of a question'),
    ('It is to the behind a red object.', 'a relation'),
  ],
)
def test_mistakes_are_found(text, mistake):
  assert mistake in find_mistakes(text)


@given(st.sampled_from(ALL_WORDINGS), ROUTES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_every_wording_is_english_that_the_verifier_reads_back(choice, hops):
  kind, wording = choice
  text = say(kind, wording, hops)
  assert find_mistakes(text) == [], text
  query = world_lib.Query('0_x', 0, '0', text, tuple(hops), (), ())
  assert list(verify._check_words(query, kind)) == [], text
  if kind == 'precise':
    for i in range(len(hops)):
      other = 'red' if hops[i].colour != 'red' else 'blue'
      lie = (*hops[:i], dataclasses.replace(hops[i], colour=other))
      told = dataclasses.replace(query, hops=(*lie, *hops[i + 1 :]))
      assert list(verify._check_words(told, kind)), text


@given(st.integers(0, 10_000), ROUTES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_composed_prompts_are_english_that_the_verifier_reads_back(seed, hops):
  text = prompt.compose(np.random.default_rng(seed), hops)
  assert find_mistakes(text) == [], text
  query = world_lib.Query('0_x', 0, '0', text, tuple(hops), (), ())
  assert list(verify._check_words(query, 'precise')) == [], text
  assert set(prompt.split_words(text)) <= set(prompt.all_words())
  # There is room for them wherever there is for the standard ones.
  assert len(prompt.split_words(text)) <= max(
    len(prompt.split_words(prompt.say_precise(one, hops)))
    for one in wordings.PRECISE
  )


def test_composed_prompts_are_many_and_share_no_clause_with_rephrased_ones():
  rng = np.random.default_rng(0)
  made = [wordings.compose(rng) for _ in range(4000)]
  assert len(set(made)) > 500
  clauses = {
    text.strip(' ,;.?').lower()
    for one in made
    for text in (one.first, one.more, one.single)
  }
  for one in wordings.PRECISE_REPHRASED:
    for text in (one.first, one.more, one.single):
      told = text.strip(' ,;.?').lower()
      assert not any(told in clause for clause in clauses), told


def test_standard_prompts_stay_what_they_are():
  # Worlds that exist and models that were trained depend on these draws.
  rng = np.random.default_rng(0)
  colours = list(objects_lib.COLOURS)
  texts = []
  for i in range(2000):
    hops = [
      world_lib.Hop(
        ('leftof', 'rightof')[rng.integers(2)], colours[rng.integers(10)]
      )
      for _ in range(1 + i % 5)
    ]
    texts.append(prompt.route(rng, hops, level_lib.PROMPTS[i % 2]))
  digest = hashlib.sha256('\n'.join(texts).encode()).hexdigest()
  assert digest.startswith('0709843eb9d9facd')


@pytest.mark.parametrize('mark', MARKS)
@pytest.mark.parametrize('kind', level_lib.PROMPTS)
def test_rephrased_prompts_share_no_template_with_standard_ones(kind, mark):
  standard, rephrased = (
    {
      text
      for wording in wordings.WORDINGS[mark][name][kind]
      for text in dataclasses.astuple(wording)
      if re.search('[a-z]{2}', text)
    }
    for name in ('standard', 'rephrased')
  )
  assert len(wordings.WORDINGS[mark]['rephrased'][kind]) >= 2
  assert not standard & rephrased


@given(st.sampled_from(REPHRASED), ROUTES)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_rephrased_prompts_say_only_words_of_standard_ones(choice, hops):
  mark, kind, wording = choice
  words = prompt.split_words(say(kind, wording, hops))
  assert set(words) <= set(prompt.all_words())
  # A model has room for the longest standard prompt.
  red, blue = (world_lib.Hop('leftof', colour) for colour in ('red', 'blue'))
  longest = max(
    len(prompt.split_words(say('precise', one, [red, blue, red, blue, red])))
    for one in wordings.WORDINGS[mark]['standard']['precise']
  )
  assert len(words) <= longest


@pytest.mark.parametrize('mark', MARKS)
@pytest.mark.parametrize('kind', level_lib.PROMPTS)
def test_wording_and_mark_decide_which_sentences_are_drawn(kind, mark):
  for name, kinds in wordings.WORDINGS[mark].items():
    said = {say(kind, wording, HOPS[:3]) for wording in kinds[kind]}
    assert draw(prompt.route, HOPS[:3], kind, name, mark) == said


@pytest.mark.parametrize('count', range(1, 6))
def test_precise_prompt_says_each_hop_once_in_order(count):
  for text in draw(prompt.route, HOPS[:count], 'precise'):
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
  for text in draw(prompt.route, hops, 'precise'):
    told = re.findall(rf'({"|".join(words)}) a (\w+) object', text)
    assert told == [(words[0], 'red'), (words[1], 'blue')], text
    assert not re.search('to the (in|on|behind|below)', text), text
    assert 'left' not in text and 'right' not in text, text


def test_colour_is_no_name_where_both_objects_have_it():
  hops = (world_lib.Hop('leftof', 'red'), world_lib.Hop('leftof', 'red'))
  for text in draw(prompt.route, hops, 'precise'):
    assert 'the red object' not in text
    assert text.count('a red object') == 2


@pytest.mark.parametrize('count', range(1, 6))
def test_vague_prompt_says_no_relation_and_no_colour(count):
  for text in draw(prompt.route, HOPS[:count], 'vague'):
    words = set(prompt.split_words(text))
    assert not words & {'left', 'right', *objects_lib.COLOURS}, text


def test_three_hops_are_said_in_about_forty_words():
  texts = draw(prompt.route, HOPS[:3], 'precise') | draw(
    prompt.route, HOPS[:3], 'vague'
  )
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

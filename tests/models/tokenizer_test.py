"""Tests that the tiny tokenizer knows whatever a prompt can say."""

import hashlib
import json

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt
from vhop_jax.worlds import world as world_lib
from vhop_jax.worlds.assets import procedural

SHIPPED = '2cf86a6b1a3d42c2470b59e0248ffc569aa1623777a2fadd4386abbc725e314d'
COLOURS = tuple(objects_lib.COLOURS)


@pytest.fixture(scope='module')
def tokenizer():
  return tokenizer_lib.load_tokenizer()


def assert_known(tokenizer, text):
  found = tokenizer.encode(text, add_special_tokens=False).tokens
  assert found == prompt.split_words(text), text


def test_every_prompt_is_known(tokenizer):
  rng = np.random.default_rng(0)
  said = set()
  for i in range(1500):
    hops = [
      world_lib.Hop(str(rng.choice(level_lib.RELATIONS)), rng.choice(COLOURS))
      for _ in range(1 + i % 5)
    ]
    mark = ('', 'logo', 'text')[rng.integers(3)]
    said.add(prompt.route(rng, hops, 'precise', mark=mark))
    said.add(prompt.route(rng, hops, 'vague', mark=mark))
    said.add(
      prompt.single_hop(
        rng,
        side=(None, *prompt.PLACES.values())[i % 7],
        relation=(None, *level_lib.RELATIONS)[rng.integers(7)],
        colour=(None, *COLOURS)[rng.integers(11)],
      )
    )
  for text in said:
    assert_known(tokenizer, text)


def test_every_caption_is_known(tokenizer):
  rng = np.random.default_rng(0)
  pack = procedural.PROCEDURAL
  for type_name in pack.types:
    for pattern in objects_lib.PATTERNS:
      things = [
        objects_lib.Object(
          f'{i}', type_name, str(rng.choice(COLOURS)), 'white', pattern, ()
        )
        for i in range(2)
      ]
      assert_known(tokenizer, prompt.caption(rng, things))
      assert_known(tokenizer, prompt.caption(rng, things[:1]))


def test_shipped_file_is_that_of_the_words(tokenizer):
  # After a change of words: python -m vhop_jax.models.tokenizer
  known = tokenizer_lib.list_words(tokenizer)
  made = tokenizer_lib.make_tokenizer(prompt.all_words(), known)
  assert json.loads(tokenizer_lib.TINY_FILE.read_text()) == json.loads(
    made.to_str()
  )


def test_words_of_the_shipped_checkpoints_keep_their_ids(tokenizer):
  # The first 160 words are those that the checkpoints were trained with.
  words = tokenizer_lib.list_words(tokenizer)[:160]
  assert words == sorted(words)
  assert hashlib.sha256(' '.join(words).encode()).hexdigest() == SHIPPED
  assert tokenizer.get_vocab_size() <= 320  # The decoder's vocab_size.


def test_added_words_come_after_the_known_ones():
  known = ['b', 'a']
  made = tokenizer_lib.make_tokenizer(['d', 'a', 'c'], known)
  assert tokenizer_lib.list_words(made) == ['b', 'a', 'c', 'd']


def test_case_does_not_matter_and_strange_words_are_unknown(tokenizer):
  encode = lambda text: tokenizer.encode(text).tokens  # noqa: E731
  assert encode('FIND the Photo') == ['find', 'the', 'photo']
  assert encode('find zeppelin') == ['find', '<unk>']


def test_special_tokens_come_first_and_whole(tokenizer):
  ids = tokenizer.encode(''.join(tokenizer_lib.SPECIAL_TOKENS)).ids
  assert ids == list(range(6))


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    (None, 'no tokenizer'),
    ('{"model": 3', 'is not a tokenizer'),
  ],
)
def test_bad_file_is_named(tmp_path, content, words):
  path = tmp_path / 'tokenizer.json'
  if content is not None:
    path.write_text(content)
  with pytest.raises(errors.DataError, match=words) as info:
    tokenizer_lib.load_tokenizer(path)
  assert str(path) in str(info.value)


def test_tokenizer_of_another_model_is_refused(tmp_path):
  path = tmp_path / 'tokenizer.json'
  text = tokenizer_lib.make_tokenizer(['a']).to_str()
  path.write_text(text.replace('<|vision_end|>', '<|other|>'))
  with pytest.raises(errors.DataError, match=r'lacks <\|vision_end\|>'):
    tokenizer_lib.load_tokenizer(path)

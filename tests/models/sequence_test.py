"""Tests the layout of sequences by hand."""

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from tests import reading
from vhop_jax import errors
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib

PAD, END, VISION_START, VISION_END, IMAGE = 0, 2, 3, 4, 5
TEXT = sequence_lib.TEXT


def make_maker(grid=(1, 2)):
  return sequence_lib.SequenceMaker(
    tokenizer_lib.make_tokenizer(['find', 'it', '.', '?', 'image', '{', '}']),
    template='tiny',
    grid=grid,
  )


@pytest.fixture(scope='module')
def maker():
  return make_maker()


def test_tiny_query_by_hand(maker):
  made = maker.queries(['Find it.', 'Find'], length=12)
  # find it . <end> <start> I I <end> <s>: text counts 0 to 4; the image has
  # two columns in one row from 5 on and is two wide, so 7 is next.
  find, it, stop = (
    maker.tokenizer.token_to_id(word) for word in ('find', 'it', '.')
  )
  row = [find, it, stop, END, VISION_START, IMAGE, IMAGE, VISION_END, PAD]
  assert made.tokens[0].tolist() == row + [PAD] * 3
  assert made.mask[0].tolist() == [True] * 9 + [False] * 3
  assert made.visual_index[0].tolist() == [TEXT] * 5 + [0, 1] + [TEXT] * 5
  time = [0, 1, 2, 3, 4, 5, 5, 7, 8]
  width = [0, 1, 2, 3, 4, 5, 6, 7, 8]
  np.testing.assert_array_equal(made.positions[0, :, :9], [time, time, width])
  # 'Find' gets a full stop, and everything else comes one place earlier.
  assert made.tokens[1].tolist() == [find, stop, *row[3:]] + [PAD] * 4
  assert made.mask[1].sum() == 8
  np.testing.assert_array_equal(made.positions[1, 2, :8], width[:8])


def test_image_of_several_rows(maker):
  made = make_maker(grid=(2, 3)).documents(2)
  # <start> at 0, six tokens from 1 on in two rows of three columns, then 4.
  np.testing.assert_array_equal(
    made.positions[0],
    [
      [0, 1, 1, 1, 1, 1, 1, 4, 5],
      [0, 1, 1, 1, 2, 2, 2, 4, 5],
      [0, 1, 2, 3, 1, 2, 3, 4, 5],
    ],
  )
  assert made.visual_index[0].tolist() == [-1, 0, 1, 2, 3, 4, 5, -1, -1]
  assert made.mask.all()
  np.testing.assert_array_equal(made.tokens[0], made.tokens[1])


def test_several_images_have_markers_of_their_own(maker):
  made = maker.queries(['it?'], images=2)
  image = ['<|vision_start|>', '<|image_pad|>', '<|image_pad|>']
  image.append('<|vision_end|>')
  assert reading.read_words(maker, made.tokens[0]) == [
    'it', '?', '<|im_end|>', *image, *image, '<|endoftext|>'
  ]  # fmt: skip
  index = [TEXT] * 4 + [0, 1] + [TEXT] * 2 + [2, 3] + [TEXT] * 2
  assert made.visual_index[0].tolist() == index
  width = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
  np.testing.assert_array_equal(made.positions[0, 2], width)
  time = [0, 1, 2, 3, 4, 4, 6, 7, 8, 8, 10, 11]
  np.testing.assert_array_equal(made.positions[0, 0], time)


def test_segment_is_an_image_and_the_state_token(maker):
  made = maker.segment()
  assert made.tokens.tolist() == [[IMAGE, IMAGE, PAD]]
  assert made.mask.all()
  assert made.visual_index.tolist() == [[0, 1, TEXT]]
  np.testing.assert_array_equal(
    made.positions[0], [[0, 0, 2], [0, 0, 2], [0, 1, 2]]
  )


def test_text_has_no_image(maker):
  made = maker.texts(['find', 'find it'], length=6)
  assert (made.visual_index == TEXT).all()
  assert reading.read_words(maker, made.tokens[1][:5]) == [
    'find', 'it', '.', '<|im_end|>', '<|endoftext|>'
  ]  # fmt: skip
  assert made.mask.sum(axis=1).tolist() == [4, 5]


def test_last_real_token_is_the_pooled_one(maker):
  for made in (
    maker.queries(['find', 'find it']),
    maker.texts(['find', 'find it']),
    maker.documents(1),
    maker.segment(),
  ):
    last = made.mask.sum(axis=1) - 1
    assert (made.tokens[np.arange(len(last)), last] == PAD).all()


@pytest.mark.parametrize('text', ['{image} find', 'find {instruction}'])
def test_slots_in_an_instruction_stay_text(maker, text):
  made = maker.queries([text])
  assert (made.visual_index >= 0).sum() == 2
  plain = maker.queries([text.replace('{', ' { ').replace('}', ' } ')])
  np.testing.assert_array_equal(made.tokens, plain.tokens)


def test_text_that_is_too_long_is_a_usage_error(maker):
  with pytest.raises(errors.UsageError, match='9 tokens.* of 8'):
    maker.queries(['find it'], length=8)
  assert maker.queries(['find it'], length=9).mask.all()


def test_unknown_template_is_a_usage_error(maker):
  with pytest.raises(errors.UsageError, match="'huge': choose .*tiny"):
    sequence_lib.SequenceMaker(maker.tokenizer, template='huge', grid=(1, 2))


@pytest.mark.parametrize(
  ('text', 'ended'),
  [
    ('Find it', 'Find it.'),
    (' Find it \n', 'Find it.'),
    ('Find it.', 'Find it.'),
    ('Where is it?', 'Where is it?'),
    ('哪里。', '哪里。'),
    ('(this one)', '(this one)'),
    # Symbols are no punctuation marks, an underscore is one.
    ('two +', 'two +.'),
    ('it costs 3 $', 'it costs 3 $.'),
    ('my_', 'my_'),
    ('', '.'),
  ],
)
def test_punctuation_rule(text, ended):
  assert sequence_lib.add_punctuation(text) == ended


def make_character_tokenizer():
  """Returns a tokenizer of single characters that keeps white space."""
  special = tokenizer_lib.SPECIAL_TOKENS
  words = [*special, *(chr(i) for i in range(10, 127))]
  tokenizer = tokenizers.Tokenizer(
    models.WordLevel({w: i for i, w in enumerate(words)}, unk_token='?')
  )
  tokenizer.pre_tokenizer = pre_tokenizers.Split('', 'isolated')
  tokenizer.add_special_tokens(list(special))
  return tokenizer


def test_template_of_qwen3_vl_embedding():
  # The chat template of Qwen3-VL with a system message and the generation
  # prompt, then the token that is pooled.
  maker = sequence_lib.SequenceMaker(
    make_character_tokenizer(),
    template='qwen3_vl_embedding',
    grid=(1, 1),
    tail='prompt_end',
  )

  def read(made):
    return ''.join(reading.read_words(maker, made.tokens[0]))

  def wrap(system, user):
    return (
      f'<|im_start|>system\n{system}<|im_end|>\n'
      f'<|im_start|>user\n{user}<|im_end|>\n'
      '<|im_start|>assistant\n<|endoftext|>'
    )

  image = '<|vision_start|><|image_pad|><|vision_end|>'
  default = "Represent the user's input."
  assert read(maker.queries(['Find it'])) == wrap('Find it.', image)
  assert read(maker.queries(['Go!'], images=2)) == wrap('Go!', image * 2)
  assert read(maker.documents(1)) == wrap(default, image)
  # A text is the user's, so nothing is added to it.
  assert read(maker.texts(['a red cup'])) == wrap(default, 'a red cup')


def test_batch_gives_the_sequence_back(maker):
  made = maker.queries(['find', 'it'])
  batch = {'other': np.zeros(2), **sequence_lib.to_batch('query', made)}
  back = sequence_lib.from_batch('query', batch)
  for name in ('tokens', 'positions', 'mask', 'visual_index'):
    assert getattr(back, name) is getattr(made, name)
    assert batch[f'query/{name}'] is getattr(made, name)

"""Turns texts into token ids: the tiny model's own file, or any user's.

Every model uses the `tokenizers` library and its JSON format. The tiny
model's file is a word-level vocabulary of what `worlds.prompt` can say. After a
change of words `python -m vhop_jax.models.tokenizer` adds the new ones; those
that it has keep their ids, which the shipped checkpoints were trained with.
"""

from collections.abc import Iterable, Sequence
import functools
import os
import pathlib

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from vhop_jax import errors

# Qwen3-VL's special tokens, in the order of the tiny vocabulary.
PAD = '<|endoftext|>'
IM_START = '<|im_start|>'
IM_END = '<|im_end|>'
VISION_START = '<|vision_start|>'
VISION_END = '<|vision_end|>'
IMAGE = '<|image_pad|>'
SPECIAL_TOKENS = (PAD, IM_START, IM_END, VISION_START, VISION_END, IMAGE)
UNKNOWN = '<unk>'

TINY_FILE = pathlib.Path(__file__).parent / 'tiny_tokenizer.json'


def make_tokenizer(
  words: Iterable[str], known: Sequence[str] = ()
) -> tokenizers.Tokenizer:
  """Makes a word-level tokenizer that ignores case.

  Args:
    words: the vocabulary: lower-case words and punctuation marks.
    known: words that come first, in this order, whether in `words` or not.
  """
  added = sorted(set(words) - set(known))
  vocabulary = [*SPECIAL_TOKENS, UNKNOWN, *known, *added]
  tokenizer = tokenizers.Tokenizer(
    models.WordLevel(
      {word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN
    )
  )
  tokenizer.normalizer = normalizers.Lowercase()
  tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
  tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
  return tokenizer


@functools.cache
def load_tokenizer(
  path: str | os.PathLike[str] = TINY_FILE,
) -> tokenizers.Tokenizer:
  """Reads a `tokenizer.json`.

  Raises:
    DataError: no such file, or it is not a tokenizer that knows the special
      tokens.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.DataError(f'no tokenizer at {path}: give a tokenizer.json')
  try:
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
  except Exception as error:  # The library raises a bare Exception.
    raise errors.DataError(f'{path} is not a tokenizer: {error}') from error
  missing = [t for t in SPECIAL_TOKENS if tokenizer.token_to_id(t) is None]
  if missing:
    raise errors.DataError(
      f'the tokenizer {path} lacks {" ".join(missing)}: use that of a'
      ' Qwen3-VL model'
    )
  return tokenizer


def list_words(tokenizer: tokenizers.Tokenizer) -> list[str]:
  """Lists the words of a tokenizer of `make_tokenizer`, in the order of ids."""
  vocabulary = tokenizer.get_vocab()
  words = sorted(vocabulary, key=vocabulary.__getitem__)
  return words[len(SPECIAL_TOKENS) + 1 :]


def _write_tiny() -> None:
  from vhop_jax.worlds import prompt

  tokenizer = make_tokenizer(prompt.all_words(), list_words(load_tokenizer()))
  tokenizer.save(str(TINY_FILE))
  print(f'wrote {tokenizer.get_vocab_size()} tokens')


if __name__ == '__main__':
  _write_tiny()

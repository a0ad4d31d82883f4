"""Lays texts and images out as the token sequences the decoder reads.

Runs on the host, in NumPy. A sequence names where each visual token goes;
the pixels' features join on the device.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
import dataclasses
import re
from typing import Any
import unicodedata

import flax
import numpy as np
import tokenizers

from vhop_jax import errors
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.typing import Bool, Int

TEXT = -1  # In `visual_index`: this slot holds a text token.

# Tokens, positions [3, S] and visual index of one row or of a part of it.
_Part = tuple[list[int], np.ndarray, list[int]]

_IMAGE_SLOT = '{image}'
# What is repeated when a row has several images.
_IMAGE = f'{tokenizer_lib.VISION_START}{_IMAGE_SLOT}{tokenizer_lib.VISION_END}'

_SLOT = re.compile('{(instruction|text)}')

# What Qwen3-VL-Embedding reads where no instruction is given.
DEFAULT_INSTRUCTION = "Represent the user's input."
# What may stand at the end of a sequence, the token that is pooled included.
# Serving stacks differ in it, and so do their embeddings. The reference writes
# `prompt`, to which a folder's tokenizer may add the token of `prompt_end`.
TAILS = {
  'prompt_end': '<|im_end|>\n<|im_start|>assistant\n<|endoftext|>',
  'prompt': '<|im_end|>\n<|im_start|>assistant\n',
  'end': '<|im_end|>\n<|endoftext|>',
}


@flax.struct.dataclass
class Sequence:
  """Holds a batch of right-padded token sequences.

  Attributes:
    tokens: token ids; the image placeholder at visual tokens.
    positions: M-RoPE positions: time, height, width.
    mask: True at tokens, False at padding.
    visual_index: which visual token of the row's own stands here, or TEXT.
  """

  tokens: Int[Any, 'B S']
  positions: Int[Any, 'B 3 S']
  mask: Bool[Any, 'B S']
  visual_index: Int[Any, 'B S']


def to_batch(name: str, sequence: Sequence) -> dict[str, np.ndarray]:
  """Returns the sequence's fields as entries `name/<field>` of a batch."""
  return {
    f'{name}/{field.name}': getattr(sequence, field.name)
    for field in dataclasses.fields(sequence)
  }


def from_batch(name: str, batch: Mapping[str, Any]) -> Sequence:
  """Takes the sequence that `to_batch` put into a batch."""
  return Sequence(
    **{
      field.name: batch[f'{name}/{field.name}']
      for field in dataclasses.fields(Sequence)
    }
  )


def pad(sequence: Sequence, length: int, pad_id: int) -> Sequence:
  """Pads rows at the right to `length` slots."""

  def widen(x: np.ndarray, value: int) -> np.ndarray:
    widths = [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])]
    return np.pad(x, widths, constant_values=value)

  return Sequence(
    tokens=widen(sequence.tokens, pad_id),
    positions=widen(sequence.positions, 0),
    mask=widen(sequence.mask, False),
    visual_index=widen(sequence.visual_index, TEXT),
  )


@dataclasses.dataclass(frozen=True)
class Template:
  """Says what stands around an instruction, an image and a text.

  The last token is the pooled one, and so the router's state token.

  Attributes:
    query: with the slots {instruction} and {image}.
    document: with the slot {image}.
    text: with the slot {instruction}.
    item: with the slots {instruction}, {image} and {text}; '' if there are no
      such sequences.
    tail: what ends all of them; None is the prompt and what the tokenizer ends
      every text with.
    punctuate_texts: whether a text gets a final '.', as instructions do.
  """

  query: str
  document: str
  text: str
  item: str
  tail: str | None
  punctuate_texts: bool


_SYSTEM = f'<|im_start|>system\n{DEFAULT_INSTRUCTION}<|im_end|>\n'
# The chat template of Qwen3-VL-Embedding, and a short one for `tiny`, which
# spends a third of the tokens.
TEMPLATES = {
  'qwen3_vl_embedding': Template(
    query='<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n'
    '<|vision_start|>{image}<|vision_end|>',
    document=f'{_SYSTEM}<|im_start|>user\n{_IMAGE}',
    text=_SYSTEM + '<|im_start|>user\n{instruction}',
    item='<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n'
    '<|vision_start|>{image}<|vision_end|>{text}',
    tail=None,
    punctuate_texts=False,
  ),
  'tiny': Template(
    query='{instruction}<|im_end|><|vision_start|>{image}<|vision_end|>',
    document='<|vision_start|>{image}<|vision_end|>',
    text='{instruction}<|im_end|>',
    item='',
    tail='<|endoftext|>',
    punctuate_texts=True,
  ),
}


def add_punctuation(text: str) -> str:
  """Ends an instruction with '.' unless a punctuation mark ends it.

  Qwen3-VL-Embedding's rule: Unicode says what a punctuation mark is.
  """
  text = text.strip()
  is_ended = text and unicodedata.category(text[-1]).startswith('P')
  return text if is_ended else text + '.'


def _find_tail(tokenizer: tokenizers.Tokenizer) -> str:
  """Returns the tail that the reference's text and the tokenizer make."""
  added = tokenizer.encode('').tokens
  if added not in ([], [tokenizer_lib.PAD]):
    raise errors.DataError(
      f'the tokenizer ends a text with {" ".join(added)}, which is not'
      f' implemented: give tail as one of {", ".join(TAILS)}'
    )
  return TAILS['prompt_end' if added else 'prompt']


class SequenceMaker:
  """Makes sequences for one tokenizer, template and visual grid."""

  def __init__(
    self,
    tokenizer: tokenizers.Tokenizer,
    *,
    template: str,
    grid: tuple[int, int],
    tail: str = '',
  ):
    """Chooses the layout.

    Args:
      tokenizer: knows the special tokens.
      template: a key of `TEMPLATES`.
      grid: rows and columns of an image's visual tokens (after merging).
      tail: a key of `TAILS`; '' takes the template's own, which for
        Qwen3-VL-Embedding is the reference's: the prompt, and what the
        tokenizer ends every text with.

    Raises:
      UsageError: the template or the tail is unknown.
      DataError: the tokenizer ends a text with something else.
    """
    if template not in TEMPLATES:
      raise errors.UsageError(
        f'template={template!r}: choose {" or ".join(TEMPLATES)}'
      )
    if tail:
      errors.check_choice('tail', tail, tuple(TAILS))
    self.tail = (
      TAILS[tail] if tail else TEMPLATES[template].tail or _find_tail(tokenizer)
    )
    self.template = dataclasses.replace(TEMPLATES[template], tail=self.tail)
    self.tokenizer = tokenizer
    self.grid = grid
    self.num_visual = grid[0] * grid[1]
    vocabulary = tokenizer.get_vocab()
    self._image_id = vocabulary[tokenizer_lib.IMAGE]
    self.pad_id = vocabulary[tokenizer_lib.PAD]

  def queries(
    self,
    instructions: SequenceOf[str],
    *,
    images: int = 1,
    length: int | None = None,
  ) -> Sequence:
    """Lays out an instruction and `images` images a row.

    Args:
      instructions: one a row.
      images: images of each row, in order; 1 is the query image alone.
      length: S; None takes the longest row's.
    """
    rows = [
      self._row(
        self.template.query,
        [self.grid] * images,
        instruction=add_punctuation(text),
      )
      for text in instructions
    ]
    return self._stack(rows, length)

  def documents(self, count: int) -> Sequence:
    """Lays out `count` rows of one image each, without an instruction."""
    row = self._row(self.template.document, [self.grid])
    return self._stack([row] * count, None)

  def texts(
    self, texts: SequenceOf[str], *, length: int | None = None
  ) -> Sequence:
    """Lays out one text a row."""
    if self.template.punctuate_texts:
      texts = [add_punctuation(text) for text in texts]
    rows = [self._row(self.template.text, (), instruction=t) for t in texts]
    return self._stack(rows, length)

  def item(
    self,
    text: str,
    grid: tuple[int, int] | None,
    instruction: str = DEFAULT_INSTRUCTION,
  ) -> Sequence:
    """Lays out a text, an image of any size, or both, in one row.

    Args:
      text: '' for an image alone.
      grid: of the image; None without one.
      instruction: what the embedding is for; a blank one is the default.
    """
    if not instruction.strip():
      instruction = DEFAULT_INSTRUCTION
    row = self._row(
      self.template.item,
      [] if grid is None else [grid],
      instruction=add_punctuation(instruction),
      text=text,
    )
    return self._stack([row], None)

  def segment(self) -> Sequence:
    """Lays out what a decision adds, in one row: an image, the state token.

    Positions start at 0; the caller adds where the sequence stands.
    """
    image = self._image_row(self.grid, 0, 0)
    end = ([self.pad_id], np.full((3, 1), max(self.grid)), [TEXT])
    return self._stack([_join([image, end])], None)

  def _image_row(
    self, grid: tuple[int, int], start: int, first_visual: int
  ) -> _Part:
    count = grid[0] * grid[1]
    rows, columns = np.meshgrid(
      np.arange(grid[0]), np.arange(grid[1]), indexing='ij'
    )
    positions = start + np.stack(
      [np.zeros(count, int), rows.ravel(), columns.ravel()]
    )
    index = first_visual + np.arange(count)
    return [self._image_id] * count, positions, list(index)

  def _row(
    self, template: str, grids: SequenceOf[tuple[int, int]], **texts: str
  ) -> _Part:
    """Returns one row's tokens, positions [3, S] and visual index."""
    template = template.replace(_IMAGE, _IMAGE * len(grids))
    template += self.tail
    parts: list[_Part] = []
    position, visual = 0, 0
    # Cut at the images first and filled then: a text that contains '{image}'
    # stays text.
    for number, piece in enumerate(template.split(_IMAGE_SLOT)):
      if number:
        grid = grids[number - 1]
        parts.append(self._image_row(grid, position, visual))
        position += max(grid)
        visual += grid[0] * grid[1]
      text = _SLOT.sub(lambda found: texts[found[1]], piece)
      ids = self.tokenizer.encode(text, add_special_tokens=False).ids
      steps = position + np.arange(len(ids))
      parts.append((ids, np.tile(steps, (3, 1)), [TEXT] * len(ids)))
      position += len(ids)
    return _join(parts)

  def _stack(self, rows: SequenceOf[_Part], length: int | None) -> Sequence:
    longest = max(len(tokens) for tokens, _, _ in rows)
    length = longest if length is None else length
    if longest > length:
      raise errors.UsageError(
        f'a sequence of {longest} tokens exceeds the limit of {length}: shorten'
        ' the text or raise the setting data.max_..._tokens'
      )
    count = len(rows)
    tokens = np.full((count, length), self.pad_id, np.int32)
    positions = np.zeros((count, 3, length), np.int32)
    mask = np.zeros((count, length), bool)
    visual_index = np.full((count, length), TEXT, np.int32)
    for i, (row_tokens, row_positions, row_visual) in enumerate(rows):
      size = len(row_tokens)
      tokens[i, :size] = row_tokens
      positions[i, :, :size] = row_positions
      mask[i, :size] = True
      visual_index[i, :size] = row_visual
    return Sequence(
      tokens=tokens, positions=positions, mask=mask, visual_index=visual_index
    )


def _join(parts: SequenceOf[_Part]) -> _Part:
  return (
    [token for tokens, _, _ in parts for token in tokens],
    np.concatenate([positions for _, positions, _ in parts], axis=1),
    [index for _, _, visual in parts for index in visual],
  )

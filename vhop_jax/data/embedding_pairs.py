"""Reads pairs of query and document from the user's file, for embeddings.

A line of the file is a JSON object; paths are relative to the file:

    {"query": "Which kettle is it?", "query_image": "photos/1.jpg",
     "instruction": "Find the product", "positive_text": "A red kettle",
     "positive_image": "shop/7.jpg",
     "negatives": [{"text": "A red pot"}, {"image": "shop/9.jpg"}]}

`query` or `query_image` is needed, `positive_text` or `positive_image`, too;
the rest may be left out. A query that several documents answer has a line for
each.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

import grain
import numpy as np

from vhop_jax import errors
from vhop_jax.index import embed_files
from vhop_jax.models import encoder as encoder_lib
from vhop_jax.models import image_processor
from vhop_jax.typing import Bool, ndarray

# What a model needs of an item, on the host; see `item_rows`.
Row = Any

_TEXT_FIELDS = ('query', 'query_image', 'instruction')
_POSITIVE_FIELDS = ('positive_text', 'positive_image')
_FIELDS = (*_TEXT_FIELDS, *_POSITIVE_FIELDS, 'negatives')


@dataclasses.dataclass(frozen=True)
class Content:
  """Is a text, a picture, or both, not yet read.

  Attributes:
    text: '' for a picture alone.
    path: of the picture; '' for a text alone.
    instruction: what the embedding is for; '' is the model's own.
  """

  text: str = ''
  path: str = ''
  instruction: str = ''

  def read(self) -> encoder_lib.Item:
    """Reads the picture, if there is one.

    Raises:
      DataError: it cannot be read.
    """
    pixels = image_processor.read_picture(self.path) if self.path else None
    return encoder_lib.Item(self.text, pixels)


@dataclasses.dataclass(frozen=True)
class Pair:
  """Is a query with a document that answers it and some that do not."""

  query: Content
  positive: Content
  negatives: tuple[Content, ...]


@dataclasses.dataclass(frozen=True)
class _Drawn:
  """Is a pair with the rows of its query and documents.

  Attributes:
    query: the query.
    documents: the positive, then the negatives drawn; None where there are
      fewer.
    query_row: of the query.
    document_rows: of the documents; the positive's in place of None.
  """

  query: Content
  documents: tuple[Content | None, ...]
  query_row: Row
  document_rows: tuple[Row, ...]


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
  """Reads a file of pairs; the pictures are only looked for.

  Raises:
    DataError: the file is missing or empty, or a line is wrong; the message
      names it.
  """
  path = pathlib.Path(path)
  try:
    lines = embed_files.split_lines(path.read_text(encoding='utf-8'))
  except (OSError, UnicodeDecodeError) as error:
    raise errors.DataError(
      f'{path} cannot be read ({error}): give a file with a JSON object in each'
      ' line'
    ) from error
  pairs = []
  for number, line in enumerate(lines, start=1):
    if not line.strip():
      continue
    try:
      pairs.append(_parse(json.loads(line), path.parent))
    except (ValueError, errors.DataError) as error:
      raise errors.DataError(f'{path}, line {number}: {error}') from error
  if not pairs:
    raise errors.DataError(f'{path} has no pair: write some')
  return pairs


def _parse(fields: Any, folder: pathlib.Path) -> Pair:
  _check_fields(fields, _FIELDS)
  negatives = fields.get('negatives') or []
  if not isinstance(negatives, list):
    raise errors.DataError('negatives must be a list')
  for negative in negatives:
    _check_fields(negative, ('text', 'image'))
  return Pair(
    _make_content(fields, folder, *_TEXT_FIELDS),
    _make_content(fields, folder, *_POSITIVE_FIELDS),
    tuple(_make_content(x, folder, 'text', 'image') for x in negatives),
  )


def _check_fields(fields: Any, known: Sequence[str]) -> None:
  if not isinstance(fields, dict):
    raise errors.DataError(f'{fields!r} is no JSON object')
  if unknown := sorted(fields.keys() - set(known)):
    raise errors.DataError(
      f'the field {unknown[0]!r} is unknown: use {", ".join(known)}'
    )


def _make_content(
  fields: Mapping[str, Any], folder: pathlib.Path, *names: str
) -> Content:
  """Takes the fields of a text, of a picture and maybe of an instruction."""
  values = [fields.get(name) or '' for name in names]
  for name, value in zip(names, values, strict=True):
    if not isinstance(value, str):
      raise errors.DataError(f'{name}={value!r} must be a text')
  if not any(values[:2]):
    raise errors.DataError(f'it has neither {names[0]} nor {names[1]}')
  if values[1]:
    picture = folder / values[1]
    if not picture.is_file():
      raise errors.DataError(f'{names[1]}: there is no file {picture}')
    values[1] = str(picture)
  return Content(*values)


def find_answers(pairs: Sequence[Pair]) -> dict[Content, set[Content]]:
  """Returns for each query all documents that answer it."""
  answers: dict[Content, set[Content]] = {}
  for pair in pairs:
    answers.setdefault(pair.query, set()).add(pair.positive)
  return answers


def make_candidate_mask(
  queries: Sequence[Content],
  documents: Sequence[Content | None],
  answers: Mapping[Content, set[Content]],
) -> Bool[ndarray, 'B N']:
  """Says which documents of a batch may stand against which query.

  Args:
    queries: of the batch.
    documents: of the batch; None where there is none.
    answers: see `find_answers`.
  """
  return np.array(
    [
      [document is not None and document not in answers[query]
       for document in documents]
      for query in queries
    ]
  )  # fmt: skip


def make_batches(
  pairs: Sequence[Pair],
  *,
  prepare: tuple[Callable[[Content], Row], Callable[[Content], Row]],
  stack: tuple[
    Callable[[Sequence[Row]], dict[str, ndarray]],
    Callable[[Sequence[Row]], dict[str, ndarray]],
  ],
  seed: int,
  batch_size: int,
  negatives: int,
  threads: int,
) -> Any:
  """Makes endless batches, each a function of the seed and its number.

  Args:
    pairs: of `read_pairs`.
    prepare: makes the row of a query, and that of a document.
    stack: joins rows of queries, and those of documents.
    seed: of the order and of the negatives drawn.
    batch_size: B.
    negatives: k, drawn anew each time from those of a pair.
    threads: that read and prepare.

  Returns:
    An iterator over dicts with `query/*` of B rows, `document/*` of B (1 + k)
    rows, the positives first, and `candidate_mask`, see `make_candidate_mask`.

  Raises:
    UsageError: no pair has negatives, but some are asked for.
  """
  if negatives and not any(pair.negatives for pair in pairs):
    raise errors.UsageError(
      f'data.negatives={negatives}: no pair has any; set it to 0'
    )
  answers = find_answers(pairs)

  def draw(pair: Pair, rng: np.random.Generator) -> _Drawn:
    count = min(negatives, len(pair.negatives))
    order = rng.permutation(len(pair.negatives))[:count]
    found = (pair.positive, *(pair.negatives[i] for i in order))
    rows = tuple(prepare[1](content) for content in found)
    missing = negatives - count
    return _Drawn(
      pair.query,
      (*found, *[None] * missing),
      prepare[0](pair.query),
      (*rows, *rows[:1] * missing),
    )

  def join(batch: Sequence[_Drawn]) -> dict[str, ndarray]:
    # One place after the other, so that the positives come first.
    places = range(1 + negatives)
    sides = {
      'query': stack[0]([drawn.query_row for drawn in batch]),
      'document': stack[1](
        [drawn.document_rows[i] for i in places for drawn in batch]
      ),
    }
    mask = make_candidate_mask(
      [drawn.query for drawn in batch],
      [drawn.documents[i] for i in places for drawn in batch],
      answers,
    )
    return {
      **{
        f'{side}/{name}': x
        for side, arrays in sides.items()
        for name, x in arrays.items()
      },
      'candidate_mask': mask,
    }

  dataset = (
    grain.MapDataset.source(pairs)
    .seed(seed)
    .shuffle()
    .repeat()
    .random_map(draw)
    .batch(batch_size, drop_remainder=True, batch_fn=join)
  )
  return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads)))

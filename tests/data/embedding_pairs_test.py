"""Reads files of pairs, and draws batches from them."""

import json

import numpy as np
from PIL import Image
import pytest

from vhop_jax import errors
from vhop_jax.data import embedding_pairs
from vhop_jax.data.embedding_pairs import Content, Pair


def write(folder, *lines):
  path = folder / 'pairs.jsonl'
  path.write_text('\n'.join(json.dumps(line) for line in lines) + '\n')
  return path


def test_fields_and_paths_beside_the_file(tmp_path):
  pixels = np.full((3, 4, 3), 7, np.uint8)
  (tmp_path / 'photos').mkdir()
  Image.fromarray(pixels).save(tmp_path / 'photos' / '1.png')
  path = write(
    tmp_path,
    {
      'query': 'q',
      'instruction': 'i',
      'positive_image': 'photos/1.png',
      'negatives': [{'text': 'n'}, {'text': 'm', 'image': 'photos/1.png'}],
    },
    {'query_image': 'photos/1.png', 'positive_text': 'p'},
  )
  picture = str(tmp_path / 'photos' / '1.png')
  pairs = embedding_pairs.read_pairs(path)
  assert pairs == [
    Pair(
      Content('q', '', 'i'),
      Content('', picture),
      (Content('n'), Content('m', picture)),
    ),
    Pair(Content('', picture), Content('p'), ()),
  ]
  item = pairs[0].negatives[1].read()
  assert item.text == 'm'
  np.testing.assert_array_equal(item.pixels, pixels)


@pytest.mark.parametrize(
  ('line', 'words'),
  [
    ([], 'is no JSON object'),
    ({'query': 'q', 'positive': 'p'}, "the field 'positive' is unknown"),
    ({'positive_text': 'p'}, 'neither query nor query_image'),
    ({'query': 'q'}, 'neither positive_text nor positive_image'),
    ({'query': 3, 'positive_text': 'p'}, 'query=3 must be a text'),
    ({'query_image': 'no.png', 'positive_text': 'p'}, 'no file .*no.png'),
    (
      {'query': 'q', 'positive_text': 'p', 'negatives': ['n']},
      "'n' is no JSON object",
    ),
    (
      {'query': 'q', 'positive_text': 'p', 'negatives': [{}]},
      'neither text nor image',
    ),
    (
      {'query': 'q', 'positive_text': 'p', 'negatives': {}},
      None,
    ),
    (
      {'query': 'q', 'positive_text': 'p', 'negatives': 'n'},
      'negatives must be a list',
    ),
  ],
)
def test_wrong_lines_are_named(tmp_path, line, words):
  path = write(tmp_path, {'query': 'q', 'positive_text': 'p'}, line)
  if words is None:
    assert len(embedding_pairs.read_pairs(path)) == 2
    return
  with pytest.raises(errors.DataError, match=f'pairs.jsonl, line 2: .*{words}'):
    embedding_pairs.read_pairs(path)


def test_broken_empty_and_missing_files_are_named(tmp_path):
  path = tmp_path / 'pairs.jsonl'
  with pytest.raises(errors.DataError, match='pairs.jsonl cannot be read'):
    embedding_pairs.read_pairs(path)
  path.write_text('{"query"\n')
  with pytest.raises(errors.DataError, match='line 1: '):
    embedding_pairs.read_pairs(path)
  path.write_text('\n')
  with pytest.raises(errors.DataError, match='has no pair'):
    embedding_pairs.read_pairs(path)


A, B, P, R, N = (Content(name) for name in 'abprn')
# A has two answers, P and R; B shares P; N is a negative of B.
PAIRS = [Pair(A, P, ()), Pair(A, R, ()), Pair(B, P, (N,))]


def test_what_answers_a_query_is_no_candidate():
  mask = embedding_pairs.make_candidate_mask(
    [A, B], [P, R, N, None], embedding_pairs.find_answers(PAIRS)
  )
  np.testing.assert_array_equal(
    mask, [[False, False, True, False], [False, True, True, False]]
  )


def make_batches(pairs=PAIRS, **changes):
  stack = lambda rows: {'name': np.array(rows)}  # noqa: E731
  settings = dict(
    prepare=(lambda c: 'q' + c.text, lambda c: 'd' + c.text),
    stack=(stack, stack),
    seed=0,
    batch_size=3,
    negatives=1,
    threads=1,
  )
  return embedding_pairs.make_batches(pairs, **(settings | changes))


def test_batches_have_positives_first_and_mask_what_is_missing():
  batch = next(make_batches())
  queries = batch['query/name'].tolist()
  documents = batch['document/name'].tolist()
  assert sorted(queries) == ['qa', 'qa', 'qb']
  assert sorted(documents[:3]) == ['dp', 'dp', 'dr']
  b = queries.index('qb')
  # One has a negative; the others' places are filled and stand against none.
  assert documents[b] == 'dp'
  assert documents[3 + b] == 'dn'
  expected = np.zeros((3, 6), bool)
  expected[:, 3 + b] = True
  expected[b, documents[:3].index('dr')] = True
  np.testing.assert_array_equal(batch['candidate_mask'], expected)


def test_position_is_saved_and_seed_counts():
  def take(batches, count):
    return [next(batches)['query/name'].tolist() for _ in range(count)]

  pairs = [Pair(Content(str(i)), Content(str(-i)), ()) for i in range(20)]
  batches = make_batches(pairs, negatives=0)
  take(batches, 2)
  state = batches.get_state()
  expected = take(batches, 4)
  again = make_batches(pairs, negatives=0)
  again.set_state(state)
  assert take(again, 4) == expected
  assert take(make_batches(pairs, negatives=0, seed=1), 4) != expected


def test_negatives_are_drawn_anew():
  pair = Pair(A, P, tuple(Content(str(i)) for i in range(9)))
  batches = make_batches([pair], batch_size=2, negatives=2)
  drawn = [next(batches)['document/name'][2:].tolist() for _ in range(6)]
  assert len({tuple(names) for names in drawn}) > 2
  for names in drawn:
    # The first negatives of both rows, then the second ones.
    assert names[0] != names[2] and names[1] != names[3]


def test_negatives_that_are_not_there_are_refused():
  with pytest.raises(errors.UsageError, match=r'data\.negatives=1: no pair'):
    make_batches(PAIRS[:2])

"""Tests that runs go on where they ended, and what they refuse."""

import io
import json

import numpy as np
from PIL import Image
import pyarrow.parquet
import pytest

from tests import command
from vhop_jax import errors
from vhop_jax.index import embed_files, gallery
from vhop_jax.models import pretrained

ABOUT = {'fingerprint': 'f', 'width': 0}


def embed(items):
  """Embeds a text as its length and first letter, a picture as its size."""
  return np.float32(
    [
      (len(item.text), ord(item.text[0]))
      if item.text
      else item.pixels.shape[:2]
      for item in items
    ]
  )


def make_texts(count):
  return [embed_files.Entry(f'id{i}', f'{"x" * i}y') for i in range(count)]


def run(entries, out, function=embed, *, about=None, skip_errors=False):
  return embed_files.embed_entries(
    entries, out, function, about=about or ABOUT, skip_errors=skip_errors
  )


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
  monkeypatch.setattr(embed_files, 'PART_ITEMS', 3)


@pytest.fixture(scope='module')
def pictures(tmp_path_factory):
  folder = tmp_path_factory.mktemp('pictures')
  (folder / 'deep').mkdir()
  for number, name in enumerate(('b.png', 'a.JPG', 'deep/c.webp', 'd.png')):
    Image.new('RGB', (10 + number, 8)).save(folder / name)
  (folder / 'notes.txt').write_text('no picture')
  return folder


def test_result_is_in_order_and_says_what_it_is(tmp_path):
  entries = make_texts(7)
  assert 'wrote 7 embeddings' in run(entries, tmp_path / 'e.npy')
  expected = [(i + 1, ord('xy'[i == 0])) for i in range(7)]
  np.testing.assert_array_equal(np.load(tmp_path / 'e.npy'), expected)
  ids = (tmp_path / 'e.ids.txt').read_text().splitlines()
  assert ids == [entry.id for entry in entries]
  about = json.loads((tmp_path / 'e.json').read_text())
  assert (about['fingerprint'], about['count']) == ('f', 7)
  assert sorted(p.name for p in tmp_path.iterdir()) == [
    'e.ids.txt',
    'e.json',
    'e.npy',
  ]


def test_parquet_has_ids_and_vectors(tmp_path):
  run(make_texts(4), tmp_path / 'e.parquet')
  table = pyarrow.parquet.read_table(tmp_path / 'e.parquet')
  assert table['id'].to_pylist() == [f'id{i}' for i in range(4)]
  assert table['embedding'].to_pylist()[2] == [3.0, float(ord('x'))]
  about = json.loads(table.schema.metadata[b'vhop'])
  assert about['fingerprint'] == 'f'


@pytest.mark.parametrize('stop', [KeyboardInterrupt, RuntimeError])
def test_interrupted_run_goes_on(tmp_path, stop, capsys):
  entries, out = make_texts(8), tmp_path / 'e.npy'
  calls = []

  def fail_third(items):
    calls.append(len(items))
    if len(calls) == 3:
      raise stop
    return embed(items)

  expected = errors.Interrupted if stop is KeyboardInterrupt else stop
  with pytest.raises(expected):
    run(entries, out, fail_third)
  assert not out.exists()
  run(entries, out, fail_third)
  assert calls == [3, 3, 2, 2]
  assert 'going on after 2 of 3 parts' in capsys.readouterr().out
  whole = tmp_path / 'whole.npy'
  run(entries, whole)
  np.testing.assert_array_equal(np.load(out), np.load(whole))


@pytest.mark.parametrize(
  ('about', 'count', 'words'),
  [
    ({**ABOUT, 'fingerprint': 'g'}, 8, 'other fingerprint'),
    (ABOUT, 9, 'other count, entries'),
  ],
)
def test_parts_of_another_run_are_not_mixed_in(tmp_path, about, count, words):
  def fail(items):
    raise KeyboardInterrupt

  with pytest.raises(errors.Interrupted):
    run(make_texts(8), tmp_path / 'e.npy', fail)
  with pytest.raises(errors.UsageError, match=words):
    run(make_texts(count), tmp_path / 'e.npy', about=about)


def test_result_that_is_there_is_not_touched(tmp_path):
  out = tmp_path / 'e.npy'
  out.write_bytes(b'mine')
  with pytest.raises(errors.UsageError, match='exists'):
    run(make_texts(2), out)
  assert out.read_bytes() == b'mine'
  with pytest.raises(errors.UsageError, match='end in .npy or .parquet'):
    run(make_texts(2), tmp_path / 'e.txt')


def test_folders_are_searched_and_bad_pictures_named(pictures, tmp_path):
  entries = embed_files.list_entries(str(pictures), None, as_texts=False)
  names = ['a.JPG', 'b.png', 'd.png', 'deep/c.webp']
  assert [entry.id for entry in entries] == names
  run(entries, tmp_path / 'e.npy')
  np.testing.assert_array_equal(
    np.load(tmp_path / 'e.npy'), [[8, 11], [8, 10], [8, 13], [8, 12]]
  )

  broken = tmp_path / 'broken.png'
  broken.write_bytes((pictures / 'b.png').read_bytes()[:40])
  lines = [str(pictures / 'b.png'), str(broken), str(pictures / 'd.png')]
  entries = embed_files.list_entries('-', lines, as_texts=False)
  with pytest.raises(errors.DataError, match=r'broken\.png'):
    run(entries, tmp_path / 'f.npy')
  said = run(entries, tmp_path / 'g.npy', skip_errors=True)
  assert 'wrote 2 embeddings' in said
  assert 'left out 1' in said
  assert len(np.load(tmp_path / 'g.npy')) == 2
  assert (tmp_path / 'g.ids.txt').read_text().split() == [lines[0], lines[2]]
  assert str(broken) in (tmp_path / 'g.errors.txt').read_text()
  with pytest.raises(errors.DataError, match='none of the 1 items'):
    run(entries[1:2], tmp_path / 'h.npy', skip_errors=True)


def test_lines_are_texts_with_or_without_ids():
  lines = ['one', '', 'k\ttwo\tmore']
  entries = embed_files.list_entries('-', lines, as_texts=True)
  assert [(e.id, e.text) for e in entries] == [
    ('0', 'one'),
    ('k', 'two\tmore'),
  ]
  with pytest.raises(errors.DataError, match="'k' twice"):
    embed_files.list_entries('-', ['k\ta', 'k\tb'], as_texts=True)
  with pytest.raises(errors.DataError, match='no line'):
    embed_files.list_entries('-', [' '], as_texts=True)


def test_command_embeds_as_the_gallery_does(
  capsys, monkeypatch, tmp_path, pictures, embedder, embedder_file
):
  """The very small model; a line of standard input is a text."""
  monkeypatch.setattr('sys.stdin', io.StringIO('a red kettle\nblue\n'))
  code, out, error = command.run_vhop(
    capsys,
    'embed',
    '-',
    '--texts',
    f'--model={embedder_file}',
    f'--out={tmp_path / "t.npy"}',
  )
  assert code == 0, error
  expected = gallery.embed_queries(
    embedder, embedder.maker.texts(['a red kettle', 'blue']), None
  )
  np.testing.assert_allclose(np.load(tmp_path / 't.npy'), expected, atol=1e-6)
  code, out, error = command.run_vhop(
    capsys,
    'embed',
    pictures,
    f'--model={embedder_file}',
    f'--out={tmp_path / "p.npy"}',
  )
  assert code == 0, error
  assert 'wrote 4 embeddings' in out
  embedded = np.load(tmp_path / 'p.npy')
  np.testing.assert_allclose(np.linalg.norm(embedded, axis=1), 1, atol=1e-5)
  for flags, words in (
    (('--width=3',), '--width is for Hugging Face folders'),
    (('--texts',), 'is a folder'),
  ):
    code, _, error = command.run_vhop(
      capsys,
      'embed',
      pictures,
      f'--model={embedder_file}',
      f'--out={tmp_path / "q.npy"}',
      *flags,
    )
    assert code == 2
    assert words in error
  assert pretrained.load_embedder(embedder_file).fingerprint in (
    (tmp_path / 'p.json').read_text()
  )

"""Tests that runs go on where they ended, and what they refuse."""

import io
import json
import subprocess
import sys
import time

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


def prepare(item):
  """Refuses long texts, as a model does."""
  if len(item.text) > 20:
    raise errors.DataError('too long')
  return item


def run(entries, out, function=embed, *, about=None, skip_errors=False):
  model = embed_files.Model(prepare, function, about or ABOUT)
  return embed_files.embed_entries(entries, out, model, skip_errors=skip_errors)


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


def make_pictures(folder, grey, count=4):
  folder.mkdir()
  for i in range(count):
    Image.new('RGB', (8, 8), (grey,) * 3).save(folder / f'{i}.png')


def embed_grey(items):
  return np.float32([[item.pixels.mean()] for item in items])


def test_other_pictures_of_the_same_names_are_not_mixed_in(tmp_path):
  """A part that is done must be of the files that are there now."""
  make_pictures(tmp_path / 'a', 10)
  make_pictures(tmp_path / 'b', 200)
  entries = {
    name: embed_files.list_entries(str(tmp_path / name), None, as_texts=False)
    for name in 'ab'
  }
  calls = []

  def fail_second(items):
    calls.append(len(items))
    if len(calls) == 2:
      raise KeyboardInterrupt
    return embed_grey(items)

  out = tmp_path / 'e.npy'
  with pytest.raises(errors.Interrupted):
    run(entries['a'], out, fail_second)
  with pytest.raises(errors.UsageError, match='made from other files'):
    run(entries['b'], out, embed_grey)
  # What is not embedded yet may be mended before the run goes on.
  Image.new('RGB', (8, 8), (90,) * 3).save(tmp_path / 'a' / '3.png')
  run(entries['a'], out, embed_grey)
  assert np.load(out).ravel().tolist() == [10, 10, 10, 90]


def test_killed_run_goes_on(tmp_path):
  """A real process, killed without a chance to tidy up."""
  out = tmp_path / 'e.npy'
  code = f"""
import time
from tests.index import embed_files_test as t
t.embed_files.PART_ITEMS = 3
def embed(items):
  if items[0].text != 'y':
    time.sleep(600)  # The first part alone is made.
  return t.embed(items)
t.run(t.make_texts(8), {str(out)!r}, embed)
"""
  process = subprocess.Popen(
    [sys.executable, '-c', code],
    stderr=subprocess.DEVNULL,
    start_new_session=True,
  )
  part = tmp_path / 'e.npy.parts' / '000000.npz'
  try:
    while not part.exists():
      assert process.poll() is None
      time.sleep(0.05)
  finally:
    process.kill()
    process.wait()
  sizes = []
  run(
    make_texts(8), out, lambda items: sizes.append(len(items)) or embed(items)
  )
  assert sizes == [3, 2]
  run(make_texts(8), tmp_path / 'whole.npy')
  np.testing.assert_array_equal(np.load(out), np.load(tmp_path / 'whole.npy'))


def test_what_the_model_refuses_is_named_and_can_be_skipped(tmp_path):
  entries = make_texts(2)
  entries.insert(1, embed_files.Entry('long', 'x' * 21))
  with pytest.raises(errors.DataError, match='long: too long; --skip-errors'):
    run(entries, tmp_path / 'e.npy')
  run(entries, tmp_path / 'f.npy', skip_errors=True)
  assert (tmp_path / 'f.ids.txt').read_text().split() == ['id0', 'id1']
  assert (tmp_path / 'f.errors.txt').read_text() == 'long\tlong: too long\n'


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
  with pytest.raises(errors.DataError, match=r'none of the 1 items.*h\.npy\.p'):
    run(entries[1:2], tmp_path / 'h.npy', skip_errors=True)


def test_lines_are_texts_with_or_without_ids():
  lines = ['one', '', 'k\ttwo\tmore']
  entries = embed_files.list_entries('-', lines, as_texts=True)
  assert [(e.id, e.text) for e in entries] == [
    ('0', 'one'),
    ('k', 'two\tmore'),
  ]
  # These are no line feeds: the text goes on, and so do the numbers.
  text = 'one\u2028more\r\ntwo\x0cmore\n\nthree\n'
  lines = embed_files.split_lines(text)
  entries = embed_files.list_entries('-', lines, as_texts=True)
  assert [(e.id, e.text) for e in entries] == [
    ('0', 'one\u2028more'),
    ('1', 'two\x0cmore'),
    ('3', 'three'),
  ]
  with pytest.raises(errors.DataError, match="'k' twice"):
    embed_files.list_entries('-', ['k\ta', 'k\tb'], as_texts=True)
  with pytest.raises(errors.DataError, match='no line'):
    embed_files.list_entries('-', [' '], as_texts=True)


def test_name_with_a_line_break_is_refused(tmp_path):
  Image.new('RGB', (8, 8)).save(tmp_path / 'a\nb.png')
  with pytest.raises(errors.DataError, match='has a line break'):
    embed_files.list_entries(str(tmp_path), None, as_texts=False)


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
    (('--dtype=bfloat16',), '--dtype is for Hugging Face folders'),
    (('--max-pixels=5000',), '--max-pixels is for Hugging Face folders'),
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

"""Tests that a file is the old one or the new one, whatever happens."""

import pytest

from vhop_jax import whole_file


def test_file_and_its_folder_are_made(tmp_path):
  path = tmp_path / 'deep' / 'a.txt'
  whole_file.write_text(path, 'ä')
  assert path.read_bytes() == 'ä'.encode()
  assert list(path.parent.iterdir()) == [path]


def test_old_file_stays_until_the_new_one_is_whole(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('old')
  with whole_file.replace(path) as part:
    part.write_text('new')
    assert path.read_text() == 'old'
  assert path.read_text() == 'new'


def test_others_may_read_what_a_library_keeps_to_its_user(tmp_path):
  path, plain = tmp_path / 'a.safetensors', tmp_path / 'plain'
  plain.touch()
  with whole_file.replace(path) as part:
    part.unlink()
    part.touch(mode=0o600)
  assert path.stat().st_mode == plain.stat().st_mode


def test_failure_leaves_the_old_file_alone(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('old')

  def fail():
    with whole_file.replace(path) as part:
      part.write_text('half')
      raise RuntimeError

  with pytest.raises(RuntimeError):
    fail()
  assert path.read_text() == 'old'
  assert list(tmp_path.iterdir()) == [path]

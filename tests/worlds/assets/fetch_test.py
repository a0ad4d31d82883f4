import json
import pathlib
import zipfile

import pytest

from tests.worlds.assets import model_files
from vhop_jax import errors
from vhop_jax.worlds.assets import fetch, household

CATALOGUE = """
id=some#catalogue
id#1=Scopia#mug
name#1=A mug
model#1=/scopia/crate.obj
creator#1=Al
id#2=Scopia#left out
name#2=A door
model#2=/scopia/door.obj
id#7=Scopia#stele
name#7=A stele
model#7=/scopia/crate.obj
modelRotation#7=0 -1 0 1 0 0 0 0 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
  folder = tmp_path / 'assets'
  monkeypatch.setenv(household.FOLDER_VARIABLE, str(folder))
  table = {'Scopia/mug': 'mug', 'Scopia/stele': 'stele'}
  monkeypatch.setattr(household, 'read_table', lambda: table)
  return folder


@pytest.fixture
def commands(tmp_path, monkeypatch):
  """Stands in for apt-get and dpkg; lists what was called."""
  pytest.importorskip('trimesh')
  called = []

  def run(command, folder):
    called.append(command[:2])
    if command[0] == 'apt-get':
      (folder / f'{fetch.PACKAGE}_1.8-1_all.deb').touch()
      return
    target = pathlib.Path(command[-1])
    for archive in household.LICENCES:
      with zipfile.ZipFile(target / f'{archive}.sh3f', 'w') as file:
        is_used = archive == 'Scopia'
        file.writestr(fetch._CATALOGUE, CATALOGUE if is_used else '')
        if is_used:
          model_files.write_crate(tmp_path)
          for name in ('crate.obj', 'crate.mtl', 'wood.png'):
            file.write(tmp_path / name, f'scopia/{name}')

  monkeypatch.setattr(fetch, '_run', run)
  return called


def test_models_of_the_table_are_prepared_once(folder, commands, capsys):
  fetch.main()
  assert commands == [['apt-get', 'download'], ['dpkg', '-x']]
  pack = household.load_pack()
  assert pack.types == ('mug', 'stele')
  assert pack.version.startswith(f'{fetch.PACKAGE}_1.8-1_all')
  # The crate is 2 wide and 1 high; the catalogue stands the other on its end.
  assert pack._load('Scopia/mug').positions[:, 1].max() == pytest.approx(0.5)
  assert pack._load('Scopia/stele').positions[:, 1].max() == pytest.approx(1)
  index = json.loads(
    (folder / household.NAME / household.INDEX_FILE).read_text()
  )
  assert index['models']['Scopia/mug'] == {
    'title': 'A mug',
    'author': 'Al',
    'licence': 'CC BY 3.0',
  }
  assert sorted(path.suffix for path in folder.iterdir()) == ['', '.deb']
  capsys.readouterr()

  fetch.main()
  assert len(commands) == 2
  assert 'is there already' in capsys.readouterr().out


def test_broken_preparation_is_made_again_without_downloading(folder, commands):
  fetch.main()
  (folder / household.NAME / household.INDEX_FILE).unlink()
  fetch.main()
  assert [command[0] for command in commands] == ['apt-get', 'dpkg', 'dpkg']
  household.load_pack()


def test_other_files_are_left_alone(folder, commands):
  (folder / household.NAME).mkdir(parents=True)
  (folder / household.NAME / 'letter.txt').write_text('mine')
  with pytest.raises(errors.UsageError, match='holds other files'):
    fetch.main()
  assert (folder / household.NAME / 'letter.txt').read_text() == 'mine'


def test_package_without_a_model_is_refused(folder, commands, monkeypatch):
  monkeypatch.setattr(household, 'read_table', lambda: {'Scopia/lost': 'cup'})
  with pytest.raises(errors.DataError, match='has not the models Scopia/lost'):
    fetch.main()
  assert not (folder / household.NAME).exists()


def test_system_without_apt_is_told_what_to_do(folder, monkeypatch):
  pytest.importorskip('trimesh')
  monkeypatch.setenv('PATH', '')
  with pytest.raises(errors.UsageError, match='no apt-get.*Debian'):
    fetch.main()


def test_failing_download_repeats_its_last_line(folder, tmp_path, monkeypatch):
  pytest.importorskip('trimesh')
  program = tmp_path / 'apt-get'
  program.write_text('#!/bin/sh\necho "E: no network" >&2\nexit 100\n')
  program.chmod(0o755)
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(errors.UsageError, match=r'\(E: no network\).*by hand'):
    fetch.main()

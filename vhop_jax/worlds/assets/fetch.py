"""Fetches and prepares the models of the pack `household`.

    python -m vhop_jax.worlds.assets.fetch

is what `make assets` runs. It needs apt-get and dpkg, but no root: the Debian
package is downloaded and unpacked, not installed. What is done is skipped.
"""

from collections.abc import Iterator
from concurrent import futures
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
from tqdm import auto as tqdm_lib

from vhop_jax import errors
from vhop_jax.worlds.assets import household
from vhop_jax.worlds.assets.model import check_reader, read_model
from vhop_jax.worlds.assets.model_pack import save_mesh
from vhop_jax.worlds.assets.recolour import make_mesh

PACKAGE = 'sweethome3d-furniture'
_CATALOGUE = 'PluginFurnitureCatalog.properties'
_LINE = re.compile(r'(\w+)#(\d+)=(.*)')
_BY_HAND = (
  f'; or put the file {PACKAGE}_*.deb of Debian into {{folder}} by hand and run'
  ' `make assets` again'
)


def main() -> None:
  """Makes the pack, unless it is there already.

  Raises:
    UsageError: the package can be neither downloaded nor unpacked here, the
      folder holds other files, or trimesh is not installed.
    DataError: the package is not what the table of models was made for.
  """
  target = household.get_folder() / household.NAME
  try:
    pack = household.load_pack()
  except errors.UsageError:
    pass
  else:
    print(f'{target}: {pack.version} is there already')
    return
  check_reader()
  folder = target.parent
  if any(path.suffix not in ('.npz', '.json') for path in target.glob('*')):
    raise errors.UsageError(
      f'{target} holds other files than prepared models: move them, or set'
      f' {household.FOLDER_VARIABLE} to another folder'
    )
  try:
    folder.mkdir(parents=True, exist_ok=True)
    if target.exists():
      shutil.rmtree(target)
  except OSError as error:
    raise errors.UsageError(
      f'cannot write to {folder} ({error.strerror}): set'
      f' {household.FOLDER_VARIABLE} to another folder'
    ) from None
  package = _download(folder)
  with tempfile.TemporaryDirectory(prefix='unpacked-', dir=folder) as scratch:
    unpacked = pathlib.Path(scratch)
    _run(['dpkg', '-x', str(package), str(unpacked)], folder)
    for archive in sorted(unpacked.rglob('*.sh3f')):
      with zipfile.ZipFile(archive) as file:
        file.extractall(unpacked / 'models' / archive.stem)
    prepared = unpacked / household.NAME
    prepared.mkdir()
    _prepare(unpacked / 'models', prepared, package.stem)
    prepared.rename(target)
  print(f'{target}: {household.load_pack().version}')


def _download(folder: pathlib.Path) -> pathlib.Path:
  """Downloads the Debian package, unless it is there.

  Raises:
    UsageError: it cannot be downloaded.
  """
  found = sorted(folder.glob(f'{PACKAGE}_*.deb'))
  if not found:
    print(f'downloading the Debian package {PACKAGE} (120 MB) to {folder}')
    _run(['apt-get', 'download', PACKAGE], folder)
    found = sorted(folder.glob(f'{PACKAGE}_*.deb'))
  if not found:
    raise errors.UsageError(
      f'apt-get download {PACKAGE} left no file in {folder}'
      + _BY_HAND.format(folder=folder)
    )
  return found[-1]


def _run(command: list[str], folder: pathlib.Path) -> None:
  """Runs a command in a folder.

  Raises:
    UsageError: it does not exist or fails.
  """
  try:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  except FileNotFoundError:
    raise errors.UsageError(
      f'the models come as a Debian package, and this system has no'
      f' {command[0]}: run `make assets` on Debian or Ubuntu and copy {folder}'
    ) from None
  if result.returncode:
    lines = result.stderr.strip().splitlines() or ['without a message']
    raise errors.UsageError(
      f'`{" ".join(command)}` failed ({lines[-1]}): check the network, and run'
      ' `apt-get update` as root if the package is unknown'
      + _BY_HAND.format(folder=folder)
    )


def read_catalogue(path: pathlib.Path) -> Iterator[dict[str, str]]:
  """Yields the properties of each model of an archive's catalogue."""
  models: dict[int, dict[str, str]] = {}
  for line in path.read_text(encoding='latin-1').splitlines():
    if match := _LINE.match(line.strip()):
      models.setdefault(int(match[2]), {})[match[1]] = match[3].strip()
  yield from models.values()


def _prepare(models: pathlib.Path, target: pathlib.Path, source: str) -> None:
  """Prepares every model of the table that is kept.

  Args:
    models: folder with a folder for each archive.
    target: gets a file for each model, and the index.
    source: name and version of what was fetched.

  Raises:
    DataError: a model of the table is missing or cannot be read.
  """
  wanted = household.read_table()
  about: dict[str, dict[str, str]] = {}
  tasks: list[tuple[pathlib.Path, str, pathlib.Path]] = []
  for archive, licence in household.LICENCES.items():
    for values in read_catalogue(models / archive / _CATALOGUE):
      model = f'{archive}/{values["id"].rpartition("#")[2]}'
      if model not in wanted:
        continue
      about[model] = {
        'title': values['name'],
        'author': values.get('creator', ''),
        'licence': licence,
      }
      file = models / archive / values['model'].lstrip('/')
      name = household.make_file_name(model)
      tasks.append((file, values.get('modelRotation', ''), target / name))
  if missing := sorted(wanted.keys() - about.keys()):
    raise errors.DataError(
      f'{source} has not the models {", ".join(missing)}: use version 1.8 of'
      f' {PACKAGE}'
    )
  with futures.ProcessPoolExecutor(
    len(os.sched_getaffinity(0)),
    mp_context=multiprocessing.get_context('spawn'),
  ) as pool:
    for _ in tqdm_lib.tqdm(
      pool.map(_prepare_one, tasks, chunksize=4),
      total=len(tasks),
      unit=' models',
      desc='preparing',
      file=sys.stderr,
    ):
      pass
  index = {
    'source': source,
    'table': household.compute_table_version(),
    'models': about,
  }
  text = json.dumps(index, indent=1, sort_keys=True)
  (target / household.INDEX_FILE).write_text(text + '\n')


def _prepare_one(task: tuple[pathlib.Path, str, pathlib.Path]) -> None:
  """Prepares one model.

  Args:
    task: the model's file, its rotation as nine numbers or nothing, and where
      to write to.
  """
  file, rotation, target = task
  turn = np.array(rotation.split(), float).reshape(3, 3) if rotation else None
  save_mesh(make_mesh(read_model(file, turn)), str(target))


if __name__ == '__main__':
  sys.exit(errors.run_entry_point(main))

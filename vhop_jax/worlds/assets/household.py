"""Is the pack of household things by artists, from Sweet Home 3D's catalogue.

`household.csv` says for every model of the catalogue what a person would call
it, or why it is left out. `make assets` fetches and prepares the models (see
`fetch.py`); here they are only read.
"""

import csv
import functools
import hashlib
import importlib.resources
import json
import os
import pathlib

from vhop_jax import errors
from vhop_jax.worlds.assets import Mesh
from vhop_jax.worlds.assets.model_pack import Entry, ModelPack, load_mesh

NAME = 'household'
FOLDER_VARIABLE = 'VHOP_ASSETS'
INDEX_FILE = 'index.json'
# To be raised when models are prepared in another way than before.
_PREPARATION = 1

# What each archive of the catalogue may be used under, as the Debian package's
# copyright file has it.
LICENCES = {
  'BlendSwap-CC-0': 'CC0 1.0',
  'BlendSwap-CC-BY': 'CC BY 3.0',
  'KatorLegaz': 'CC BY 3.0 US',
  'Scopia': 'CC BY 3.0',
}


def get_folder() -> pathlib.Path:
  """Returns the folder of fetched assets.

  It is that of the variable VHOP_ASSETS, else `assets` in the checkout.
  """
  named = os.environ.get(FOLDER_VARIABLE)
  if named:
    return pathlib.Path(named).absolute()
  return pathlib.Path(__file__).parents[3] / 'assets'


def read_table() -> dict[str, str]:
  """Returns the type of each model that is kept, by its id."""
  path = importlib.resources.files('vhop_jax.worlds.assets') / 'household.csv'
  rows = csv.DictReader(path.read_text().splitlines())
  return {row['model']: row['type'] for row in rows if row['type']}


def compute_table_version() -> str:
  """Returns a text that changes with what is prepared, and how."""
  text = json.dumps([_PREPARATION, read_table()], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]


def make_file_name(model: str) -> str:
  """Returns the name of a prepared model's file."""
  return model.replace('/', '--') + '.npz'


def load_pack() -> ModelPack:
  """Reads the index of the prepared models; each is read when it is used.

  Raises:
    UsageError: they are not there, or of another version of the table.
  """
  folder = get_folder() / NAME
  path = folder / INDEX_FILE
  try:
    index = json.loads(path.read_text())
  except (OSError, ValueError):
    raise errors.UsageError(
      f'the models of the pack {NAME!r} are not in {folder}: run `make assets`'
      f' once, or set {FOLDER_VARIABLE} to where they are'
    ) from None
  table = read_table()
  if index.get('table') != compute_table_version():
    raise errors.UsageError(
      f'the models in {folder} were prepared by another version of vhop_jax:'
      ' run `make assets` again'
    )
  entries = [
    Entry(id=model, type=table[model], **about)
    for model, about in index['models'].items()
  ]
  version = f'{index["source"]}, table {index["table"]}'
  return ModelPack(NAME, version, entries, functools.partial(_load, folder))


def _load(folder: pathlib.Path, model: str) -> Mesh:
  """Reads one prepared model.

  Raises:
    DataError: its file is missing or broken.
  """
  path = folder / make_file_name(model)
  try:
    return load_mesh(str(path))
  except (OSError, ValueError, KeyError) as error:
    raise errors.DataError(
      f'model {path} cannot be read ({error!r}): remove {folder} and run'
      ' `make assets` again'
    ) from None

"""Holds logos of the collection Simple Icons as small pictures.

The collection is in the public domain (CC0); the logos remain trademarks of
their owners and stand here as what one sees on things, not as endorsement.
`python -m vhop_jax.worlds.assets.pack_logos` made the two files.
"""

import functools
import importlib.resources
import json

import numpy as np
from PIL import Image

SIZE_PX = 48
COLUMNS = 40
SHEET_FILE = 'logos.png'
NAMES_FILE = 'logos.json'


@functools.cache
def list_logos() -> tuple[str, ...]:
  """Returns the names of all logos, sorted."""
  folder = importlib.resources.files('vhop_jax.worlds.assets')
  return tuple(json.loads((folder / NAMES_FILE).read_text())['names'])


@functools.cache
def _load_sheet() -> np.ndarray:
  """Returns all logos on one sheet, `COLUMNS` in a row."""
  folder = importlib.resources.files('vhop_jax.worlds.assets')
  with (folder / SHEET_FILE).open('rb') as file, Image.open(file) as image:
    return np.asarray(image.convert('L'))


def load_logo(name: str) -> np.ndarray:
  """Returns a logo, uint8 [SIZE_PX, SIZE_PX]: 255 is ink.

  Raises:
    ValueError: there is no such logo.
  """
  if name not in list_logos():
    raise ValueError(f'there is no logo {name!r}')
  row, column = divmod(list_logos().index(name), COLUMNS)
  return _load_sheet()[
    row * SIZE_PX : (row + 1) * SIZE_PX,
    column * SIZE_PX : (column + 1) * SIZE_PX,
  ]

"""Is the pack of a user's own models: `meshes:FOLDER`.

The folder has model files (OBJ, GLB) and `catalogue.json`, a list with an entry
for each model to use:

    [
      {"file": "mug.glb", "name": "mug"},
      {"file": "bear/bear.obj", "name": "teddy bear", "up": "z", "turn": 90,
       "colour": ["fur"], "second_colour": ["bow"],
       "author": "A. Maker", "licence": "CC BY 4.0"}
    ]

Only `file` and `name` must be there. `up` is the axis that points up, 'y' (as
in most files) or 'z'; `turn` is by how many degrees to turn the model about it
afterwards, counter-clockwise seen from above. `colour` and `second_colour` name
the materials that take an object's two colours; without them the materials of
which one sees most are chosen.
"""

from collections.abc import Mapping
import hashlib
import json
import math
import pathlib
from typing import Any

import numpy as np

from vhop_jax import errors
from vhop_jax.worlds.assets import Mesh
from vhop_jax.worlds.assets.model import check_reader, read_model
from vhop_jax.worlds.assets.model_pack import Entry, ModelPack
from vhop_jax.worlds.assets.recolour import make_mesh

PREFIX = 'meshes:'
CATALOGUE_FILE = 'catalogue.json'

# By key: the type of its value, and whether it must be there.
_KEYS: dict[str, tuple[type | tuple[type, ...], bool]] = {
  'file': (str, True),
  'name': (str, True),
  'up': (str, False),
  'turn': ((int, float), False),
  'colour': (list, False),
  'second_colour': (list, False),
  'author': (str, False),
  'licence': (str, False),
}
_UPRIGHT = {
  'y': np.eye(3),
  'z': np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
}


def load_pack(name: str) -> ModelPack:
  """Reads a folder's catalogue; each model is read when it is used.

  Args:
    name: `PREFIX` and the folder.

  Raises:
    UsageError: the folder has no usable catalogue, a file is missing, or
      trimesh is not installed.
  """
  folder = pathlib.Path(name.removeprefix(PREFIX)).expanduser()
  path = folder / CATALOGUE_FILE
  try:
    rows = json.loads(path.read_text())
  except OSError as error:
    raise errors.UsageError(
      f'pack {name!r}: {path} cannot be read ({error.strerror}); it lists the'
      ' models to use, as [{"file": "mug.glb", "name": "mug"}]'
    ) from None
  except ValueError as error:
    raise errors.UsageError(
      f'{path} is not JSON ({error}): repair it'
    ) from None
  if not isinstance(rows, list) or not rows:
    raise errors.UsageError(
      f'{path} is not a list of models, as [{{"file": "mug.glb", "name":'
      ' "mug"}]: repair it'
    )
  check_reader()
  by_file: dict[str, Mapping[str, Any]] = {}
  digest = hashlib.sha256(path.read_bytes())
  for i, row in enumerate(rows):
    _check_row(row, f'{path}, entry {i}')
    if row['file'] in by_file:
      raise errors.UsageError(f'{path} has {row["file"]!r} twice: drop one')
    by_file[row['file']] = row
    try:
      digest.update((folder / row['file']).read_bytes())
    except OSError as error:
      raise errors.UsageError(
        f'{path}, entry {i}: {row["file"]} cannot be read ({error.strerror})'
      ) from None

  def load(file: str) -> Mesh:
    row = by_file[file]
    model = read_model(folder / file, _make_turn(row))
    try:
      return make_mesh(model, row.get('colour', ()), row.get('second_colour'))
    except errors.DataError as error:
      raise errors.DataError(f'{path}, {file}: {error}') from None

  entries = [
    Entry(
      id=file,
      type=row['name'],
      title=row['name'],
      author=row.get('author', ''),
      licence=row.get('licence', ''),
    )
    for file, row in by_file.items()
  ]
  return ModelPack(name, f'files {digest.hexdigest()[:12]}', entries, load)


def _check_row(row: Any, where: str) -> None:
  """Checks the keys of one entry of a catalogue.

  Raises:
    UsageError: one is missing, unknown or of the wrong type.
  """
  if not isinstance(row, dict):
    raise errors.UsageError(f'{where} is not an object with keys: repair it')
  for key, (kind, needed) in _KEYS.items():
    if key not in row and needed:
      raise errors.UsageError(f'{where} has no {key!r}: add it')
    if key in row and not isinstance(row[key], kind):
      raise errors.UsageError(
        f'{where}: {key!r} cannot be {row[key]!r}: repair it'
      )
  if unknown := sorted(row.keys() - _KEYS.keys()):
    raise errors.UsageError(
      f'{where} has the unknown key {unknown[0]!r}: choose among'
      f' {", ".join(_KEYS)}'
    )
  if row.get('up', 'y') not in _UPRIGHT:
    raise errors.UsageError(
      f"{where}: 'up' cannot be {row['up']!r}: choose 'y' or 'z'"
    )


def _make_turn(row: Mapping[str, Any]) -> np.ndarray:
  """Makes the rotation [3, 3] that brings a model upright and to the front."""
  angle = math.radians(row.get('turn', 0))
  cos, sin = math.cos(angle), math.sin(angle)
  turn = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
  return turn @ _UPRIGHT[row.get('up', 'y')]

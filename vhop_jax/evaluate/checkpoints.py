"""Keeps what was measured on each test set, so that a run can go on.

A kept result is used again only if nothing that it depends on has changed: the
config, the routers' files and the worlds.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

import ml_collections

from vhop_jax import whole_file
from vhop_jax.worlds import world as world_lib

FOLDER = 'test_sets'


@dataclasses.dataclass(frozen=True)
class Keeper:
  """Writes and reads the results of one evaluation.

  Attributes:
    folder: where they lie.
    key: names all that every test set's results depend on.
  """

  folder: pathlib.Path
  key: str

  def load(self, name: str, worlds: Sequence[str]) -> Any | None:
    """Returns what was kept of a test set, or None.

    Args:
      name: of the test set.
      worlds: its folders.
    """
    try:
      kept = json.loads(self._get_path(name).read_text())
    except (FileNotFoundError, ValueError):
      return None
    return kept['results'] if kept['key'] == self._make_key(worlds) else None

  def save(self, name: str, worlds: Sequence[str], results: Any) -> None:
    """Keeps what was measured; a kill leaves the old file or the new one.

    Args:
      name: of the test set.
      worlds: its folders.
      results: anything that JSON holds.
    """
    whole_file.write_text(
      self._get_path(name),
      json.dumps({'key': self._make_key(worlds), 'results': results}),
    )

  def _get_path(self, name: str) -> pathlib.Path:
    # A name may hold what a file's may not.
    slug = ''.join(c if c.isalnum() else '_' for c in name)
    return self.folder / f'{slug}.json'

  def _make_key(self, worlds: Sequence[str]) -> str:
    prints = [world_lib.read_header(path)['fingerprint'] for path in worlds]
    return _hash(self.key, json.dumps(prints, sort_keys=True))


def make_keeper(
  workdir: str | os.PathLike[str],
  config: ml_collections.ConfigDict,
  routers: Mapping[str, str],
) -> Keeper:
  """Makes the keeper of an evaluation.

  Args:
    workdir: of the evaluation.
    config: all that it is run with; which test sets there are, and what is
      shown of them, makes no difference to what is measured on each.
    routers: files of the routers by stage; '' stands for none.
  """
  values = config.to_dict()
  for name in ('test_sets', 'training', 'title', 'right', 'wrong', 'families'):
    values.pop(name, None)
  files = [
    hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    if os.path.exists(path)
    else path
    for _, path in sorted(routers.items())
  ]
  return Keeper(
    pathlib.Path(workdir) / FOLDER,
    _hash(json.dumps(values, sort_keys=True, default=str), *files),
  )


def _hash(*texts: str) -> str:
  return hashlib.sha256('\n'.join(texts).encode()).hexdigest()

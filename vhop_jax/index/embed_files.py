"""Embeds many texts or picture files into one file; can be interrupted.

The work is done in parts, each a small file beside the result. A run that is
interrupted goes on after its last whole part; when all are there they are
joined and removed.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import tqdm

from vhop_jax import errors, whole_file
from vhop_jax.models import encoder as encoder_lib
from vhop_jax.models import image_processor
from vhop_jax.typing import Float32, ndarray

PART_ITEMS = 64
SUFFIXES = ('.npy', '.parquet')
PICTURES = frozenset(
  ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
)


@dataclasses.dataclass(frozen=True)
class Model:
  """Is what embeds.

  Attributes:
    prepare: makes one item ready on the host, or raises a DataError that says
      why it cannot be embedded.
    embed: embeds some of what `prepare` made, in their order.
    about: what changes the embeddings, as JSON can hold it; a run goes on only
      with the same.
  """

  prepare: Callable[[encoder_lib.Item], Any]
  embed: Callable[[Sequence[Any]], Float32[ndarray, 'items width']]
  about: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Entry:
  """Is one thing to embed, not yet read.

  Attributes:
    id: its name in the result: one line.
    text: what to embed; '' for a picture.
    path: of a picture; None for a text.
  """

  id: str
  text: str = ''
  path: pathlib.Path | None = None

  def read(self) -> encoder_lib.Item:
    """Reads the picture, if it is one.

    Raises:
      DataError: it cannot be read.
    """
    if self.path is None:
      return encoder_lib.Item(text=self.text)
    return encoder_lib.Item(pixels=image_processor.read_picture(self.path))

  def describe(self) -> str:
    """Returns what changes if the entry or its file does."""
    if self.path is None:
      return f'{self.id}\0{self.text}'
    try:
      status = self.path.stat()
    except (OSError, ValueError):  # `read` says what is wrong.
      return f'{self.id}\0missing'
    return f'{self.id}\0{status.st_size}\0{status.st_mtime_ns}'


def list_entries(
  source: str, lines: Sequence[str] | None, *, as_texts: bool
) -> list[Entry]:
  """Lists what is to be embedded.

  Args:
    source: a folder of pictures, searched whole; or a file with a path or text
      in each line.
    lines: of the file instead, e.g. from standard input.
    as_texts: whether the lines are texts. One with a tab is an id and a text;
      else the id is the number of the line, from 0. Blank lines count, too,
      but are not embedded.

  Raises:
    UsageError: a folder has no texts.
    DataError: there is nothing to embed, an id comes twice, or it has a line
      break.
  """
  folder = pathlib.Path(source)
  if lines is None and folder.is_dir():
    if as_texts:
      raise errors.UsageError(
        f'{source} is a folder: texts come from a file, one in each line'
      )
    entries = [
      Entry(str(path.relative_to(folder)), path=path)
      for path in sorted(folder.rglob('*'))
      if path.suffix.lower() in PICTURES and path.is_file()
    ]
    known = ', '.join(sorted(PICTURES))
    if not entries:
      raise errors.DataError(f'{source} has no picture ({known}): add some')
    for entry in entries:
      if len(entry.id.splitlines()) > 1:
        raise errors.DataError(
          f'the name {entry.id!r} has a line break: rename it, because ids are'
          ' written one in each line'
        )
    return entries
  if lines is None:
    try:
      lines = split_lines(folder.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError) as error:
      raise errors.DataError(
        f'{source} cannot be read as a list ({error}): give a folder of'
        ' pictures, or a text file with one path or text in each line'
      ) from error
  entries = []
  for number, line in enumerate(lines):
    if not line.strip():
      continue
    if not as_texts:
      entries.append(Entry(line.strip(), path=pathlib.Path(line.strip())))
      continue
    name, tab, text = line.partition('\t')
    entries.append(Entry(name, text) if tab else Entry(str(number), line))
  if not entries:
    raise errors.DataError(f'{source} has no line: write some')
  seen: set[str] = set()
  for entry in entries:
    if entry.id in seen:
      raise errors.DataError(f'{source} names {entry.id!r} twice: remove one')
    seen.add(entry.id)
  return entries


def split_lines(text: str) -> list[str]:
  """Splits a list at its line feeds.

  Not `str.splitlines`, which also cuts texts at form feeds and at Unicode's
  separators, so that all numbers of lines after them would be wrong.
  """
  return [line.removesuffix('\r') for line in text.split('\n')]


def check_out(out: pathlib.Path) -> None:
  """Refuses a result that cannot be written, before a model is loaded.

  Raises:
    UsageError: the file exists, or has another suffix.
  """
  if out.suffix not in SUFFIXES:
    raise errors.UsageError(f'{out}: the name must end in .npy or .parquet')
  if out.exists():
    raise errors.UsageError(f'{out} exists: choose another file')


def embed_entries(
  entries: Sequence[Entry],
  out: str | os.PathLike[str],
  model: Model,
  *,
  skip_errors: bool,
) -> str:
  """Embeds entries and writes the result; goes on where a run left off.

  Args:
    entries: in the order of the result.
    out: an .npy file, beside which `.ids.txt` has an id in each line; or a
      .parquet file with the columns id and embedding.
    model: embeds; what is said about it is kept beside the result in `.json`.
    skip_errors: whether an entry that cannot be embedded is left out and listed
      in `.errors.txt` beside the result, instead of ending the run.

  Returns:
    What was done, in one line.

  Raises:
    UsageError: the file exists, has another suffix, or its parts are those of
      another run or of files that have changed since.
    DataError: an entry cannot be embedded; the message names it.
    Interrupted: by Ctrl-C; what was done is kept.
  """
  out = pathlib.Path(out)
  check_out(out)
  parts = out.with_name(out.name + '.parts')
  digest = hashlib.sha256()
  for entry in entries:
    digest.update(f'{entry.id}\0{entry.text}\0'.encode())
  asked = {
    **model.about,
    'count': len(entries),
    'entries': digest.hexdigest(),
    'part_items': PART_ITEMS,
  }
  _open_parts(parts, asked)
  starts = range(0, len(entries), PART_ITEMS)
  paths = [parts / f'{i:06d}.npz' for i in range(len(starts))]
  done = 0
  for start, path in zip(starts, paths, strict=True):
    if path.exists():
      _check_part(path, entries[start : start + PART_ITEMS])
      done += 1
  if done:
    print(f'going on after {done} of {len(paths)} parts in {parts}', flush=True)
  bar = tqdm.tqdm(
    total=len(entries),
    initial=min(len(entries), done * PART_ITEMS),
    unit=' items',
    desc='embedding',
  )
  try:
    with bar:
      for start, path in zip(starts, paths, strict=True):
        if path.exists():
          continue
        some = entries[start : start + PART_ITEMS]
        _save_part(path, some, model, skip_errors=skip_errors)
        bar.update(len(some))
  except KeyboardInterrupt:
    raise errors.Interrupted(
      f'interrupted; what was done is in {parts}: run the same command to go on'
    ) from None
  made, failed = _join_parts(paths, entries, out, asked)
  shutil.rmtree(parts)
  skipped = f', left out {failed} (see {_beside(out, ".errors.txt")})'
  return f'wrote {made:,} embeddings to {out}{skipped if failed else ""}'


def _open_parts(parts: pathlib.Path, asked: dict[str, Any]) -> None:
  """Makes the folder of the parts, or checks that it is this run's."""
  path = parts / 'run.json'
  if not path.exists():
    whole_file.write_text(path, json.dumps(asked, sort_keys=True))
    return
  found = json.loads(path.read_text(encoding='utf-8'))
  if changed := sorted(k for k in asked if found.get(k) != asked[k]):
    raise errors.UsageError(
      f'{parts} has parts of a run with other {", ".join(changed)}: delete it,'
      ' or choose another file'
    )


def _compute_state(entries: Sequence[Entry]) -> str:
  """Returns a digest of what a part was made from."""
  said = '\0\0'.join(entry.describe() for entry in entries)
  return hashlib.sha256(said.encode('utf-8', 'surrogateescape')).hexdigest()


def _check_part(path: pathlib.Path, entries: Sequence[Entry]) -> None:
  """Refuses a part whose files have changed since it was made.

  Only parts that are there count: after a run that ended at a damaged picture
  one can replace it and go on.
  """
  with np.load(path) as part:
    found = str(part['state'])
  if found != _compute_state(entries):
    raise errors.UsageError(
      f'{path} was made from other files than {entries[0].id!r} and the'
      f' {len(entries) - 1} after it are now: delete {path.parent}, or choose'
      ' another file'
    )


def _prepare(entry: Entry, model: Model) -> Any:
  """Makes an entry ready; a DataError names it."""
  item = entry.read()
  try:
    return model.prepare(item)
  except errors.DataError as error:
    raise errors.DataError(f'{entry.id}: {error.message}') from None


def _save_part(
  path: pathlib.Path,
  entries: Sequence[Entry],
  model: Model,
  *,
  skip_errors: bool,
) -> None:
  """Embeds the entries of a part and writes them, whole or not at all."""
  items, rows, failures = [], [], []
  state = _compute_state(entries)  # First: a file may change meanwhile.
  for row, entry in enumerate(entries):
    try:
      items.append(_prepare(entry, model))
      rows.append(row)
    except errors.DataError as error:
      if not skip_errors:
        raise errors.DataError(
          f'{error.message}; --skip-errors leaves it out'
        ) from None
      failures.append(f'{entry.id}\t{error.message}')
  embedded = model.embed(items) if items else np.zeros((0, 0), np.float32)
  with whole_file.replace(path) as part, part.open('wb') as file:
    np.savez(
      file,
      embedded=embedded,
      rows=np.array(rows, int),
      failures=np.array(failures, str),
      state=np.array(state),
    )


def _join_parts(
  paths: Sequence[pathlib.Path],
  entries: Sequence[Entry],
  out: pathlib.Path,
  asked: dict[str, Any],
) -> tuple[int, int]:
  """Writes the result; returns how many rows it has and how many failed."""
  pieces, ids, failures = [], [], []
  for number, path in enumerate(paths):
    with np.load(path) as part:
      if len(part['rows']):
        pieces.append(part['embedded'])
      ids += [entries[number * PART_ITEMS + row].id for row in part['rows']]
      failures += part['failures'].tolist()
  if not pieces:
    raise errors.DataError(
      f'none of the {len(entries)} items could be embedded: {failures[0]};'
      f' delete {paths[0].parent} before another try'
    )
  embedded = np.concatenate(pieces)
  if failures:
    errors_path = _beside(out, '.errors.txt')
    whole_file.write_text(errors_path, '\n'.join(failures) + '\n')
  # The result itself comes last: where it is, all is.
  with whole_file.replace(out) as part:
    if out.suffix == '.npy':
      with part.open('wb') as file:
        np.save(file, embedded)
      ids_path = _beside(out, '.ids.txt')
      whole_file.write_text(ids_path, '\n'.join(ids) + '\n')
    else:
      _write_parquet(part, ids, embedded, asked)
    whole_file.write_text(
      _beside(out, '.json'), json.dumps(asked, indent=2, sort_keys=True)
    )
  return len(ids), len(failures)


def _write_parquet(
  path: pathlib.Path,
  ids: Sequence[str],
  embedded: Float32[ndarray, 'items width'],
  asked: dict[str, Any],
) -> None:
  import pyarrow
  import pyarrow.parquet

  values = pyarrow.array(embedded.reshape(-1))
  table = pyarrow.table(
    {
      'id': list(ids),
      'embedding': pyarrow.FixedSizeListArray.from_arrays(
        values, embedded.shape[1]
      ),
    }
  ).replace_schema_metadata({'vhop': json.dumps(asked, sort_keys=True)})
  pyarrow.parquet.write_table(table, path)


def _beside(out: pathlib.Path, suffix: str) -> pathlib.Path:
  return out.with_name(out.stem + suffix)

"""Writes files whole or not at all."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path


@contextlib.contextmanager
def replace(path: Path) -> Iterator[Path]:
  """Gives the path of a file to write, which then takes the place of `path`.

  A kill leaves the old file or the new one, and processes that write the same
  do not meet. If writing fails, the old file stays.

  Args:
    path: its folder is made if need be.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  # In the same folder, so that replacing is atomic.
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  try:
    # Some libraries write files that nobody else may read.
    part.touch()
    mode = part.stat().st_mode
    yield part
    part.chmod(mode)
    os.replace(part, path)
  finally:
    part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
  """Writes a text, in UTF-8."""
  with replace(path) as part:
    part.write_text(text, encoding='utf-8')

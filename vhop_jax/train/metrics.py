"""Reports progress: one line for people, one JSON object for programs."""

from collections.abc import Mapping, Sequence
import contextlib
import json
import math
from pathlib import Path
import time
from typing import Any

import jax
import numpy as np

from vhop_jax import errors, whole_file

FILE_NAME = 'metrics.jsonl'


def read_rows(workdir: Path) -> list[dict[str, Any]]:
  """Reads the rows of a run's metrics.jsonl; none if there is no file."""
  path = workdir / FILE_NAME
  if not path.exists():
    return []
  rows = []
  for line in path.read_text().splitlines():
    # A kill in mid-write tears a line.
    with contextlib.suppress(json.JSONDecodeError):
      rows.append(json.loads(line))
  return rows


class MetricsFile:
  """Appends rows `{"step": ..., name: number, ...}` to metrics.jsonl.

  A run that resumes at a step drops the rows after it, so the file reads like
  that of an uninterrupted run.
  """

  def __init__(self, workdir: Path, *, step: int):
    """Opens the file.

    Args:
      workdir: the run's folder.
      step: the step at which the run starts or resumes.
    """
    path = workdir / FILE_NAME
    kept = [row for row in read_rows(workdir) if row['step'] <= step]
    whole_file.write_text(path, ''.join(json.dumps(row) + '\n' for row in kept))
    self._file = path.open('a')

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Appends one row at once."""
    self._file.write(json.dumps({'step': step, **values}) + '\n')
    self._file.flush()

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


class StepMetrics:
  """Collects the scalars of updates without waiting for the device."""

  def __init__(self) -> None:
    """Starts with nothing collected."""
    self._steps: list[int] = []
    self._rows: list[Mapping[str, Any]] = []

  def add(self, step: int, row: Mapping[str, Any]) -> None:
    """Takes one update's scalars, which may still be in computation."""
    self._steps.append(step)
    self._rows.append(row)
    if len(self._rows) > 2:
      # Keeps the host at most two updates ahead, or batches would pile up.
      jax.block_until_ready(self._rows[-3])

  def check_finite(self) -> None:
    """Waits for all scalars.

    Raises:
      DataError: a loss is not finite.
    """
    self._rows = jax.device_get(self._rows)
    for step, row in zip(self._steps, self._rows, strict=True):
      if not np.isfinite(row['loss']):
        raise errors.DataError(
          f'the loss is {float(row["loss"])} at step {step}: lower '
          'optimizer.lr or clip_norm, or look at the data; the last checkpoint '
          'is from before'
        )

  def pop_means(self) -> dict[str, float]:
    """Returns each scalar's mean since the last call."""
    self.check_finite()
    means = compute_means(self._rows)
    self._steps, self._rows = [], []
    return means


def compute_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
  """Returns the mean of each name over the rows that have it, loss first."""
  names = sorted(
    {name for row in rows for name in row},
    key=lambda name: (name != 'loss', name),
  )
  return {
    name: float(np.mean([row[name] for row in rows if name in row]))
    for name in names
  }


class Clock:
  """Measures a run's speed from its first update on."""

  def __init__(self, *, step: int, total_steps: int):
    """Starts the clock.

    Args:
      step: updates done so far.
      total_steps: updates of the whole run.
    """
    self._total_steps = total_steps
    self._start_step = self._last_step = step
    self._start_secs = self._last_secs = time.monotonic()
    self._num_examples = 0

  def add(self, num_examples: int) -> None:
    """Counts the examples of one update."""
    self._num_examples += num_examples

  def pop(self, step: int) -> tuple[float, float]:
    """Returns (examples a second since the last call, seconds left)."""
    now_secs = time.monotonic()
    per_sec = self._num_examples / max(now_secs - self._last_secs, 1e-9)
    secs_per_step = (now_secs - self._start_secs) / max(
      step - self._start_step, 1
    )
    self._num_examples, self._last_secs = 0, now_secs
    return per_sec, secs_per_step * (self._total_steps - step)


def format_secs(secs: float) -> str:
  """Formats a duration, e.g. '1:02:03' or '2:03'."""
  minutes, seconds = divmod(math.ceil(secs), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f'{hours}:{minutes:02}:{seconds:02}'
  return f'{minutes}:{seconds:02}'


def format_values(values: Mapping[str, float]) -> str:
  """Formats named numbers in one line, e.g. 'loss 0.1234  r1 0.93'."""
  return '  '.join(f'{name} {value:.4g}' for name, value in values.items())

import json

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.train import metrics


def test_file_drops_rows_after_the_step_and_torn_ones(tmp_path):
  file = metrics.MetricsFile(tmp_path, step=0)
  for step in (2, 4, 6):
    file.write(step, {'loss': step / 2})
  file.close()
  path = tmp_path / metrics.FILE_NAME
  path.write_text(path.read_text() + '{"step": 8, "lo')
  file = metrics.MetricsFile(tmp_path, step=4)
  file.write(5, {'loss': 9.0})
  file.close()
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  assert rows == [
    {'step': 2, 'loss': 1.0},
    {'step': 4, 'loss': 2.0},
    {'step': 5, 'loss': 9.0},
  ]


def test_means_are_those_since_the_last_call():
  scalars = metrics.StepMetrics()
  scalars.add(1, {'loss': np.float32(1), 'recall': np.float32(0.5)})
  scalars.add(2, {'loss': np.float32(3)})
  # A name counts only in the rows that have it.
  assert scalars.pop_means() == {'loss': 2.0, 'recall': 0.5}
  scalars.add(3, {'loss': np.float32(7)})
  assert scalars.pop_means() == {'loss': 7.0}


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_first_step_that_is_not_finite_is_named(value):
  scalars = metrics.StepMetrics()
  for step, loss in [(5, 1.0), (6, value), (7, np.nan)]:
    scalars.add(step, {'loss': np.float32(loss)})
  with pytest.raises(errors.DataError, match='step 6'):
    scalars.check_finite()


@pytest.mark.parametrize(
  ('secs', 'text'),
  [(0, '0:00'), (59.2, '1:00'), (3599, '59:59'), (3723, '1:02:03')],
)
def test_durations(secs, text):
  assert metrics.format_secs(secs) == text

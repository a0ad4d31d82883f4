import json

import pytest

from vhop_jax import errors
from vhop_jax.evaluate import charts, experiments
from vhop_jax.evaluate.scores import Interval


def _row(success=0.5, *, seed=0, **changes):
  row = {
    'experiment': 'precise_3hop',
    'seed': seed,
    'stage': 'reinforce',
    'policy': 'Router',
    'decoding': 'gates',
    'test_set': 'L4 3-hop',
    'queries': 300,
    'metrics': {'success': Interval(success, success - 0.1, success + 0.2)},
    'settings': {'warmup': True},
  }
  return {**row, **changes}


def test_rows_come_back_as_they_were_written(tmp_path):
  path = tmp_path / 'deep' / 'results.jsonl'
  rows = [_row(), _row(seed=1, git='abc')]
  experiments.append_rows(path, rows[:1])
  experiments.append_rows(path, rows[1:])
  assert experiments.read_rows([path]) == rows
  assert isinstance(rows[0]['metrics']['success'], Interval)
  assert [p.name for p in path.parent.iterdir()] == ['results.jsonl']


@pytest.mark.parametrize(
  'changes',
  [
    {'experiment': 'vague_3hop'},
    {'seed': 1},
    {'stage': 'imitation'},
    {'policy': 'Greedy'},
    {'decoding': 'beam'},
    {'test_set': 'L1'},
    {'settings': {'warmup': False}},
  ],
)
def test_only_the_same_measurement_is_replaced(tmp_path, changes):
  path = tmp_path / 'results.jsonl'
  other = _row(**changes)
  experiments.append_rows(path, [_row(0.5), other])
  experiments.append_rows(path, [_row(0.75, queries=100)])
  assert experiments.read_rows([path]) == [_row(0.75, queries=100), other]


@pytest.mark.parametrize(
  ('line', 'words'),
  [
    ('{"experiment": "a"', 'no JSON'),
    ('[1]', 'no object'),
    (json.dumps({**_row(), 'seed': 'x'}), "seed is 'x'"),
    (json.dumps({**_row(), 'stage': 'rl'}), "stage is 'rl', not one of unt"),
    (json.dumps(_row(metrics={'success': [0.5, 0.4]})), r'success is \[0.5'),
    (json.dumps(_row(metrics={'success': [0.5, 0.4, float('nan')]})), 'nan'),
  ],
)
def test_broken_line_is_named(tmp_path, line, words):
  path = tmp_path / 'results.jsonl'
  path.write_text(f'{json.dumps(_row())}\n{line}\n')
  where = rf'results.jsonl, line 2 is no row of results \(.*{words}'
  with pytest.raises(errors.DataError, match=where):
    experiments.read_rows([path])
  with pytest.raises(errors.DataError, match='delete the line'):
    experiments.append_rows(path, [_row()])


def test_row_that_could_not_be_read_is_not_written(tmp_path):
  path = tmp_path / 'results.jsonl'
  experiments.append_rows(path, [_row()])
  row = _row()
  del row['queries']
  with pytest.raises(ValueError, match='queries is None'):
    experiments.append_rows(path, [row])
  assert experiments.read_rows([path]) == [_row()]


def test_missing_file_is_an_error(tmp_path):
  with pytest.raises(errors.DataError, match='is missing'):
    experiments.read_rows([tmp_path / 'results.jsonl'])


def test_one_measurement_counts_once_however_often_it_is_found(tmp_path):
  first, copy = tmp_path / 'a.jsonl', tmp_path / 'b.jsonl'
  experiments.append_rows(first, [_row()])
  experiments.append_rows(copy, [_row()])
  found = experiments.read_rows([first, tmp_path / '.' / 'a.jsonl', copy])
  assert found == [_row()]
  experiments.append_rows(copy, [_row(0.25)])
  with pytest.raises(errors.DataError, match='differ in precise_3hop, seed 0'):
    experiments.read_rows([first, copy])


def test_seeds_are_averaged_with_their_range():
  rows = [
    _row(0.5),
    _row(0.75, seed=2),
    _row(0.25, seed=1),
    _row(test_set='L1'),
  ]
  summary, single = experiments.summarise(rows)
  assert summary.seeds == (0, 1, 2)
  assert summary.metrics['success'] == Interval(0.5, 0.25, 0.75)
  # One seed has no range; its own interval stands.
  assert single.seeds == (0,)
  assert single.metrics['success'] == Interval(0.5, 0.4, 0.7)


def test_curves_of_reinforcement_stand_apart_from_those_before():
  def log(**values):
    return [{'step': step, **values} for step in range(3)]

  first, second = experiments.make_curve_sections(
    {
      'penalty_0': log(reward=0.5, rollout_success=0.5, success=0.6),
      'penalty_0.02': log(reward=0.4, rollout_success=0.5, success=0.6),
      'imitation': log(loss=1.0, success=0.25),
      'warmup': log(loss=1.0),
    }
  )
  assert [c.title for c in first.charts] == [
    'Reward', 'Success of rollouts', 'Success on the dev world'
  ]  # fmt: skip
  assert [c.title for c in second.charts] == ['Success on the dev world']
  drawing = first.charts[0].draw(is_inline=True)
  assert 'penalty_0.02' in drawing
  assert 'imitation' not in drawing
  assert not first.list_columns()


def test_runs_beyond_the_colours_have_charts_of_their_own():
  log = [{'step': step, 'reward': 1.0} for step in range(2)]
  count = charts.MAX_LINES + 1
  runs = {f'run {n}.': log for n in range(count)}
  (section,) = experiments.make_curve_sections(runs)
  drawings = [chart.draw(is_inline=True) for chart in section.charts]
  assert len({chart.name for chart in section.charts}) == len(drawings) == 2
  shown = [[n for n in range(count) if f'run {n}.' in d] for d in drawings]
  assert shown == [[*range(count - 1)], [count - 1]]


def test_nothing_logged_nothing_drawn():
  assert experiments.make_curve_sections({'a': [{'step': 0, 'x': 1.0}]}) == []

"""Keeps the results of experiments and makes their tables.

Each experiment's folder has a file `results.jsonl`, one JSON object a line:
what was measured of one policy of one seed on one test set. Rows that differ
in the seed alone are summarised by their mean and their range.

An ablation has the name of the experiment that it changes and says in its
settings what was changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

from vhop_jax import errors, whole_file
from vhop_jax.evaluate import charts
from vhop_jax.evaluate import results as results_lib
from vhop_jax.evaluate.scores import Interval

FILE_NAME = 'results.jsonl'
COMMAND = (
  'python -m vhop_jax.main --config=configs/experiment.py:NAME --workdir=FOLDER'
)

# Stages in the order of training.
STAGES = {
  'untrained': 'untrained',
  'sft': 'SFT',
  'imitation': 'imitation',
  'reinforce': 'RL',
}

# What is drawn of a training run, with the charts' titles.
CURVES = {
  'reward': 'Reward',
  'rollout_success': 'Success of rollouts',
  'rollout_decisions': 'Decisions |ρ|',
  'rollout_backtracks': 'Backtracks',
  'rollout_stop_rate': 'Stop rate',
  'rollout_out_of_budget': 'Share out of budget',
  'success': 'Success on the dev world',
}


class ResultRow(TypedDict):
  """Is one line of results.jsonl.

  Attributes:
    experiment: its name, which says what was trained on.
    seed: of the whole run.
    stage: a key of `STAGES`.
    policy: in words, e.g. `Router` or `Single-shot`.
    decoding: e.g. `gates`, `beam` or `five steps`.
    test_set: e.g. `L4 3-hop`.
    queries: how many were asked.
    metrics: as `scores.compute_metrics` returns them.
    settings: name -> value of what the experiment varies.
    git: commit of the code.
    machine: what it ran on.
  """

  experiment: str
  seed: int
  stage: str
  policy: str
  decoding: str
  test_set: str
  queries: int
  metrics: dict[str, Interval]
  settings: dict[str, Any]
  git: NotRequired[str]
  machine: NotRequired[str]


_TYPES: dict[str, type] = {
  'experiment': str,
  'seed': int,
  'stage': str,
  'policy': str,
  'decoding': str,
  'test_set': str,
  'queries': int,
  'metrics': dict,
  'settings': dict,
}
KEY = ('experiment', 'stage', 'policy', 'decoding', 'test_set', 'settings')


@dataclasses.dataclass(frozen=True)
class Summary:
  """Is what several seeds of one measurement have in common.

  Attributes:
    experiment: as in the rows, like the five after it.
    stage: a key of `STAGES`.
    policy: in words.
    decoding: in words.
    test_set: its name.
    settings: what the experiment varies.
    seeds: of the rows.
    metrics: mean over seeds with the least and the greatest of them; of one
      seed its own mean with its 95 % interval.
  """

  experiment: str
  stage: str
  policy: str
  decoding: str
  test_set: str
  settings: dict[str, Any]
  seeds: tuple[int, ...]
  metrics: dict[str, Interval]


class Chart(NamedTuple):
  """Is a chart of a section.

  Attributes:
    name: unique in a report, usable as a file name.
    title: one line.
    draw: called with `is_inline`, gives an `<svg>` element.
  """

  name: str
  title: str
  draw: Callable[..., str]


@dataclasses.dataclass(frozen=True)
class Section:
  """Is a table with what is said about it, or some charts, or both.

  Attributes:
    title: one line.
    note: what the numbers are.
    columns: of the table, left to right: metrics, or heads of columns that
      are none. One that no row has is left out.
    rows: of the table, top to bottom.
    marks_best: whether the best row of each metric is bold, where the rows
      compete.
    charts: above the table.
  """

  title: str
  note: str
  columns: tuple[str, ...] = ()
  rows: tuple[results_lib.Row, ...] = ()
  marks_best: bool = False
  charts: tuple[Chart, ...] = ()

  def list_columns(self) -> list[str]:
    """Lists the columns that some row has."""
    return [
      c for c in self.columns if any(c in r['metrics'] for r in self.rows)
    ]


def append_rows(path: Path, rows: Iterable[ResultRow]) -> None:
  """Adds rows to a file; a row measured again takes the old one's place.

  The file is replaced as a whole, so a kill leaves the old or the new one.
  One process at a time may write to it.

  Args:
    path: made if missing, with its folder.
    rows: what was measured. The same experiment, seed, stage, policy,
      decoding, test set and settings make the same row.

  Raises:
    DataError: the file is there and has a broken line.
    ValueError: a row lacks something or has something of another kind.
  """
  kept = {}
  if path.exists():
    kept = {_get_key(row): row for row in read_rows([path])}
  for row in rows:
    fault = _find_fault(row)
    if fault:
      raise ValueError(f'{fault}: {row}')
    kept[_get_key(row)] = row
  whole_file.write_text(
    path,
    ''.join(json.dumps(row, allow_nan=False) + '\n' for row in kept.values()),
  )


def read_rows(paths: Iterable[Path]) -> list[ResultRow]:
  """Reads the rows of several files.

  Args:
    paths: files; one that is named twice is read once.

  Returns:
    All rows in order.

  Raises:
    DataError: a file is missing or has a broken line, or two files have
      different results of the same measurement.
  """
  found: dict[str, tuple[Path, ResultRow]] = {}
  for path in dict.fromkeys(path.resolve() for path in paths):
    if not path.exists():
      raise errors.DataError(f'{path} is missing: {COMMAND} writes it')
    lines = path.read_text(encoding='utf-8').splitlines()
    for number, line in enumerate(lines, start=1):
      row = _parse_row(line, f'{path}, line {number}')
      key = _get_key(row)
      if key in found and found[key][1] != row and found[key][0] != path:
        raise errors.DataError(
          f'{found[key][0]} and {path} differ in {_name_row(row)}: leave one of'
          ' the folders out'
        )
      found[key] = path, row
  return [row for _, row in found.values()]


def _parse_row(line: str, where: str) -> ResultRow:
  try:
    row = json.loads(line)
    fault = _find_fault(row)
  except json.JSONDecodeError as error:
    fault = f'no JSON: {error}'
  if fault:
    raise errors.DataError(
      f'{where} is no row of results ({fault}): delete the line and run its'
      f' experiment again, {COMMAND}'
    )
  row['metrics'] = {name: Interval(*v) for name, v in row['metrics'].items()}
  return cast(ResultRow, row)


def _find_fault(row: Any) -> str:
  """Says what is wrong with a row; nothing if it is right."""
  if not isinstance(row, dict):
    return 'no object'
  for name, kind in _TYPES.items():
    if not isinstance(row.get(name), kind):
      return f'{name} is {row.get(name)!r}'
  if row['stage'] not in STAGES:
    return f'stage is {row["stage"]!r}, not one of {", ".join(STAGES)}'
  for name, value in row['metrics'].items():
    if (
      not isinstance(value, list | tuple)
      or len(value) != 3
      or not all(isinstance(x, int | float) and math.isfinite(x) for x in value)
    ):
      return f'{name} is {value!r}, not mean, low and high'
  return ''


def _get_key(row: ResultRow) -> str:
  values = cast(Mapping[str, Any], row)
  return json.dumps([row['seed'], *(values[k] for k in KEY)], sort_keys=True)


def _name_row(row: ResultRow) -> str:
  return (
    f'{row["experiment"]}, seed {row["seed"]}, {row["policy"]} after'
    f' {row["stage"]}, {row["decoding"]}, on {row["test_set"]}'
  )


def summarise(rows: Sequence[ResultRow]) -> list[Summary]:
  """Summarises rows that differ in the seed alone, see `Summary`.

  Returns:
    In the order of the first row of each.
  """
  groups: dict[str, list[ResultRow]] = {}
  for row in rows:
    values = cast(Mapping[str, Any], row)
    key = json.dumps([values[name] for name in KEY], sort_keys=True)
    groups.setdefault(key, []).append(row)
  summaries = []
  for group in groups.values():
    names = dict.fromkeys(name for row in group for name in row['metrics'])
    summaries.append(
      Summary(
        experiment=group[0]['experiment'],
        stage=group[0]['stage'],
        policy=group[0]['policy'],
        decoding=group[0]['decoding'],
        test_set=group[0]['test_set'],
        settings=group[0]['settings'],
        seeds=tuple(sorted(row['seed'] for row in group)),
        metrics={
          name: _pool(
            [row['metrics'][name] for row in group if name in row['metrics']]
          )
          for name in names
        },
      )
    )
  return summaries


def _pool(values: Sequence[Interval]) -> Interval:
  if len(values) == 1:
    return values[0]
  means = [value.mean for value in values]
  return Interval(math.fsum(means) / len(means), min(means), max(means))


def make_curve_sections(
  runs: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Section]:
  """Draws what was logged while training, several runs in one chart.

  Args:
    runs: name -> records of a metrics file. Those that log a reward are of
      reinforcement learning; of the others those are drawn that log something
      of `CURVES`.

  Returns:
    At most one section for each of the two. A chart has at most
    `charts.MAX_LINES` runs; further ones have charts of their own.
  """
  groups: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {
    'Reinforcement learning, over updates': {},
    'Training before it, on the dev world': {},
  }
  reinforced, others = groups.values()
  for name, records in runs.items():
    logged = {key for record in records for key in record}
    (reinforced if 'reward' in logged else others)[name] = records
  sections = []
  for number, (title, group) in enumerate(groups.items()):
    drawn = []
    for key, label in CURVES.items():
      lines = [(n, r) for n, r in group.items() if any(key in x for x in r)]
      for start in range(0, len(lines), charts.MAX_LINES):
        few = lines[start : start + charts.MAX_LINES]
        draw = functools.partial(charts.draw_curves, label, few, key)
        if draw(is_inline=True):
          drawn.append(Chart(f'curve_{number}_{key}_{start}', label, draw))
    if drawn:
      note = 'Faint: as logged; strong: averaged over a tenth of the updates.'
      sections.append(Section(title, note, charts=tuple(drawn)))
  return sections

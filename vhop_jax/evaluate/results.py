"""Says what the results of an evaluation are made of.

Plain dicts, so that `metrics.json` is them and nothing else.
"""

from typing import Any, NotRequired, TypedDict

from vhop_jax.evaluate.scores import (
  COUNT_NUMBERS,
  COUNTS,
  METRICS,
  Interval,
)

SCHEMA = 'vhop_jax.evaluate/1'
COLUMNS = METRICS | COUNTS  # The heads of the tables.
COMPARISONS = 'The same query under several policies'  # Head of the pictures.

# Term and explanation, at the end of each report.
GLOSSARY = (
  (
    'Success',
    'Share of queries for which the router stopped by itself on a valid'
    ' answer.',
  ),
  (
    'Answer accuracy',
    'Share of queries whose answer is valid. A retriever that takes a fixed'
    " number of steps answers with the image at the prompt's hop count, one"
    ' that stops by itself with its last image, single-shot with its first.',
  ),
  ('Set success', 'Share of queries with a valid answer in the stack.'),
  (
    'Path recall',
    'Share of the images of a valid chain that are in the stack, in any'
    ' order; with several valid chains the best one counts.',
  ),
  (
    'Exact chain',
    'Share of queries whose stack begins with a whole valid chain, in order.',
  ),
  (
    'R@k',
    'Share of queries whose gold image is among the k best candidates, when'
    ' the gold images before it are given.',
  ),
  (
    '95 % interval',
    'Bootstrap over families (2,000 draws, fixed seed), because the two'
    ' queries of a family share scenes. Where all families agree (0 or'
    " 100 %): Wilson's interval with the number of families.",
  ),
)


class Row(TypedDict):
  """Is one retriever's line of a results table.

  `is_reference` marks a row that is no competitor, e.g. a search that is told
  what the others must find out; it is never bold.
  """

  name: str
  description: str
  metrics: dict[str, Interval]
  is_reference: NotRequired[bool]


class Table(TypedDict):
  """Is a further results table, e.g. of the dev world."""

  title: str
  rows: list[Row]


class TeacherForced(TypedDict):
  """Holds recall@k of each hop, the gold prefix being given."""

  name: str
  hops: list[dict[int, Interval]]


class Failures(TypedDict):
  """Is what `failures.compute_breakdown` returns, with the row's name."""

  name: str
  criterion: str
  queries: int
  failed: int
  recovered: int
  hops: int
  counts: dict[str, list[int]]


class Target(TypedDict):
  """Is a figure that was aimed at; reached if the mean is at least the goal."""

  name: str
  goal: float
  value: Interval


class Curve(TypedDict):
  """Holds the metric records of one training run and which to draw."""

  name: str
  records: list[dict[str, Any]]
  keys: list[str]


class Results(TypedDict):
  """Is everything a report says, but the pictures.

  Attributes:
    title: one line.
    summary: a sentence or two: what was measured, on what, with what result.
    rows: the results table.
    main_row: name of the row that the report is about.
    more_tables: further results tables.
    teacher_forced: one entry a model.
    failures: of the main row.
    targets: figures aimed at; may be empty.
    curves: may be empty.
    run: command, seed, machine, times ...: whatever is needed to repeat it.
  """

  title: str
  summary: str
  rows: list[Row]
  main_row: str
  more_tables: NotRequired[list[Table]]
  teacher_forced: list[TeacherForced]
  failures: Failures | None
  targets: NotRequired[list[Target]]
  curves: NotRequired[list[Curve]]
  run: dict[str, Any]


def get_scale(metric: str) -> int:
  """Gives what a metric is multiplied by to be shown: shares are percent."""
  return 1 if metric in COUNT_NUMBERS else 100


def find_best(rows: list[Row]) -> dict[str, float]:
  """Finds the best mean of each metric among the rows that compete."""
  best: dict[str, float] = {}
  for row in rows:
    if not row.get('is_reference', False):
      for metric, value in row['metrics'].items():
        best[metric] = max(value.mean, best.get(metric, value.mean))
  return best


def list_metrics(rows: list[Row]) -> list[str]:
  """Lists the metrics of a table, those of `METRICS` first, in its order."""
  found = dict.fromkeys(m for row in rows for m in row['metrics'])
  known = [metric for metric in METRICS if metric in found]
  return known + [metric for metric in found if metric not in METRICS]

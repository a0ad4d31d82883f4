"""Sets our results beside the numbers that [VHOP] published.

Those were measured on other data and with another backbone, so they stand
beside our numbers and are no goal that ours could reach or miss: whatever
shows them says `LABEL`. [VHOP] is cited as in the docstrings of the package;
the number of a table or figure is given where it is known.
"""

from collections.abc import Mapping, Sequence
import functools
import json
from typing import Any, NamedTuple

from vhop_jax.evaluate import charts
from vhop_jax.evaluate.experiments import (
  KEY,
  STAGES,
  Chart,
  Section,
  Summary,
)
from vhop_jax.evaluate.results import Row
from vhop_jax.evaluate.scores import METRICS, Interval

LABEL = 'paper: other data, another backbone'
SOURCE = '[VHOP]'
LEVELS = ('L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7')

HEADLINE_EXPERIMENT = 'precise_3hop'
HEADLINE_TEST_SET = 'L4 3-hop'
GATES, GATES_AT_HOPS = 'gates', 'gates, stop at hops'
# Settings that make a run an ablation, with the value of the main runs.
ABLATIONS = {'warmup': True, 'decision_penalty': 0.02}

_RANGES = (
  'Mean over seeds, with the least and the greatest seed beside it, or with'
  ' the 95 % interval where there is one seed.'
)
# What a row's name may have to say, besides the test set and the settings.
_PARTS = ('experiment', 'policy', 'stage', 'decoding')


class PaperTable(NamedTuple):
  """Is one published table.

  Attributes:
    title: what was measured.
    source: where it was published.
    columns: their heads, with the unit where it is not percent.
    rows: name -> one number a column; None where there is none.
  """

  title: str
  source: str
  columns: tuple[str, ...]
  rows: dict[str, tuple[float | None, ...]]


# Three hops, L4, without an agent.
STANDALONE = {'single-step': 3.7, 'router': 76.3}

# Test set -> training set, named as our experiments are.
BY_TRAINING_SET = {
  'L4 3-hop': {'precise_3hop': 76.3},
  '4 hops': {
    'precise_3hop': 1.0,
    'precise_mixed': 1.0,
    'vague_3hop': 8.2,
    'vague_mixed': 1.0,
  },
}

# Test set -> decision penalty; that of L4 after 200 iterations.
BY_DECISION_PENALTY = {
  'L4 3-hop': {0.0: 48.0, 0.02: 47.7},
  'vague L1': {0.0: 32.3, 0.02: 37.4},
  'vague L2': {0.0: 34.7, 0.02: 49.0},
  'vague L3': {0.0: 27.1, 0.02: 31.2},
}

TABLES = (
  PaperTable(
    'L4 3-hop, standalone and with an agent',
    SOURCE,
    ('Answer',),
    {
      'Single-step': (3.7,),
      'Router': (76.3,),
      'Flash with single-step retrieval': (32.7,),
      'Flash with the router': (85.4,),
    },
  ),
  PaperTable(
    'Three-hop answer accuracy of agents with tools',
    SOURCE,
    (*LEVELS, 'Mean'),
    {
      'GE2 + Flash': (60.6, 58.2, 56.7, 19.3, 15.0, 6.4, 12.6, 32.7),
      'GE2 + Pro': (93.9, 89.8, 90.7, 37.0, 40.0, 11.7, 11.6, 53.5),
      'Qwen3 + Flash': (73.7, 69.4, 77.3, 32.7, 28.0, 9.6, 14.7, 43.6),
      'Qwen3 + Pro': (78.8, 77.6, 90.7, 36.3, 34.0, 9.6, 18.9, 49.4),
      'Router (3-hop) + Flash': (
        *(85.9, 62.2, 58.8, 59.7, 57.0, 12.8, 6.3),
        49.0,
      ),
      'Router (3-hop) + Pro': (
        *(82.8, 64.3, 72.2, 64.7, 61.0, 16.0, 6.3),
        52.5,
      ),
    },
  ),
  PaperTable(
    'Untrained retrieval on L6 and L7',
    SOURCE,
    ('L6', 'L7'),
    {
      'Single-shot, GE2': (2.1, 3.2),
      'Single-shot, Qwen3': (3.2, 4.2),
      'Greedy, GE2': (4.3, 2.1),
      'Greedy, Qwen3': (4.3, 3.2),
      'History, GE2': (2.1, 2.1),
      'History, Qwen3': (4.3, 3.2),
    },
  ),
  PaperTable(
    'Decision penalty, L4 test, by iteration',
    '[VHOP, Table 14 and Figure 13]',
    ('50', '100', '200'),
    {'penalty 0': (41.0, 46.0, 48.0), 'penalty 0.02': (45.7, 44.7, 47.7)},
  ),
  PaperTable(
    'Decision penalty, vague prompts',
    '[VHOP, Table 14 and Figure 13]',
    ('L1', 'L2', 'L3'),
    {'penalty 0': (32.3, 34.7, 27.1), 'penalty 0.02': (37.4, 49.0, 31.2)},
  ),
  PaperTable(
    'Four hops, by training set',
    SOURCE,
    ('Four hops',),
    {
      'Precise 3-hop': (1.0,),
      'Precise mixed-hop': (1.0,),
      'Vague 3-hop': (8.2,),
      'Vague mixed-hop': (1.0,),
    },
  ),
  PaperTable(
    'Realistic images, four routers',
    SOURCE,
    ('Answer accuracy', 'Set success'),
    {
      'First': (12.0, 20.0),
      'Second': (4.0, 20.0),
      'Third': (4.0, 4.0),
      'Fourth': (14.0, 14.0),
      'With Flash, one router': (20.0, 36.0),
      'With Flash, another router': (20.0, 34.0),
    },
  ),
  PaperTable(
    'Images a call, GE2 + Flash',
    SOURCE,
    ('L4', 'Calls (number)', 'Images (number)', 'Images sent (number)'),
    {
      'k = 1': (19.3, 14.5, 15, 120),
      'k = 3': (46.7, 11.8, 35, 249),
      'k = 5': (61.0, 9.6, 48, 300),
      'k = 10': (78.0, 6.9, 69, 344),
      'k = 50': (81.3, 5.4, 270, 1084),
    },
  ),
)


def make_sections(
  summaries: Sequence[Summary],
) -> list[Section]:
  """Makes our tables; one that has no rows is left out.

  Args:
    summaries: of all experiments.

  Returns:
    The headline, test sets by training sets, state-encoder warm-up, decision
    penalty and stopping rules, with the paper's numbers where it has them.
  """
  sections = (
    _make_headline(summaries),
    _make_transfer(summaries),
    _make_warmup(summaries),
    _make_penalty(summaries),
    _make_stopping(summaries),
  )
  return [section for section in sections if section.rows]


def make_paper_sections() -> list[Section]:
  """Makes the tables of the paper, each labelled as such."""
  return [
    Section(
      f'{table.title} ({LABEL})',
      f'{table.source}, in percent where the column says nothing else.',
      table.columns,
      tuple(
        Row(
          name=name,
          description='',
          metrics={
            column: _make_point(value)
            for column, value in zip(table.columns, values, strict=True)
            if value is not None
          },
        )
        for name, values in table.rows.items()
      ),
    )
    for table in TABLES
  ]


def _make_headline(
  summaries: Sequence[Summary],
) -> Section:
  """Makes the table of all policies on the main test set.

  The untrained policies are the same in every experiment and stand there
  once.
  """
  candidates = [
    s for s in summaries if s.test_set == HEADLINE_TEST_SET and _is_main_run(s)
  ]
  candidates.sort(key=lambda s: s.experiment == HEADLINE_EXPERIMENT)
  untrained = {
    (s.policy, s.decoding): s for s in candidates if s.stage == 'untrained'
  }
  trained = [s for s in candidates if s.stage != 'untrained']
  mains = [s for s in trained if s.experiment == HEADLINE_EXPERIMENT]
  trained = mains or trained
  trained.sort(key=lambda s: list(STAGES).index(s.stage))
  rows = []
  bars = []
  for summary in (*untrained.values(), *trained):
    published = None
    if summary.stage == 'untrained' and summary.policy == 'Single-shot':
      published = STANDALONE['single-step']
    elif (
      summary.experiment == HEADLINE_EXPERIMENT
      and summary.stage == 'reinforce'
      and summary.decoding == GATES
    ):
      published = STANDALONE['router']
    words = [
      summary.policy,
      STAGES[summary.stage],
      summary.decoding,
    ]
    if summary.stage != 'untrained':
      words += _name_varied(summary, trained, ('experiment',))
    name = ', '.join(words)
    rows.append(_make_row(name, summary, published))
    if 'answer_accuracy' in summary.metrics:
      bars.append((name, summary.metrics['answer_accuracy']))
  drawn: tuple[Chart, ...] = ()
  if bars:
    title = f'{METRICS["answer_accuracy"]} on {HEADLINE_TEST_SET}, percent'
    best = max(bars, key=lambda bar: bar[1].mean)[0]
    draw = functools.partial(charts.draw_intervals, title, bars, highlight=best)
    drawn = (Chart('headline', title, draw),)
  return Section(
    f'Every policy on {HEADLINE_TEST_SET}',
    f'{_RANGES} In the last column: standalone retrieval [VHOP].',
    (
      'success',
      'answer_accuracy',
      'set_success',
      'decisions',
      'backtracks',
      LABEL,
    ),
    tuple(rows),
    marks_best=True,
    charts=drawn,
  )


def _make_transfer(
  summaries: Sequence[Summary],
) -> Section:
  """Makes the table of test sets by training sets.

  Each training set is represented by its last stage, decoded by its gates.
  """
  trained = [s for s in summaries if s.stage != 'untrained' and _is_main_run(s)]
  trained = [s for s in trained if 'success' in s.metrics]
  columns: dict[str, list[Summary]] = {}
  for summary in trained:
    values = [summary.experiment, summary.policy, summary.settings]
    key = json.dumps(values, sort_keys=True)
    columns.setdefault(key, []).append(summary)
  columns = _keep_last_stages(columns)
  shown = [s for column in columns.values() for s in column]
  table: dict[str, dict[str, Interval]] = {}
  heads: list[str] = []
  notes = []
  for column in columns.values():
    name = column[0].experiment
    label = ', '.join([name, *_name_varied(column[0], shown, ('policy',))])
    notes.append(
      f'{label} after {STAGES[column[0].stage]}, {column[0].decoding},'
      f' {_count_seeds(column[0])}'
    )
    published_label = f'{label} ({LABEL})'
    heads += [label, published_label]
    for summary in column:
      cells = table.setdefault(summary.test_set, {})
      cells[label] = summary.metrics['success']
      published = BY_TRAINING_SET.get(summary.test_set, {})
      if name in published:
        cells[published_label] = _make_point(published[name])
  return Section(
    'Success on each test set, by training set',
    f'{_RANGES} Measured were {"; ".join(notes)}. The paper: [VHOP].',
    tuple(heads),
    tuple(
      Row(name=test_set, description='', metrics=cells)
      for test_set, cells in table.items()
    ),
  )


def _keep_last_stages(
  columns: Mapping[str, Sequence[Summary]],
) -> dict[str, list[Summary]]:
  """Keeps one stage and one decoding of each experiment.

  An experiment that went on with other settings (its decision penalty is a
  setting of its last stage alone) is one experiment: the column whose
  settings another one repeats and adds to is dropped.
  """
  order = list(STAGES)
  kept = {}
  for key, column in columns.items():
    first = column[0]
    if any(
      (other[0].experiment, other[0].policy) == (first.experiment, first.policy)
      and other[0].settings != first.settings
      and first.settings.items() <= other[0].settings.items()
      for other in columns.values()
    ):
      continue
    last = max(order.index(s.stage) for s in column)
    of_stage = [s for s in column if order.index(s.stage) == last]
    decodings = [s.decoding for s in of_stage]
    decoding = GATES if GATES in decodings else decodings[0]
    kept[key] = [s for s in of_stage if s.decoding == decoding]
  return kept


def _make_warmup(
  summaries: Sequence[Summary],
) -> Section:
  shown = _choose_compared(summaries, 'warmup')
  return Section(
    'State-encoder warm-up before SFT, on and off',
    f'{_RANGES} The paper shows curves of it [VHOP, Figure 10]; its numbers'
    ' are not at hand.',
    ('success', 'answer_accuracy', 'set_success'),
    tuple(_make_compared_row(s, shown) for s in shown),
  )


def _make_penalty(
  summaries: Sequence[Summary],
) -> Section:
  shown = _choose_compared(summaries, 'decision_penalty')
  rows = []
  for summary in shown:
    published = None
    if summary.stage == 'reinforce' and summary.decoding == GATES:
      by_penalty = BY_DECISION_PENALTY.get(summary.test_set, {})
      published = by_penalty.get(summary.settings['decision_penalty'])
    rows.append(_make_compared_row(summary, shown, published))
  return Section(
    'Decision penalty',
    f'{_RANGES} In the last column: the test after 200 iterations on L4'
    ' [VHOP, Table 14 and Figure 13].',
    ('success', 'decisions', 'backtracks', LABEL),
    tuple(rows),
  )


def _make_stopping(
  summaries: Sequence[Summary],
) -> Section:
  rules = [s for s in summaries if s.decoding in (GATES, GATES_AT_HOPS)]
  shown = _choose_compared([s for s in rules if _is_main_run(s)], 'decoding')
  return Section(
    'Two stopping rules',
    f'{_RANGES} A router stops where its gate says so, or at the number of'
    ' hops of the prompt and nowhere else. The paper compares them too [VHOP,'
    ' Table 15]; its numbers are not at hand.',
    ('success', 'answer_accuracy', 'set_success', 'decisions', 'stop_rate'),
    tuple(_make_compared_row(s, shown) for s in shown),
  )


def _is_main_run(summary: Summary) -> bool:
  """Tells whether no setting makes it an ablation."""
  return all(
    summary.settings.get(name, value) == value
    for name, value in ABLATIONS.items()
  )


def _choose_compared(summaries: Sequence[Summary], name: str) -> list[Summary]:
  """Chooses what was measured at several values of one thing, all else equal.

  Args:
    summaries: to choose from.
    name: `decoding` or a setting.

  Returns:
    Those to be compared stand together, in the order of their values.
  """

  def get(summary: Summary) -> Any:
    if name == 'decoding':
      return summary.decoding
    return summary.settings.get(name)

  groups: dict[str, list[Summary]] = {}
  for summary in summaries:
    if get(summary) is None:
      continue
    rest = {key: getattr(summary, key) for key in KEY if key != name}
    rest['settings'] = {k: v for k, v in summary.settings.items() if k != name}
    key = json.dumps(rest, sort_keys=True)
    groups.setdefault(key, []).append(summary)
  return [
    summary
    for group in groups.values()
    if len(group) > 1
    for summary in sorted(group, key=get)
  ]


def _name_varied(
  summary: Summary,
  among: Sequence[Summary],
  parts: Sequence[str],
) -> list[str]:
  """Words those of the parts and of the settings that are not all the same."""
  words = []
  for part in parts:
    if len({getattr(s, part) for s in among}) > 1:
      word = getattr(summary, part)
      words.append(STAGES[word] if part == 'stage' else word)
  for name, value in summary.settings.items():
    values = [s.settings[name] for s in among if name in s.settings]
    if any(other != value for other in values):
      words.append(_word_setting(name.replace('_', ' '), value))
  return words


def _word_setting(name: str, value: Any) -> str:
  if isinstance(value, bool):
    return f'{"with" if value else "without"} {name}'
  return f'{name} {value:g}' if isinstance(value, float) else f'{name} {value}'


def _make_compared_row(
  summary: Summary,
  among: Sequence[Summary],
  published: float | None = None,
) -> Row:
  words = ', '.join(_name_varied(summary, among, _PARTS))
  name = f'{summary.test_set}: {words}'
  return _make_row(name, summary, published)


def _make_row(name: str, summary: Summary, published: float | None) -> Row:
  """Makes a row, with the paper's number in percent if there is one."""
  metrics = dict(summary.metrics)
  if published is not None:
    metrics[LABEL] = _make_point(published)
  return {
    'name': f'{name} ({_count_seeds(summary)})',
    'description': '',
    'metrics': metrics,
  }


def _count_seeds(summary: Summary) -> str:
  count = len(summary.seeds)
  return '1 seed' if count == 1 else f'{count} seeds'


def _make_point(percent: float) -> Interval:
  """Makes an interval of a number that was published without one."""
  return Interval(*[percent / 100] * 3)

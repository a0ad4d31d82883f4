"""Sets our results beside the numbers that [VHOP] published.

See `published` for those.
"""

from collections.abc import Mapping, Sequence
import functools
import json
from typing import Any

from vhop_jax.evaluate import charts
from vhop_jax.evaluate import published as published_lib
from vhop_jax.evaluate.experiments import (
  KEY,
  STAGES,
  Chart,
  Section,
  Summary,
)
from vhop_jax.evaluate.results import Row
from vhop_jax.evaluate.scores import METRICS, Interval

HEADLINE_EXPERIMENT = 'precise_3hop'
HEADLINE_TEST_SET = 'L4 3-hop'
GATES, GATES_AT_HOPS = 'gates', 'gates, stop at hops'
# Settings that make a run an ablation, with the value of the main runs.
ABLATIONS = {
  'warmup': True,
  'gate_input': 'evidence',
  'follows_expert': True,
  'view': 'stack',
  'rejection': 'selection',
  'composed': True,
  'decision_penalty': 0.01,
}
# Those that the paper has no table or figure of.
_OWN_CHOICES = (
  'gate_input',
  'follows_expert',
  'view',
  'rejection',
  'composed',
)

_RANGES = (
  'Mean over seeds, with the least and the greatest seed beside it, or with'
  ' the 95 % interval where there is one seed.'
)
# What a row's name may have to say, besides the test set and the settings.
_PARTS = ('experiment', 'policy', 'stage', 'decoding')


def make_sections(
  summaries: Sequence[Summary],
) -> list[Section]:
  """Makes our tables; one that has no rows is left out.

  Args:
    summaries: of all experiments.

  Returns:
    The headline, test sets by training sets, state-encoder warm-up, decision
    penalty, stopping rules and choices of our own, with the paper's numbers
    where it has them.
  """
  sections = (
    _make_headline(summaries),
    _make_transfer(summaries),
    _make_warmup(summaries),
    _make_penalty(summaries),
    _make_stopping(summaries),
    _make_choices(summaries),
  )
  return [section for section in sections if section.rows]


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
      published = published_lib.STANDALONE['single-step']
    elif (
      summary.experiment == HEADLINE_EXPERIMENT
      and summary.stage == 'reinforce'
      and summary.decoding == GATES
    ):
      published = published_lib.STANDALONE['router']
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
      published_lib.LABEL,
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
    published_label = f'{label} ({published_lib.LABEL})'
    heads += [label, published_label]
    for summary in column:
      cells = table.setdefault(summary.test_set, {})
      cells[label] = summary.metrics['success']
      published = published_lib.BY_TRAINING_SET.get(summary.test_set, {})
      if name in published:
        cells[published_label] = published_lib.make_point(published[name])
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
      by_penalty = published_lib.BY_DECISION_PENALTY.get(summary.test_set, {})
      published = by_penalty.get(summary.settings['decision_penalty'])
    rows.append(_make_compared_row(summary, shown, published))
  return Section(
    'Decision penalty',
    f'{_RANGES} In the last column: the test after 200 iterations on L4'
    ' [VHOP, Table 14 and Figure 13].',
    ('success', 'decisions', 'backtracks', published_lib.LABEL),
    tuple(rows),
  )


def _make_stopping(
  summaries: Sequence[Summary],
) -> Section:
  rules = [
    s
    for s in summaries
    if s.decoding in (GATES, GATES_AT_HOPS)
    # A vague instruction is another task: no router is stopped on the other.
    and s.experiment.startswith('vague') == s.test_set.startswith('vague')
  ]
  order = list(STAGES)
  last = {
    s.experiment: max(
      (r.stage for r in rules if r.experiment == s.experiment), key=order.index
    )
    for s in rules
  }
  rules = [s for s in rules if s.stage == last[s.experiment]]
  shown = _choose_compared([s for s in rules if _is_main_run(s)], 'decoding')
  return Section(
    'Two stopping rules',
    f'{_RANGES} A router stops where its gate says so, or at the number of'
    ' hops of the prompt and nowhere else; shown is the last stage of each'
    ' training, on its own kind of prompts. The paper compares them too [VHOP,'
    ' Table 15]; its numbers are not at hand.',
    ('success', 'answer_accuracy', 'set_success', 'decisions', 'stop_rate'),
    tuple(_make_compared_row(s, shown) for s in shown),
  )


def _make_choices(
  summaries: Sequence[Summary],
) -> Section:
  groups = [_choose_compared(summaries, name) for name in _OWN_CHOICES]
  return Section(
    'Choices of our own',
    f'{_RANGES} Each is a setting: what the backtrack gate reads, whether'
    ' rollouts in imitation follow the expert now and then, what a state sees,'
    ' how long a rejection lasts, and whether prompts are put together from'
    ' parts.',
    ('success', 'decisions', 'backtracks'),
    tuple(_make_compared_row(s, shown) for shown in groups for s in shown),
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
    metrics[published_lib.LABEL] = published_lib.make_point(published)
  return {
    'name': f'{name} ({_count_seeds(summary)})',
    'description': '',
    'metrics': metrics,
  }


def _count_seeds(summary: Summary) -> str:
  count = len(summary.seeds)
  return '1 seed' if count == 1 else f'{count} seeds'

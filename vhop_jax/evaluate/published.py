"""Holds the numbers that [VHOP] published, each labelled as such.

Those were measured on other data and with another backbone, so they stand
beside our numbers and are no goal that ours could reach or miss: whatever
shows them says `LABEL`. [VHOP] is cited as in the docstrings of the package;
the number of a table or figure is given where it is known.
"""

from collections.abc import Mapping
from typing import NamedTuple

from vhop_jax.evaluate.experiments import Section
from vhop_jax.evaluate.results import Row
from vhop_jax.evaluate.scores import Interval

LABEL = 'paper: other data, another backbone'
SOURCE = '[VHOP]'
LEVELS = ('L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7')


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
# Training set, named as our experiments are.
_FOUR_HOPS = {
  'precise_3hop': 1.0,
  'precise_mixed': 1.0,
  'vague_3hop': 8.2,
  'vague_mixed': 1.0,
}
# Decision penalty -> test on L4 after so many iterations; on vague L1 to L3.
_ITERATIONS = (50, 100, 200)
_PENALTY_L4 = {0.0: (41.0, 46.0, 48.0), 0.02: (45.7, 44.7, 47.7)}
_PENALTY_VAGUE = {0.0: (32.3, 34.7, 27.1), 0.02: (37.4, 49.0, 31.2)}

# Test set -> training set.
BY_TRAINING_SET = {
  'L4 3-hop': {'precise_3hop': STANDALONE['router']},
  '4 hops': _FOUR_HOPS,
}
# Test set -> decision penalty; that of L4 after the last iteration.
BY_DECISION_PENALTY = {
  'L4 3-hop': {x: values[-1] for x, values in _PENALTY_L4.items()},
  **{
    f'vague {level}': {x: v[place] for x, v in _PENALTY_VAGUE.items()}
    for place, level in enumerate(LEVELS[:3])
  },
}


def _name_penalties(
  table: Mapping[float, tuple[float, ...]],
) -> dict[str, tuple[float | None, ...]]:
  return {f'penalty {x:g}': values for x, values in table.items()}


TABLES = (
  PaperTable(
    'L4 3-hop, standalone and with an agent',
    SOURCE,
    ('Answer',),
    {
      'Single-step': (STANDALONE['single-step'],),
      'Router': (STANDALONE['router'],),
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
    tuple(map(str, _ITERATIONS)),
    _name_penalties(_PENALTY_L4),
  ),
  PaperTable(
    'Decision penalty, vague prompts',
    '[VHOP, Table 14 and Figure 13]',
    LEVELS[:3],
    _name_penalties(_PENALTY_VAGUE),
  ),
  PaperTable(
    'Four hops, by training set',
    SOURCE,
    ('Four hops',),
    {name: (value,) for name, value in _FOUR_HOPS.items()},
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


def make_sections() -> list[Section]:
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
            column: make_point(value)
            for column, value in zip(table.columns, values, strict=True)
            if value is not None
          },
        )
        for name, values in table.rows.items()
      ),
    )
    for table in TABLES
  ]


def make_point(percent: float) -> Interval:
  """Makes an interval of a number that was published without one."""
  return Interval(*[percent / 100] * 3)

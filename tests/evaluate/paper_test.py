import pytest

from vhop_jax.evaluate import paper, published
from vhop_jax.evaluate.experiments import Summary
from vhop_jax.evaluate.scores import Interval


def _summary(success=0.5, **changes):
  values = {
    'experiment': 'precise_3hop',
    'stage': 'reinforce',
    'policy': 'Router',
    'decoding': 'gates',
    'test_set': 'L4 3-hop',
    'settings': {},
    'seeds': (0, 1, 2),
    'metrics': {
      'success': Interval(success, 0.0, 1.0),
      'answer_accuracy': Interval(success, 0.0, 1.0),
      'decisions': Interval(5.5, 5.0, 6.0),
    },
  }
  return Summary(**{**values, **changes})


def _single_shot(**changes):
  metrics = {'answer_accuracy': Interval(0.02, 0.01, 0.03)}
  return _summary(
    stage='untrained',
    policy='Single-shot',
    decoding='single',
    metrics=metrics,
    **changes,
  )


def _make(*summaries):
  return {s.title: s for s in paper.make_sections(summaries)}


def _names(section):
  return [row['name'] for row in section.rows]


def _published(row):
  value = row['metrics'].get(published.LABEL)
  return value and round(100 * value.mean, 1)


HEADLINE = 'Every policy on L4 3-hop'
TRANSFER = 'Success on each test set, by training set'
WARMUP = 'State-encoder warm-up before SFT, on and off'
PENALTY = 'Decision penalty'
STOPPING = 'Two stopping rules'


def test_headline_goes_from_untrained_to_reinforced():
  section = _make(
    _summary(),
    _summary(stage='imitation'),
    _single_shot(),
    _single_shot(experiment='vague_3hop'),
    _summary(experiment='vague_3hop'),
    _summary(test_set='L1'),
    _summary(settings={'warmup': False}),
  )[HEADLINE]
  assert _names(section) == [
    'Single-shot, untrained, single (3 seeds)',
    'Router, imitation, gates (3 seeds)',
    'Router, RL, gates (3 seeds)',
  ]
  assert [_published(row) for row in section.rows] == [3.7, None, 76.3]
  assert section.list_columns() == [
    'success', 'answer_accuracy', 'decisions', published.LABEL
  ]  # fmt: skip
  assert section.marks_best
  drawing = section.charts[0].draw(is_inline=True)
  assert 'Single-shot, untrained,' in drawing


def test_what_varies_is_named_in_the_headline():
  sft = {'stage': 'sft', 'decoding': 'five steps'}
  section = _make(
    _summary(**sft, settings={'demonstrations': False, 'warmup': True}),
    _summary(**sft, settings={'demonstrations': True, 'warmup': True}),
  )[HEADLINE]
  assert _names(section) == [
    'Router, SFT, five steps, without demonstrations (3 seeds)',
    'Router, SFT, five steps, with demonstrations (3 seeds)',
  ]


def test_other_experiments_stand_in_for_a_missing_main_one():
  section = _make(
    _summary(experiment='vague_3hop'),
    _summary(experiment='vague_mixed', seeds=(4,)),
  )[HEADLINE]
  assert _names(section) == [
    'Router, RL, gates, vague_3hop (3 seeds)',
    'Router, RL, gates, vague_mixed (1 seed)',
  ]
  # The paper's figure belongs to precise three-hop training.
  assert not any(map(_published, section.rows))


def test_each_training_set_is_a_column_beside_the_papers():
  section = _make(
    _summary(0.5, test_set='4 hops'),
    _summary(0.1, test_set='4 hops', stage='imitation'),
    _summary(0.2, test_set='4 hops', decoding='beam'),
    _summary(0.3, test_set='4 hops', settings={'decision_penalty': 0.0}),
    _summary(0.75, experiment='vague_3hop', test_set='4 hops'),
    _summary(0.25, experiment='vague_3hop', test_set='L1'),
  )[TRANSFER]
  assert _names(section) == ['4 hops', 'L1']
  columns = section.list_columns()
  assert columns == [
    'precise_3hop',
    f'precise_3hop ({published.LABEL})',
    'vague_3hop',
    f'vague_3hop ({published.LABEL})',
  ]
  first, second = [
    {c: round(100 * v.mean, 1) for c, v in row['metrics'].items()}
    for row in section.rows
  ]
  assert first == dict(zip(columns, (50, 1.0, 75, 8.2), strict=True))
  assert second == {'vague_3hop': 25}
  assert 'precise_3hop after RL, gates, 3 seeds' in section.note


def test_settings_added_by_a_later_stage_make_no_other_column():
  section = _make(
    _summary(0.25, stage='imitation', settings={'warmup': True}),
    _summary(0.5, settings={'warmup': True, 'decision_penalty': 0.01}),
  )[TRANSFER]
  assert section.list_columns()[0] == 'precise_3hop'
  assert section.rows[0]['metrics']['precise_3hop'].mean == 0.5


def test_warmup_is_compared_where_both_were_measured():
  section = _make(
    _summary(0.75, settings={'warmup': True}),
    _summary(0.25, settings={'warmup': False}),
    _summary(settings={'warmup': True}, test_set='L1'),
  )[WARMUP]
  assert _names(section) == [
    'L4 3-hop: without warmup (3 seeds)',
    'L4 3-hop: with warmup (3 seeds)',
  ]
  assert [r['metrics']['success'].mean for r in section.rows] == [0.25, 0.75]
  assert published.LABEL not in section.list_columns()


def test_penalties_stand_in_order_beside_the_papers():
  section = _make(
    *(_summary(settings={'decision_penalty': p}) for p in (0.05, 0.0, 0.02)),
    _summary(stage='imitation'),
  )[PENALTY]
  assert _names(section) == [
    f'L4 3-hop: decision penalty {p} (3 seeds)' for p in ('0', '0.02', '0.05')
  ]
  assert [_published(row) for row in section.rows] == [48.0, 47.7, None]
  assert 'decisions' in section.list_columns()


def test_stopping_rules_stand_together():
  section = _make(
    _summary(),
    _summary(test_set='L1'),
    _summary(decoding='gates, stop at hops'),
    _summary(decoding='beam'),
  )[STOPPING]
  assert _names(section) == [
    'L4 3-hop: gates (3 seeds)',
    'L4 3-hop: gates, stop at hops (3 seeds)',
  ]


@pytest.mark.parametrize(
  'changes', [{'stage': 'imitation'}, {'test_set': 'vague L4'}]
)
def test_stopping_rules_are_of_the_last_stage_and_the_same_prompts(changes):
  rules = ('gates', 'gates, stop at hops')
  kept = [_summary(decoding=rule) for rule in rules]
  left_out = [_summary(decoding=rule, **changes) for rule in rules]
  section = _make(*left_out, *kept)[STOPPING]
  assert _names(section) == _names(_make(*kept)[STOPPING])


def test_choices_of_our_own_are_compared_one_by_one():
  main = {'gate_input': 'evidence', 'rejection': 'selection'}
  section = _make(
    _summary(settings=main),
    _summary(settings={**main, 'rejection': 'final'}),
    _summary(settings={**main, 'gate_input': 'state'}),
  )['Choices of our own']
  assert _names(section) == [
    'L4 3-hop: gate input evidence (3 seeds)',
    'L4 3-hop: gate input state (3 seeds)',
    'L4 3-hop: rejection final (3 seeds)',
    'L4 3-hop: rejection selection (3 seeds)',
  ]


def test_tables_without_rows_are_left_out():
  assert list(_make(_summary())) == [HEADLINE, TRANSFER]
  assert list(_make(_single_shot())) == [HEADLINE]
  assert list(_make()) == []


@pytest.mark.parametrize('table', published.TABLES, ids=lambda t: t.title)
def test_published_tables_are_whole(table):
  assert table.source.startswith('[VHOP')
  for values in table.rows.values():
    assert len(values) == len(table.columns)


def test_every_published_table_says_that_it_is_the_papers():
  for section in published.make_sections():
    assert section.title.endswith(f'({published.LABEL})')
    assert section.note.startswith('[VHOP')
    assert len(section.list_columns()) >= 1


def test_published_means_are_those_of_the_levels():
  # A wrong digit in a level would show in the mean, which is published too.
  tables = {table.title: table for table in published.TABLES}
  table = tables['Three-hop answer accuracy of agents with tools']
  for *levels, mean in table.rows.values():
    assert mean == pytest.approx(sum(levels) / 7, abs=0.06)

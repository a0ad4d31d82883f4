"""Tests the table of splits."""

import re

import pytest

from vhop_jax import errors
from vhop_jax.worlds import builder, splits


def list_names(*patterns):
  return list(splits.choose_splits(','.join(patterns)))


def test_no_two_splits_draw_the_same():
  named = splits.make_splits()
  assert len({spec.key for spec in named.values()}) == len(named)


def test_no_two_kinds_of_worlds_share_a_seed():
  seeds = {}
  for name, spec in splits.make_splits().items():
    label = re.search(
      'paper_sft|sft_...|il_...|rl_...|dev|test_w.', name
    ).group()
    assert seeds.setdefault(spec.seed, label) == label


def test_worlds_that_were_built_before_stay_what_they_are():
  keys = {
    'sft_000': 'L4-precise-3hop-procedural-seed10000',
    'sft_009': 'L4-precise-3hop-procedural-seed10009',
    'paper_sft': 'L4-precise-3hop-procedural-seed19999',
    'dev': 'L4-precise-3hop-procedural-seed20000',
    'test_w1': 'L4-precise-3hop-procedural-seed20001',
    'test_w3': 'L4-precise-3hop-procedural-seed20003',
  }
  named = splits.make_splits()
  assert {name: named[name].key for name in keys} == keys


def test_benchmark_is_four_worlds_of_a_hundred_hard_queries():
  named = splits.make_splits()
  for name in ('dev', 'test_w1', 'test_w2', 'test_w3'):
    spec = named[name]
    assert (spec.level, spec.families, spec.hops) == (4, 50, 3)
    assert (spec.prompt, spec.name) == ('precise', name)


def test_prefix_says_level_hops_prompt_and_wording():
  for name, spec in splits.make_splits().items():
    level = re.search(r'\bl(\d)_', name.replace('vague_', ''))
    hops = re.search(r'hop(\d)_', name)
    assert spec.level == (int(level[1]) if level else 4)
    assert spec.hops == (int(hops[1]) if hops else 3)
    assert spec.prompt == ('vague' if 'vague_' in name else 'precise')
    rephrased = 'rephrased_' in name or 'realistic_' in name
    assert spec.wording == ('rephrased' if rephrased else 'standard')
    assert spec.name == name


def test_printed_worlds_keep_training_and_measuring_apart():
  for name, spec in splits.make_splits().items():
    if name.startswith(('l6_', 'l7_')):
      measured = 'dev' in name or 'test' in name
      assert spec.prints == ('test' if measured else 'train')
    else:
      assert spec.prints == 'all'
    # No world is so small that its texts could not be read.
    assert spec.resolution == (224 if name.startswith('l7_') else 96)
  assert splits.make_splits(resolution=448)['l7_dev'].resolution == 448


def test_no_world_to_train_on_is_rephrased():
  for name, spec in splits.make_splits().items():
    if re.search('sft|il_|rl_', name):
      assert spec.wording == 'standard'


def test_worlds_of_reinforcement_learning_alone_have_no_chains():
  for name, spec in splits.make_splits().items():
    assert spec.with_chains == ('rl_' not in name)


@pytest.mark.parametrize(
  ('prefix', 'sft', 'il', 'rl'),
  [
    ('', 30, 6, 10),
    ('l1_', 0, 0, 0),
    ('l2_', 0, 0, 0),
    ('l3_', 0, 0, 0),
    ('l5_', 10, 6, 10),
    ('hop2_', 5, 3, 5),
    ('hop4_', 5, 3, 5),
    ('hop5_', 0, 0, 0),
    ('rephrased_', 0, 0, 0),
    ('vague_rephrased_', 0, 0, 0),
    ('vague_', 30, 6, 10),
    ('vague_hop2_', 5, 3, 5),
    ('vague_hop4_', 5, 3, 5),
    ('vague_l1_', 0, 0, 0),
    ('vague_l2_', 0, 0, 0),
    ('vague_l3_', 0, 0, 0),
  ],
)
def test_each_variant_is_measured_and_some_are_trained_on(prefix, sft, il, rl):
  measured = ('dev', 'test_w1', 'test_w2', 'test_w3')
  assert list_names(*(prefix + label for label in measured)) == [
    prefix + label for label in measured
  ]
  named = splits.make_splits()
  for kind, families, count in (
    ('sft', 150, sft),
    ('il', 100, il),
    ('rl', 50, rl),
  ):
    names = [name for name in named if name.startswith(f'{prefix}{kind}_')]
    assert names == [f'{prefix}{kind}_{i:03d}' for i in range(count)]
    assert all(named[name].families == families for name in names)


def test_a_pattern_chooses_splits_at_a_resolution():
  chosen = splits.choose_splits('test_*', resolution=48)
  assert list(chosen) == ['test_w1', 'test_w2', 'test_w3']
  assert {spec.resolution for spec in chosen.values()} == {48}


def test_several_patterns_choose_each_split_once():
  names = list_names('hop?_dev dev', ' hop5_* ')
  assert names[:4] == ['hop2_dev', 'hop4_dev', 'hop5_dev', 'dev']
  assert names[4:] == ['hop5_test_w1', 'hop5_test_w2', 'hop5_test_w3']


def test_groups_are_of_splits_of_their_kind():
  named = splits.make_splits()
  assert list_names('all') == list(named)
  assert list_names('main') == [
    name for name in named if re.fullmatch(r'(sft|il|rl|test)_\w+|dev', name)
  ]
  for group, prompt in (('mixed', 'precise'), ('vague_mixed', 'vague')):
    specs = splits.choose_splits(group).values()
    assert {(spec.level, spec.prompt) for spec in specs} == {(4, prompt)}
    assert {spec.hops for spec in specs} == {2, 3, 4}
    assert {spec.families for spec in specs} == {50, 100, 150}
  assert set(list_names('measured')) == {
    name for name in named if re.search('dev|test', name)
  }


@pytest.mark.parametrize('patterns', ['tset_*', 'dev,tset_*', 'tset_*,dev'])
def test_a_pattern_without_a_split_names_the_splits(patterns):
  with pytest.raises(errors.UsageError, match='no split') as caught:
    splits.choose_splits(patterns)
  assert "'tset_*': there are sft_000..029," in str(caught.value)


def test_variant_may_change_what_its_kind_says(monkeypatch):
  for changes, families in (({}, 50), ({'families': 25}, 25)):
    variant = splits.Variant({'dev': range(1)}, changes)
    monkeypatch.setitem(splits.VARIANTS, 'x_', variant)
    assert splits.make_splits()['x_dev'].families == families


def test_summary_sets_counts_beside_those_of_the_paper():
  named = splits.make_splits()
  specs = [named[name] for name in ('paper_sft', 'dev', 'l1_dev', 'sft_000')]
  results = [
    builder.BuildResult(None, True, images, queries, dropped, 1.0)
    for images, queries, dropped in (
      (4512, 990, 10), (455, 98, 2), (400, 100, 0), (1360, 300, 0),
    )
  ]  # fmt: skip
  rows = [line.split() for line in splits.summarize(specs, results).split('\n')]
  assert rows[2:] == [
    ['paper_sft', '990', '10', '4,512', '978', '4,492'],
    ['dev', '98', '2', '455', '91-100', '445-450'],
    ['l1_dev', '100', '0', '400', '–', '–'],
    ['sft_000', '300', '0', '1,360', '–', '–'],
    ['4', 'worlds', '1,488', '12', '6,727'],
  ]


def test_description_names_every_split():
  named = set()
  for group in splits.describe_splits().split('; '):
    before, _, after = group.rpartition(' with ')
    for item in after.split(', '):
      first, _, last = item.partition('..')
      kind, _, number = first.rpartition('_')
      labels = [first]
      if last:
        digits = len(number.lstrip('w'))
        labels = [
          f'{kind}_{"w" * number.startswith("w")}{i:0{digits}d}'
          for i in range(int(number.strip('w')), int(last.strip('w')) + 1)
        ]
      for prefix in before.split() or ['']:
        named |= {prefix + label for label in labels}
  assert named == set(splits.make_splits())

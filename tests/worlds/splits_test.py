from vhop_jax.worlds import splits


def test_no_two_splits_share_a_seed():
  named = splits.make_splits(sft_worlds=300)
  assert len({spec.seed for spec in named.values()}) == len(named)


def test_benchmark_is_four_worlds_of_a_hundred_hard_queries():
  named = splits.make_splits(sft_worlds=2)
  assert list(named) == [
    'sft_000',
    'sft_001',
    'dev',
    'test_w1',
    'test_w2',
    'test_w3',
  ]
  spec = named['test_w3']
  assert (spec.level, spec.families, spec.hops) == (4, 50, 3)
  assert (spec.prompt, spec.name) == ('precise', 'test_w3')


def test_seeds_do_not_depend_on_how_many_worlds_are_trained_on():
  few, many = (splits.make_splits(sft_worlds=n) for n in (1, 9))
  assert few['dev'] == many['dev']
  assert few['sft_000'] == many['sft_000']

"""Tests the table of splits."""

import pytest

from vhop_jax import errors
from vhop_jax.worlds import splits


def test_no_two_splits_share_a_seed():
  named = splits.make_splits()
  assert len({spec.seed for spec in named.values()}) == len(named)


def test_benchmark_is_four_worlds_of_a_hundred_hard_queries():
  named = splits.make_splits()
  for name in ('dev', 'test_w1', 'test_w2', 'test_w3'):
    spec = named[name]
    assert (spec.level, spec.families, spec.hops) == (4, 50, 3)
    assert (spec.prompt, spec.name) == ('precise', name)


def test_a_pattern_chooses_splits_at_a_resolution():
  chosen = splits.choose_splits('test_*', resolution=48)
  assert list(chosen) == ['test_w1', 'test_w2', 'test_w3']
  assert {spec.resolution for spec in chosen.values()} == {48}


def test_a_pattern_without_a_split_names_the_splits():
  with pytest.raises(errors.UsageError, match='no split matches .* test_w1'):
    splits.choose_splits('tset_*')

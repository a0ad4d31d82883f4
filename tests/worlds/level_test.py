import pytest

from vhop_jax import errors
from vhop_jax.worlds import level as level_lib


@pytest.mark.parametrize('text', ['L4', 'l4', '4', 4])
def test_level_is_read_from_all_its_spellings(text):
  assert level_lib.parse_level(text) == 4


@pytest.mark.parametrize('text', ['L0', 'L8', '', 'four', '-1', 'LL4'])
def test_unknown_level_is_a_usage_error_that_names_the_levels(text):
  with pytest.raises(errors.UsageError, match='L1, L2, L3, L4'):
    level_lib.parse_level(text)


def test_constraints_start_at_their_level_and_only_for_precise_prompts():
  asked = [
    (
      level_lib.asks_relation(level, 'precise'),
      level_lib.asks_colour(level, 'precise'),
      level_lib.has_dead_ends(level),
    )
    for level in level_lib.LEVELS
  ]
  assert asked == [
    (False, False, False),
    (True, False, False),
    (True, True, False),
    *[(True, True, True)] * 4,
  ]
  assert [level_lib.has_twins(level) for level in level_lib.LEVELS] == [
    *[False] * 4,
    *[True] * 3,
  ]
  printed = [level_lib.find_print(level) for level in level_lib.LEVELS]
  assert printed == [*[''] * 5, 'logo', 'text']
  assert not level_lib.asks_relation(4, 'vague')
  assert not level_lib.asks_colour(4, 'vague')

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from vhop_jax.evaluate import scores
from vhop_jax.evaluate.scores import Interval, Trajectory

ONE_WORLD = [('w', i) for i in range(4)]


def _stack(query_id, *selected):
  return Trajectory(query_id, tuple(f'{i:05d}' for i in selected))


def test_answer_position_is_that_of_the_rule(make_world):
  query = make_world().queries[0]  # Chain 1, 2, 3.
  trajectory = _stack('0_leftof', 8, 2, 3, 7, 9)
  assert scores.answer_image(query, trajectory, 'first') == '00008'
  assert scores.answer_image(query, trajectory, 'hops') == '00003'
  assert scores.answer_image(query, trajectory, 'last') == '00009'
  assert scores.is_answer_correct(query, trajectory, 'hops')
  assert not scores.is_answer_correct(query, trajectory, 'last')


@pytest.mark.parametrize('answer', ['hops', 'last', 'first'])
def test_empty_stack_has_no_answer(make_world, answer):
  query = make_world().queries[0]
  assert scores.answer_image(query, _stack('0_leftof'), answer) is None
  assert not scores.is_answer_correct(query, _stack('0_leftof'), answer)


def test_set_success_needs_an_answer_anywhere(make_world):
  query = make_world().queries[0]
  assert scores.is_answer_in_stack(query, _stack('0_leftof', 9, 8, 3, 7))
  # 6 answers the sibling query only.
  assert not scores.is_answer_in_stack(query, _stack('0_leftof', 1, 2, 6))


def test_path_recall_takes_the_best_chain(make_world):
  precise = make_world().queries[0]
  vague = make_world(prompt='vague').queries[0]
  trajectory = _stack('0_leftof', 6, 1, 5)
  # Of chain 1 2 3 there is one image, of chain 4 5 6 there are two.
  assert scores.compute_path_recall(precise, trajectory) == pytest.approx(1 / 3)
  assert scores.compute_path_recall(vague, trajectory) == pytest.approx(2 / 3)


def test_exact_chain_looks_at_order_and_prefix_only(make_world):
  query = make_world().queries[0]
  assert scores.is_chain_exact(query, _stack('0_leftof', 1, 2, 3, 9, 8))
  assert not scores.is_chain_exact(query, _stack('0_leftof', 2, 1, 3))
  assert not scores.is_chain_exact(query, _stack('0_leftof', 9, 1, 2, 3))
  assert not scores.is_chain_exact(query, _stack('0_leftof', 1, 2))


def test_outcomes_follow_the_order_of_the_trajectories(make_world):
  outcomes = scores.compute_outcomes(
    make_world(),
    [_stack('0_rightof', 4, 5, 6), _stack('0_leftof', 1, 9, 8)],
    answer='hops',
  )
  # Fixed steps cannot succeed by stopping.
  assert ['success', *outcomes.values] == list(scores.METRICS)
  assert outcomes.values['answer_accuracy'].tolist() == [1, 0]
  assert outcomes.values['set_success'].tolist() == [1, 0]
  assert outcomes.values['path_recall'] == pytest.approx([1, 1 / 3])
  assert outcomes.values['exact_chain'].tolist() == [1, 0]
  assert outcomes.clusters == (('w1', 0), ('w1', 0))


def test_success_is_to_stop_on_an_answer(make_world):
  stopped = [
    dataclasses.replace(t, ended=scores.STOP)
    for t in (_stack('0_leftof', 1, 2, 3), _stack('0_rightof', 4, 5, 6, 9))
  ]
  spent = _stack('0_leftof', 1, 2, 3)
  world = make_world()
  for trajectories, expected in (
    (stopped, [1, 0]),
    ([spent, stopped[1]], [0, 0]),
  ):
    outcomes = scores.compute_outcomes(world, trajectories, answer='last')
    assert outcomes.values['success'].tolist() == expected
    assert outcomes.values['set_success'].tolist() == [1, 1]


def test_counts_are_of_decisions(make_world):
  def decide(*kinds):
    return tuple(scores.Decision(k, None, 0.0, 0.0, 0.0) for k in kinds)

  select, back, stop = scores.SELECTED, scores.BACKTRACKED, scores.STOPPED
  made = scores.compute_counts(
    make_world(),
    [
      Trajectory(
        '0_leftof',
        (),
        ended='stop',
        decisions=decide(select, back, select, stop),
      ),
      Trajectory('0_rightof', (), decisions=decide(select, select)),
    ],
  )
  assert {k: v.tolist() for k, v in made.values.items()} == {
    'decisions': [4, 2],
    'backtracks': [1, 0],
    'stop_rate': [1, 0],
    'out_of_budget': [0, 1],
  }
  mean = scores.compute_metrics(made)['decisions']
  assert mean == Interval(3.0, 3.0, 3.0)


@pytest.mark.parametrize(
  'ids', [['0_leftof'], ['0_leftof', '0_leftof'], ['0_leftof', '9_leftof']]
)
def test_trajectories_must_match_the_queries(make_world, ids):
  with pytest.raises(ValueError, match='one to one'):
    scores.compute_outcomes(
      make_world(), [_stack(i, 1) for i in ids], answer='hops'
    )


def test_pooling_keeps_equal_family_numbers_apart(make_world):
  outcomes = [
    scores.compute_outcomes(
      make_world(name),
      [_stack('0_leftof', *stack), _stack('0_rightof', *stack)],
      answer='hops',
    )
    for name, stack in (('w1', (1, 2, 3)), ('w2', (9, 8, 7)))
  ]
  pooled = scores.pool_outcomes(outcomes)
  assert len(set(pooled.clusters)) == 2
  assert pooled.values['set_success'].tolist() == [1, 0, 0, 0]
  with pytest.raises(ValueError, match='same name'):
    scores.pool_outcomes([outcomes[0], outcomes[0]])


def test_wilson_interval_by_hand():
  # z^2 = 3.84146. p = 1/2, n = 4: z^2/n = 0.960365, so the centre is
  # (0.5 + 0.480182) / 1.960365 = 0.5 and the half width
  # 1.959964 * sqrt(0.0625 + 0.0600228) / 1.960365 = 0.349958.
  value = scores.compute_wilson_interval(0.5, 4)
  assert value == pytest.approx((0.5, 0.150042, 0.849958), abs=1e-5)
  # p = 1: the lower bound is 1 / (1 + z^2/n) = 1 / 1.384146 for n = 10.
  value = scores.compute_wilson_interval(1.0, 10)
  assert value == pytest.approx((1, 0.722467, 1), abs=1e-6)


def test_where_all_families_agree_families_are_counted_not_queries():
  # Ten queries in five families: Wilson with n = 5, 1 / (1 + 3.84146/5).
  clusters = [('w', i // 2) for i in range(10)]
  value = scores.compute_interval(np.ones(10), clusters)
  assert value == pytest.approx((1, 0.565518, 1), abs=1e-6)
  # Each family has one right and one wrong: no variance between families
  # either, but the mean is 1/2.
  value = scores.compute_interval(np.tile([0.0, 1.0], 5), clusters)
  assert value == pytest.approx(scores.compute_wilson_interval(0.5, 5))


def test_bootstrap_draws_families_and_not_queries():
  # Four families of two equal queries. A draw misses both families of ones
  # with probability (1/2)^4 = 6 % > 2.5 %, so the interval reaches 0; by
  # symmetry it reaches 1. Drawing eight single queries would give no 0 and no
  # 1 within 95 %: (1/2)^8 = 0.4 %.
  values = np.repeat([0.0, 0.0, 1.0, 1.0], 2)
  clusters = np.repeat(np.arange(4), 2)
  families = [('w', int(i)) for i in clusters]
  assert scores.compute_interval(values, families) == (0.5, 0, 1)
  singles = [('w', i) for i in range(8)]
  value = scores.compute_interval(values, singles)
  assert 0 < value.low < 0.5 < value.high < 1


def test_mean_is_over_queries_when_families_differ_in_size():
  # One family of one right query and one of three wrong ones: 1/4, and a
  # draw of both families weighs them in the same way.
  clusters = [('w', 0), ('w', 1), ('w', 1), ('w', 1)]
  value = scores.compute_interval(np.array([1.0, 0, 0, 0]), clusters)
  assert value == (0.25, 0, 1)


def test_the_same_family_number_in_two_worlds_is_two_families():
  values = np.array([1.0, 1.0, 0.0, 0.0])
  clusters = [('w1', 0), ('w1', 0), ('w2', 0), ('w2', 0)]
  assert scores.compute_interval(values, clusters) == (0.5, 0, 1)


def test_interval_near_the_normal_one_for_many_families():
  # 400 families of one query, half of them right: standard error 0.025, so
  # about 0.5 -+ 0.049.
  values = np.tile([0.0, 1.0], 200)
  value = scores.compute_interval(values, [('w', i) for i in range(400)])
  assert value == pytest.approx((0.5, 0.451, 0.549), abs=0.005)


def test_interval_of_what_is_no_share():
  value = scores.compute_interval(
    np.array([5.0, 5.0]), [('w', 0), ('w', 1)], is_share=False
  )
  assert value == (5, 5, 5)
  with pytest.raises(ValueError, match='no values'):
    scores.compute_interval(np.array([]), [])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 4))
def test_intervals_are_ordered_repeatable_and_within_bounds(values, families):
  clusters = [('w', i % families) for i in range(len(values))]
  value = scores.compute_interval(np.array(values), clusters)
  assert 0 <= value.low <= value.high <= 1
  assert value == scores.compute_interval(np.array(values), clusters)


def test_ranks_count_candidates_that_are_not_worse():
  values = np.array([[0.9, 0.5, 0.7, 0.5, 0.1], [0.0, 0.0, 0.0, 0.0, 0.0]])
  mask = np.array([[True] * 5, [False, True, True, True, True]])
  # First row, gold 1: 0.9, 0.7 and the tie at 3 come before it. Second row:
  # all four candidates tie, so the gold one is the last of them.
  ranks = scores.compute_ranks(values, np.array([1, 2]), mask)
  assert ranks.tolist() == [4, 4]
  mask = np.array([[False, True, True, True, True]] * 2)
  ranks = scores.compute_ranks(values, np.array([1, 2]), mask)
  assert ranks.tolist() == [3, 4]


def test_a_model_that_scores_nan_is_not_ranked_first():
  values = np.full((1, 3), np.nan)
  ranks = scores.compute_ranks(values, np.array([0]), np.ones((1, 3), bool))
  assert ranks.tolist() == [3]


def test_ranks_refuse_a_gold_image_outside_the_candidates():
  mask = np.array([[False, True]])
  with pytest.raises(ValueError, match='not among the candidates'):
    scores.compute_ranks(np.zeros((1, 2)), np.array([0]), mask)


def test_recalls_by_hand():
  ranks = np.array([[1, 3], [2, scores.PAD], [6, 11], [1, 5]])
  clusters = tuple(ONE_WORLD)
  first, second = scores.compute_recalls(ranks, clusters)
  # Hop 1: ranks 1, 2, 6, 1. Hop 2: ranks 3, 11, 5 of three queries.
  assert {k: v.mean for k, v in first.items()} == {
    1: 0.5,
    2: 0.75,
    5: 0.75,
    10: 1.0,
  }
  means = {k: v.mean for k, v in second.items()}
  assert means == pytest.approx({1: 0, 2: 0, 5: 2 / 3, 10: 2 / 3})
  # 0 % of three families: Wilson's upper bound is z^2/n / (1 + z^2/n).
  assert second[1] == pytest.approx(Interval(0, 0, 0.561497), abs=1e-6)

import pytest

from vhop_jax.evaluate import failures, scores
from vhop_jax.evaluate.failures import Judge
from vhop_jax.evaluate.scores import Trajectory


def _stack(query_id, *selected):
  return Trajectory(query_id, tuple(f'{i:05d}' for i in selected))


def _verdicts(judge, query_id, *selected):
  steps = judge.judge_trajectory(_stack(query_id, *selected))
  return [step.verdict for step in steps]


# The world's images are listed in conftest: 7 is A's dead end, 8 has the
# wrong colour for A, 4 is the first image of B.
@pytest.mark.parametrize(
  ('query_id', 'prefix', 'image', 'verdict'),
  [
    ('0_leftof', (), 1, failures.GOLD),
    ('0_leftof', (), 7, failures.DEAD_END),
    ('0_leftof', (), 8, failures.WRONG_COLOUR),
    # s stands right of a blue lamp; asked left of something blue.
    ('0_leftof', (), 4, failures.WRONG_RELATION),
    # s stands left of a black vase; asked right of something blue.
    ('0_rightof', (), 8, failures.WRONG_RELATION_AND_COLOUR),
    ('0_rightof', (), 7, failures.WRONG_RELATION),
    ('0_leftof', (), 9, failures.WRONG_OBJECT),
    ('0_leftof', (), 0, failures.REPEATED),
    ('0_leftof', (1,), 1, failures.REPEATED),
    # A3 shows a2, but a1 is carried at hop 2.
    ('0_leftof', (1,), 3, failures.WRONG_OBJECT),
    ('0_leftof', (1,), 2, failures.GOLD),
    # The scenes of s are no continuation any more once a1 is carried.
    ('0_leftof', (1,), 7, failures.WRONG_OBJECT),
  ],
)
def test_each_verdict(make_world, query_id, prefix, image, verdict):
  judge = Judge(make_world())
  *_, found = _verdicts(judge, query_id, *prefix, image)
  assert found == verdict


@pytest.mark.parametrize(
  ('level', 'prompt', 'verdicts'),
  [
    # What 7, 8 and 4 are for query A: neither is judged by what is not asked.
    (4, 'precise', ['dead end', 'wrong colour', 'wrong relation']),
    (2, 'precise', ['dead end', 'dead end', 'wrong relation']),
    (1, 'precise', ['dead end', 'dead end', 'dead end']),
    # To a vague prompt B's first image is as good as A's.
    (4, 'vague', ['dead end', 'dead end', 'gold']),
  ],
)
def test_only_what_is_asked_can_be_wrong(make_world, level, prompt, verdicts):
  judge = Judge(make_world(level=level, prompt=prompt))
  found = [_verdicts(judge, '0_leftof', image)[0] for image in (7, 8, 4)]
  assert found == verdicts


def test_reasons_name_the_objects(make_world):
  judge = Judge(make_world())

  def reason(image):
    return judge.judge_trajectory(_stack('0_leftof', image))[0].reason

  assert reason(1) == 'The red kettle stands left of the blue ball.'
  assert reason(7) == (
    'The red kettle stands left of the blue sofa as asked,'
    ' but nothing leads on from there.'
  )
  assert reason(8) == (
    'The red kettle stands left of the black vase; asked: something blue.'
  )
  assert reason(4) == (
    'The red kettle stands right of the blue lamp; asked: left of.'
  )
  assert reason(9) == 'Shows another kettle, not this red kettle.'
  assert reason(2) == 'Does not show the red kettle.'


def test_off_the_chain_says_what_is_shown(make_world):
  judge = Judge(make_world())
  last = judge.judge_trajectory(_stack('0_leftof', 9, 8))[-1]
  assert last.reason == 'Red kettle and black vase.'


def test_after_the_first_mistake_nothing_is_judged_by_the_chain(make_world):
  judge = Judge(make_world())
  assert _verdicts(judge, '0_leftof', 1, 9, 2, 6, 9) == [
    'gold',
    'wrong object',
    'gold later',
    'off the chain',
    'repeated image',
  ]


def test_after_a_complete_chain_nothing_can_be_wrong(make_world):
  judge = Judge(make_world())
  trajectory = _stack('0_leftof', 1, 2, 3, 9, 4)
  assert (
    _verdicts(judge, '0_leftof', *map(int, trajectory.selected))[3:]
    == ['after the answer'] * 2
  )
  assert judge.find_failure(trajectory) is None


@pytest.mark.parametrize(
  ('selected', 'failure'),
  [
    ((), ('stopped early', 1)),
    ((1, 2), ('stopped early', 3)),
    ((1, 2, 9, 3), ('wrong object', 3)),
    ((7, 9, 8), ('dead end', 1)),
    ((1, 2, 3), None),
  ],
)
def test_first_mistake_and_its_hop(make_world, selected, failure):
  judge = Judge(make_world())
  assert judge.find_failure(_stack('0_leftof', *selected)) == failure


def test_switching_to_the_other_valid_chain_is_a_mistake(make_world):
  judge = Judge(make_world(prompt='vague'))
  # After 1 the ball is carried; B2 does not show it.
  assert judge.find_failure(_stack('0_leftof', 1, 5, 6)) == ('wrong object', 2)


def test_breakdown_counts_failures_and_sets_the_recovered_apart(make_world):
  judge = Judge(make_world(families=3))
  trajectories = [
    _stack('0_leftof', 1, 2, 3, 9, 8),  # Right.
    _stack('0_rightof', 9, 4, 5, 6, 8),  # Wrong first, 6 is the answer.
    _stack('1_leftof', 17, 11, 12, 19, 18),  # Dead end at hop 1.
    _stack('1_rightof', 14, 19, 15, 17, 18),  # Wrong object at hop 2.
    _stack('2_leftof', 27, 26, 25, 24, 29),  # Dead end at hop 1.
    _stack('2_rightof', 24, 25),  # Ends before hop 3.
  ]
  breakdown = failures.compute_breakdown([(judge, trajectories)])
  assert breakdown == {
    'criterion': 'no valid answer in the stack',
    'queries': 6,
    'failed': 4,
    'recovered': 1,
    'hops': 3,
    'counts': {
      'dead end': [2, 0, 0],
      'wrong object': [0, 1, 0],
      'wrong relation': [0, 0, 0],
      'wrong colour': [0, 0, 0],
      'relation and colour': [0, 0, 0],
      'repeated image': [0, 0, 0],
      'stopped early': [0, 0, 1],
    },
  }


def _decide(query_id, *acts):
  """Returns what a router with gates did: image numbers, 'back', 'stop'."""
  stack, decisions = [], []
  for act in acts:
    kind, image = {'back': 'backtrack', 'stop': 'stop'}.get(act, 'select'), None
    if kind == 'select':
      image = f'{act:05d}'
      stack.append(image)
    elif kind == 'backtrack':
      image = stack.pop()
    decisions.append(scores.Decision(kind, image, 0.5, 0.1, 0.2))
  ended = scores.STOP if acts[-1] == 'stop' else scores.BUDGET
  return Trajectory(
    query_id, tuple(stack), ended=ended, decisions=tuple(decisions)
  )


@pytest.mark.parametrize(
  ('acts', 'failure'),
  [
    ((1, 2, 3, 'stop'), None),
    ((7, 'back', 1, 9, 'back', 2, 3, 'stop'), None),
    ((7, 2, 'stop'), ('dead end', 1)),
    ((1, 9, 'back', 8, 'stop'), ('wrong object', 2)),
    ((1, 'back', 7, 'stop'), ('gold image rejected', 1)),
    ((1, 2, 3, 'back', 9, 'stop'), ('gold image rejected', 3)),
    ((1, 2, 'stop'), ('stopped early', 3)),
    ((1, 2, 3, 9, 'stop'), ('after the answer', 3)),
    ((1, 2, 9, 'back'), ('out of budget', 3)),
    ((7, 8), ('out of budget', 1)),
    ((1, 2, 3), ('out of budget', 3)),
  ],
)
def test_failures_of_a_router_with_gates(make_world, acts, failure):
  judge = Judge(make_world())
  trajectory = _decide('0_leftof', *acts)
  assert judge.find_failure(trajectory) == failure
  other = _decide('0_rightof', 4, 5, 6, 'stop')
  breakdown = failures.compute_breakdown([(judge, [trajectory, other])])
  assert breakdown['criterion'] == 'did not stop on a valid answer'
  assert breakdown['failed'] == (failure is not None)
  assert breakdown['recovered'] == 0
  if failure:
    assert breakdown['counts'][failure[0]][failure[1] - 1] == 1


def test_every_image_has_one_verdict_at_every_hop(make_world):
  for prompt in ('precise', 'vague'):
    judge = Judge(make_world(families=2, prompt=prompt))
    known = {failures.GOLD, *failures.FAILURES} - {
      failures.STOPPED_EARLY,
      failures.AFTER_ANSWER,
      failures.GOLD_REJECTED,
      failures.OUT_OF_BUDGET,
    }
    for query in judge.queries.values():
      for chain in query.chains:
        for hop in range(3):
          for record in judge.world.images:
            step = judge.judge(query, chain[:hop], record.id)
            assert step.verdict in known
            is_gold = record.id in {
              c[hop] for c in query.chains if c[:hop] == chain[:hop]
            }
            assert (step.verdict == failures.GOLD) == is_gold

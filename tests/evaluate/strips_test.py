import dataclasses

import numpy as np
import pytest

from vhop_jax.evaluate import strips
from vhop_jax.evaluate.failures import Judge
from vhop_jax.evaluate.scores import Decision, Trajectory


def _stack(query_id, *selected):
  return Trajectory(
    query_id,
    tuple(f'{i:05d}' for i in selected),
    tuple(0.9 - 0.1 * t for t in range(len(selected))),
  )


@pytest.fixture
def judge(make_world):
  return Judge(make_world(families=4))


@pytest.fixture
def pixels(judge, draw_pixels):
  return draw_pixels(judge.world)


def _decide(kind, image=None, stop=0.0, back=0.0):
  image = None if image is None else f'{image:05d}'
  return Decision(kind, image, 0.75, stop, back)


def _route(query_id, *decisions, ended='stop'):
  stack = []
  for decision in decisions:
    if decision.kind == 'select':
      stack.append(decision.image)
    elif decision.kind == 'backtrack':
      assert stack.pop() == decision.image
  return Trajectory(
    query_id, tuple(stack), ended=ended, decisions=tuple(decisions)
  )


def test_right_trajectory(judge, pixels):
  trajectory = _stack('1_leftof', 11, 12, 13, 7, 8)
  panel = strips.make_trajectory_panel(judge, pixels, trajectory)
  (strip,) = panel.strips
  assert panel.verdict == 'right'
  assert panel.title == 'w1 · 1_leftof · right'
  assert panel.text == 'Follow the kettle <leftof> & go on.'
  assert [f.image_id for f in strip.frames] == [
    f'{i:05d}' for i in (10, 11, 12, 13, 7, 8)
  ]
  assert [f.kind for f in strip.frames] == [
    'query',
    'gold',
    'gold',
    'gold',
    'neutral',
    'neutral',
  ]
  assert [f.label for f in strip.frames] == [
    'query',
    '1 · 0.90',
    '2 · 0.80',
    '3 · 0.70 · answer',
    '4 · 0.60',
    '5 · 0.50',
  ]
  for frame in strip.frames:
    np.testing.assert_array_equal(frame.image, pixels[int(frame.image_id)])


def test_wrong_trajectory_shows_the_gold_chain_below(judge, pixels):
  trajectory = _stack('1_leftof', 17, 11, 8)
  panel = strips.make_trajectory_panel(judge, pixels, trajectory)
  selected, gold = panel.strips
  assert panel.verdict == 'wrong'
  assert panel.title == 'w1 · 1_leftof · dead end taken at hop 1'
  assert [f.kind for f in selected.frames] == [
    'query',
    'dead_end',
    'gold',
    'wrong',
  ]
  assert selected.frames[1].caption.startswith('Dead end. The red kettle')
  assert selected.frames[2].caption == (
    'Gold image. Belongs at hop 1; found after a wrong turn.'
  )
  assert [f.image_id for f in gold.frames] == ['00011', '00012', '00013']
  assert [f.kind for f in gold.frames] == ['gold'] * 3
  assert gold.frames[2].label == 'hop 3 · answer'
  assert (
    gold.frames[1].caption == 'The blue ball stands right of the green tea cup.'
  )


def test_what_a_router_took_back_is_shown_too(judge, pixels):
  trajectory = _route(
    '1_leftof',
    _decide('select', 17),
    _decide('backtrack', 17, stop=0.01, back=0.97),
    _decide('select', 11),
    _decide('select', 12, stop=0.02, back=0.25),
    _decide('select', 13, stop=0.03, back=0.04),
    _decide('stop', stop=0.99, back=0.05),
  )
  panel = strips.make_trajectory_panel(judge, pixels, trajectory)
  assert panel.verdict == 'right'
  (strip,) = panel.strips
  query, *frames = strip.frames
  assert query.kind == strips.QUERY
  assert [f.image_id for f in frames] == ['00017', '00011', '00012', '00013']
  assert [f.is_rejected for f in frames] == [True, False, False, False]
  assert [f.kind for f in frames] == [strips.DEAD_END] + [strips.GOLD] * 3
  assert [f.label for f in frames] == [
    '1 · 0.75', '3 · 0.75', '4 · 0.75', '5 · 0.75 · answer'
  ]  # fmt: skip
  assert frames[0].caption.endswith('(stop 0.01, back 0.97)')
  assert frames[3].caption.endswith('(stop 0.99, back 0.05)')


def test_found_after_a_mistake_is_right_and_says_so(judge, pixels):
  trajectory = _stack('1_leftof', 11, 19, 13)
  panel = strips.make_trajectory_panel(judge, pixels, trajectory)
  assert panel.verdict == 'right'
  assert panel.title.endswith('answer found after a mistake at hop 2')
  assert len(panel.strips) == 2


def test_family_shows_both_chains_and_names_each_distractor(judge, pixels):
  panel = strips.make_family_panel(judge, pixels, 2)
  first, second, distractors = panel.strips
  assert [f.image_id for f in first.frames] == [
    '00020',
    '00021',
    '00022',
    '00023',
  ]
  assert [f.image_id for f in second.frames] == [
    '00020',
    '00024',
    '00025',
    '00026',
  ]
  assert first.title == (
    'Query A (2_leftof): Follow the kettle <leftof> & go on.'
  )
  captions = {f.image_id: (f.kind, f.caption) for f in distractors.frames}
  assert captions == {
    '00027': (
      'dead_end',
      'Red kettle and blue sofa. A hop 1: dead end; B hop 1: wrong relation.',
    ),
    '00028': (
      'wrong',
      'Red kettle and black vase. A hop 1: wrong colour; B hop 1: relation'
      ' and colour.',
    ),
    '00029': ('neutral', 'Red kettle and yellow tree.'),
  }


def test_family_whose_one_query_was_dropped(judge, pixels, without_query):
  world = without_query(judge.world, '2_rightof')
  panel = strips.make_family_panel(Judge(world), pixels, 2)
  # The images of the dropped chain are distractors now.
  assert [len(strip.frames) for strip in panel.strips] == [4, 6]
  with pytest.raises(ValueError, match='family 9 of w1 has no query'):
    strips.make_family_panel(judge, pixels, 9)


def test_vague_family_shows_each_chain_once(make_world, draw_pixels):
  world = make_world(prompt='vague')
  panel = strips.make_family_panel(Judge(world), draw_pixels(world), 0)
  ids = [[f.image_id for f in strip.frames] for strip in panel.strips]
  assert ids[:2] == [
    ['00000', '00001', '00002', '00003'],
    ['00000', '00004', '00005', '00006'],
  ]
  assert len(ids) == 3


def test_choice_is_by_rule(make_world):
  judge = Judge(make_world(families=5))
  trajectories = [
    _stack('0_leftof', 1, 2, 3),  # Right.
    _stack('0_rightof', 4, 5, 6),  # Right.
    _stack('1_leftof', 17),  # Dead end at hop 1.
    _stack('1_rightof', 19),  # Wrong object at hop 1.
    _stack('2_leftof', 27),  # Dead end at hop 1.
    _stack('2_rightof', 24, 25, 26),  # Right.
    _stack('3_leftof', 37),  # Dead end at hop 1.
    _stack('3_rightof', 39, 36),  # Answer after a mistake: not shown.
    _stack('4_leftof', 41, 42, 43),  # Right.
    _stack('4_rightof', 44, 45, 49),  # Wrong object at hop 3.
  ]
  chosen = strips.choose_trajectories([(judge, trajectories)], right=2, wrong=4)
  # Right ones: of four, positions 0 and 2. Wrong ones: the most frequent kind
  # first, then one of each other kind, then the first kind again.
  assert [t.query_id for _, t in chosen] == [
    '0_leftof',
    '2_rightof',
    '1_leftof',
    '1_rightof',
    '4_rightof',
    '2_leftof',
  ]
  everything = strips.choose_trajectories(
    [(judge, trajectories)], right=99, wrong=99
  )
  assert len(everything) == 9
  assert not strips.choose_trajectories([(judge, [])], right=2, wrong=2)


def test_frames_do_not_compare_by_pixels(judge, pixels):
  # Comparing arrays by == would raise on frames of equal text.
  frame = strips.make_family_panel(judge, pixels, 0).strips[0].frames[0]
  assert frame != dataclasses.replace(frame)


def test_gates_are_shown_after_each_decision(judge, pixels):
  trajectory = _route(
    '1_leftof',
    _decide('select', 11),
    _decide('select', 18, stop=0.1, back=0.2),
    _decide('backtrack', 18, stop=0.3, back=0.8),
    _decide('select', 12, stop=0.4, back=0.45),
    ended='budget',
  )
  panel = strips.make_trajectory_panel(judge, pixels, trajectory)
  _, first, rejected, last = panel.strips[0].frames
  assert first.caption.endswith('(stop 0.10, back 0.20)')
  assert rejected.caption.endswith(
    '(stop 0.30, back 0.80) (Then: stop 0.40, back 0.45)'
  )
  # No decision came after it.
  assert 'stop' not in last.caption


def test_policies_stand_below_each_other_with_the_gold_chain_last(
  judge, pixels
):
  routed = _route(
    '1_leftof',
    _decide('select', 17),
    _decide('backtrack', 17),
    _decide('select', 11),
    _decide('select', 12),
    _decide('select', 13),
    _decide('stop'),
  )
  policies = [
    ('Untrained', _stack('1_leftof', 19, 18)),
    ('SFT', _stack('1_leftof', 11, 12, 13)),
    ('RL', routed),
  ]
  panel = strips.make_policies_panel(judge, pixels, '1_leftof', policies)
  assert [strip.title for strip in panel.strips] == [
    'Untrained: 2 images, not the answer',
    'SFT: 3 images, the answer among them',
    'RL: stopped on the answer after 6 decisions, 1 backtrack',
    'Gold chain',
  ]
  assert panel.name == 'comparison_w1_1_leftof'
  assert panel.text == 'Follow the kettle <leftof> & go on.'
  untrained, sft, routed_strip, gold = (s.frames for s in panel.strips)
  assert [f.kind for f in untrained] == ['query', 'wrong', 'wrong']
  assert [f.kind for f in sft] == ['query'] + ['gold'] * 3
  assert [f.is_rejected for f in routed_strip] == [False, True] + [False] * 3
  assert [f.image_id for f in gold] == ['00011', '00012', '00013']


def test_vague_query_has_each_gold_chain_below(make_world, draw_pixels):
  world = make_world(prompt='vague')
  panel = strips.make_policies_panel(
    Judge(world),
    draw_pixels(world),
    '0_leftof',
    [('SFT', _stack('0_leftof', 4, 5, 6))],
  )
  assert [strip.title for strip in panel.strips] == [
    'SFT: 3 images, the answer among them',
    'Gold chain',
    'Gold chain',
  ]


def test_policies_on_different_queries_are_refused(judge, pixels):
  with pytest.raises(ValueError, match='SFT: of 1_rightof, not of 1_leftof'):
    strips.make_policies_panel(
      judge, pixels, '1_leftof', [('SFT', _stack('1_rightof', 14))]
    )


@pytest.mark.parametrize(
  ('trajectory', 'words'),
  [
    (
      _route('1_leftof', _decide('select', 11), _decide('stop')),
      'stopped on a wrong image after 2 decisions',
    ),
    (
      _route('1_leftof', _decide('select', 13), ended='budget'),
      'out of budget after 1 decision',
    ),
    # A beam gives no decisions.
    (
      dataclasses.replace(_stack('1_leftof', 13), ended='stop'),
      'stopped on the answer',
    ),
    (_stack('1_leftof', 19), '1 image, not the answer'),
  ],
)
def test_how_a_trajectory_ended(judge, trajectory, words):
  query = judge.queries['1_leftof']
  assert strips.describe_end(query, trajectory) == words


def test_queries_to_compare_are_those_at_which_policies_differ(judge):
  def answer(query_id, is_right):
    family, relation = query_id.split('_')
    image = {'leftof': 3, 'rightof': 6}[relation] if is_right else 9
    stack = _stack(query_id, 10 * int(family) + image)
    return dataclasses.replace(stack, ended='stop')

  ids = list(judge.queries)  # Eight queries.
  always = [answer(i, True) for i in ids]
  # Wrong at 0, 2, 3, 5 and 7, and handed over in another order.
  sometimes = [answer(i, n not in (0, 2, 3, 5, 7)) for n, i in enumerate(ids)][
    ::-1
  ]

  def choose(count, *policies):
    return strips.choose_queries_for_comparison(judge, policies, count=count)

  # Of five, positions 0 and 2.
  assert choose(2, always, sometimes) == [ids[0], ids[3]]
  assert choose(99, always, sometimes) == [ids[n] for n in (0, 2, 3, 5, 7)]
  assert choose(2, always, always) == []
  assert choose(0, always, sometimes) == []


def test_answer_in_the_stack_is_not_enough_for_a_router_with_gates(judge):
  stacks = [_stack(i, 13, 19) for i in ('1_leftof',)]
  stopped = [dataclasses.replace(t, ended='stop') for t in stacks]
  chosen = strips.choose_queries_for_comparison(
    judge, [stacks, stopped], count=9
  )
  assert chosen == ['1_leftof']

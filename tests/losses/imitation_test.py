"""Tests what training takes for right along a trajectory."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax.env import expert as expert_lib
from vhop_jax.env import state as state_lib
from vhop_jax.losses import imitation

# Candidates: 0 query image, 1 and 2 gold chain, 3 fits hop 1 as well, 4 other,
# 5 padding; so Backtrack is 6 and Stop is 7.
CHAINS = expert_lib.Chains(
  images=jnp.array([[[1, 2]]]), length=jnp.array([[2]])
)
QUERY = jnp.array([0])
EQUAL = jnp.zeros((1, 2, 6), bool).at[0, 0, 3].set(True)
CANDIDATES = jnp.array([True] * 5 + [False])
BACK, STOP = 6, 7
SELECT, BACKTRACK, STOPPED = 0, 1, 2


def replay(actions, rejection):
  start = state_lib.start(
    QUERY, num_images=6, budget=len(actions), gallery_mask=CANDIDATES
  )
  return state_lib.replay(start, jnp.array([actions]), rejection=rejection)


def make_targets(
  actions, *, equals='ignored', chains=CHAINS, rejection='final'
):
  return imitation.make_targets(
    replay(actions, rejection),
    chains,
    EQUAL,
    equals=equals,
    rejection=rejection,
  )


def list_true(mask):
  return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
  ('equals', 'positives', 'competitors'),
  [
    ('negative', [[1], [2]], [[1, 2, 3, 4], [2, 3, 4]]),
    ('ignored', [[1], [2]], [[1, 2, 4], [2, 3, 4]]),
    ('positive', [[1, 3], [2]], [[1, 2, 3, 4], [2, 3, 4]]),
  ],
)
def test_targets_of_a_gold_chain(equals, positives, competitors):
  made = make_targets([1, 2], equals=equals)
  assert made.mask.all()
  assert made.kind.tolist() == [[SELECT, SELECT]]
  for hop in range(2):
    assert list_true(made.positive_mask[0, hop]) == positives[hop]
    assert list_true(made.competitor_mask[0, hop]) == competitors[hop]


def test_targets_of_a_wrong_turn():
  # The dead end, back, the chain, Stop, and one decision that is padding.
  made = make_targets([3, BACK, 1, 2, STOP, STOP], equals='positive')
  assert made.kind[0, :5].tolist() == [
    SELECT,
    BACKTRACK,
    SELECT,
    SELECT,
    STOPPED,
  ]
  assert made.mask.tolist() == [[True] * 5 + [False]]
  # The image that was rejected is right no more.
  assert list_true(made.positive_mask[0, 0]) == [1, 3]
  assert list_true(made.positive_mask[0, 2]) == [1]
  assert list_true(made.competitor_mask[0, 2]) == [1, 2, 4]
  assert not made.positive_mask[0, [1, 4]].any()


def test_any_of_several_chains_is_right():
  chains = expert_lib.Chains(
    images=jnp.array([[[1, 2], [3, 4], [-1, -1]]]),
    length=jnp.array([[2, 2, 0]]),
  )
  made = make_targets([3, 4, STOP], chains=chains)
  assert made.kind[0].tolist() == [SELECT, SELECT, STOPPED]
  # Image 3 is gold here, not one that merely fits as well.
  assert list_true(made.positive_mask[0, 0]) == [1, 3]
  assert list_true(made.competitor_mask[0, 0]) == [1, 2, 3, 4]
  assert list_true(made.positive_mask[0, 1]) == [4]


def test_nothing_is_labelled_once_the_chain_is_lost():
  made = make_targets([1, BACK, 4, BACK])
  assert made.mask.tolist() == [[True, True, False, False]]


def test_any_image_will_do_while_the_right_one_is_rejected():
  # Gold, back, another image, back, and gold may return.
  made = make_targets(
    [1, BACK, 3, BACK, 1, 2],
    equals='positive',
    rejection='selection',
  )
  assert made.mask.all()
  kinds = [SELECT, SELECT, SELECT, BACKTRACK, SELECT, SELECT]
  assert made.kind[0].tolist() == kinds
  asked = imitation.find_selections(made)[0].tolist()
  assert asked == [True, True, False, False, True, True]
  assert not made.positive_mask[0, 2].any()
  # What was rejected just now competes no more, what was earlier does.
  assert list_true(made.competitor_mask[0, 2]) == [2, 3, 4]
  assert list_true(made.competitor_mask[0, 4]) == [1, 2, 4]
  cosines = jnp.linspace(0, 1, 36).reshape(1, 6, 6)
  losses = [
    imitation.compute_select_loss(
      changed, jnp.asarray(2.0), made, margin=9.0, absence=jnp.asarray(0.5)
    )
    for changed in (cosines, cosines.at[0, 2].set(-1.0))
  ]
  assert losses[0] == losses[1]


def test_select_loss_by_hand():
  # Two labels: log(1 + e^(s4-s1)) over candidates {1, 4} where only those
  # compete, and at the second state log(1 + e^0 + e^0).
  made = make_targets([1, 2, STOP])
  made = dataclasses.replace(
    made, competitor_mask=made.competitor_mask.at[0, 0, 2].set(False)
  )
  cosines = jnp.zeros((1, 3, 6)).at[0, 0, 1].set(0.5)
  loss, absent, withdrawn = imitation.compute_select_loss(
    cosines, jnp.asarray(2.0), made, margin=9.0
  )
  np.testing.assert_allclose(
    loss, (np.log(1 + np.exp(-1)) + np.log(3)) / 2, rtol=1e-5
  )
  assert absent == withdrawn == 0


def test_absence_competes_and_is_right_where_the_expert_leaves():
  # Select 1 of {1, 4} (3 is ignored), leave 3 whose candidates are {1, 2, 4},
  # then select 1 again and 2.
  made = make_targets([3, BACK, 1, 2, STOP])
  cosines = jnp.zeros((1, 5, 6)).at[0, 0, 1].set(0.5).at[0, 1, 4].set(0.4)
  loss, absent, withdrawn = imitation.compute_select_loss(
    cosines, jnp.asarray(2.0), made, margin=9.0, absence=jnp.asarray(0.25)
  )
  e = lambda cosine: np.exp(2 * cosine)  # noqa: E731
  # Competitors of each Select: image 2 and 4, or 4; and absence.
  first = np.log((e(0.5) + 2 * e(0) + e(0.25)) / e(0.5))
  again = np.log((3 * e(0) + e(0.25)) / e(0))
  second = np.log((2 * e(0) + e(0.25)) / e(0))
  np.testing.assert_allclose(loss, (first + again + second) / 3, rtol=1e-5)
  left = np.log((2 * e(0) + e(0.4) + e(0.25)) / e(0.25))
  np.testing.assert_allclose(absent, left, rtol=1e-5)
  # What is left without the right image: two others, twice, then one.
  counts = [np.log((n * e(0) + e(0.25)) / e(0.25)) for n in (2, 2, 1)]
  np.testing.assert_allclose(withdrawn, np.mean(counts), rtol=1e-5)


def test_gate_loss_by_hand():
  # Depth 0, then one closed gate of each kind on gold, then Stop.
  actions = [3, BACK, 1, 2, STOP]
  made = make_targets(actions)
  stop = jnp.array([[9.0, -1.0, 9.0, -2.0, 3.0]])
  back = jnp.array([[9.0, 2.0, 9.0, 1.0, 9.0]])
  tried = jnp.array([[0, 0, 1, 1, 0]])
  loss, named = imitation.compute_gate_loss(
    stop,
    back,
    replay(actions, 'final').depth,
    tried,
    made,
    leave_shares=(0.25, 0.4),
  )
  cost = lambda x: np.log(1 + np.exp(-x))  # noqa: E731
  # Open: the last state. Closed: the states at depth 1.
  stops = (cost(3) + (cost(1) + cost(2)) / 2) / 2
  # Open: on the dead end, the first there. Closed: on the gold image after it,
  # where the gate is wrong.
  backs = (0.25 * cost(2) + 0.6 * cost(-1)) / 2
  np.testing.assert_allclose(loss, stops + backs, rtol=1e-5)
  assert {k: float(v) for k, v in named.items()} == {
    'stop_on': 1, 'stop_off': 1, 'back_on': 1, 'back_off': 0
  }  # fmt: skip


def test_recalls_of_each_hop():
  actions = [3, BACK, 1, 2, STOP]
  made = make_targets(actions)
  # At hop 1 the best candidate is right once of twice; at hop 2 it is wrong.
  # The query image does not count, though it looks best.
  cosines = jnp.full((1, 5, 6), 0.0).at[0, :, 0].set(1.0)
  cosines = cosines.at[0, 0, 1].set(0.5).at[0, 2, 4].set(0.5)
  cosines = cosines.at[0, 3, 4].set(0.5)
  made_recalls = imitation.compute_recalls(
    cosines, replay(actions, 'final').depth, made, 2
  )
  assert {k: float(v) for k, v in made_recalls.items()} == {
    'hop1_r1': 0.5, 'hop2_r1': 0.0
  }  # fmt: skip

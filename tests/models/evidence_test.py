"""Tests what the router remembers and its gates are told, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax.models import evidence as evidence_lib

BUDGET, IMAGES = 4, 4


def make_notes(*, choice=(0, 0), beside=(), after=()):
  """Returns notes of a stack of two images.

  Args:
    choice: of the topmost.
    beside: what went on from the images rejected in its place.
    after: what went on from those rejected after it.
  """
  notes = evidence_lib.start_notes(1, BUDGET)
  best = notes.best
  for place, others in ((1, beside), (2, after)):
    best = best.at[0, place].set(max(others, default=-1))
  return dataclasses.replace(
    notes,
    choice=notes.choice.at[0, 1].set(jnp.array(choice)),
    tried=notes.tried.at[0, 1].set(len(beside)).at[0, 2].set(len(after)),
    best=best,
  )


def compute(notes, *, depth=2):
  # Two candidates of five: cosines 0.6 and 0.4.
  return evidence_lib.compute_evidence(
    jnp.array([[0.9, 0.4, 0.8, 0.6, 0.7]]),
    jnp.array([[False, True, False, True, False]]),
    inverse_temperature=jnp.asarray(10.0),
    depth=jnp.array([depth]),
    decisions_left=jnp.array([8]),
    notes=notes,
  )[0]


def test_evidence_by_hand():
  made = compute(
    make_notes(choice=(0.7, 0.5), beside=(0.1, 0.2), after=(0.3,) * 7)
  )
  # With 1 / tau = 10 the selection is sigmoid(2) against sigmoid(-2).
  p = 1 / (1 + np.exp(-2))
  entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
  depth = [0, 0, 1, 0, 0, 0, 0, 0]
  beside, after = [0, 0, 1, 0, 2, 4, 1], [0, 0, 0, 1, 3]
  expected = [6, 4, *[-10] * 6, 2, *[16] * 6, entropy, *depth, 8 / 16, 7, 5, 2]
  np.testing.assert_allclose(made, [*expected, *beside, *after], rtol=1e-5)
  assert made.shape == (evidence_lib.EVIDENCE_SIZE,)


def test_evidence_before_anything_was_selected():
  made = compute(make_notes(choice=(0.7, 0.5), beside=(0.1,)), depth=0)
  nothing = [1, 0, 0, 0, 0]
  np.testing.assert_array_equal(made[-15:], [0, 0, 0, *nothing, 0, 0, *nothing])


@pytest.mark.parametrize(
  ('beside', 'nothing_better'),
  [((), 0), ((0.1,), 1), ((0.6, 0.1), 1), ((0.1, 0.61), 0)],
)
def test_evidence_says_whether_a_better_image_was_tried(beside, nothing_better):
  assert compute(make_notes(beside=beside))[-6] == nothing_better


def test_no_gradient_flows_through_the_evidence():
  def total(cosines, scale, notes):
    return evidence_lib.compute_evidence(
      cosines,
      jnp.ones((1, 3), bool),
      inverse_temperature=scale,
      depth=jnp.array([2]),
      decisions_left=jnp.array([1]),
      notes=notes,
    ).sum()

  grads = jax.grad(total, argnums=(0, 1, 2), allow_int=True)(
    jnp.array([[0.1, 0.2, 0.3]]),
    jnp.asarray(2.0),
    make_notes(choice=(0.7, 0.5), beside=(0.1,), after=(0.3,)),
  )
  for grad in (*grads[:2], grads[2].choice, grads[2].best):
    np.testing.assert_array_equal(grad, 0)


def note(seen, candidates, image, *, depth, is_select=True):
  return evidence_lib.make_note(
    jnp.array([seen]),
    jnp.array([candidates], bool),
    jnp.array([image]),
    depth=jnp.array([depth]),
    is_select=jnp.array([is_select]),
  )


def test_a_note_compares_the_selected_image_with_its_best_rival():
  made = note([0.9, 0.4, 0.8], [0, 1, 1], 0, depth=1)
  np.testing.assert_allclose(made.choice, [[0.9, 0.8]], rtol=1e-6)
  made = note([0.9, 0.4, 0.8], [0, 0, 0], 2, depth=1)
  np.testing.assert_allclose(made.choice, [[0.8, -1.0]], rtol=1e-6)


def test_notes_of_a_place_last_while_what_is_below_stays():
  notes = evidence_lib.start_notes(1, BUDGET)
  for image, depth, is_select, tried, best in (
    (0, 1, True, [0, 0], [-1, -1]),
    (1, 2, True, [0, 0], [-1, -1]),
    # Image 2 would have gone on from there.
    (0, 1, False, [0, 1], [-1, 0.3]),
    (3, 2, True, [0, 1], [-1, 0.3]),
    (0, 1, False, [0, 2], [-1, 0.3]),
    (0, 0, False, [1, 2], [0.3, 0.3]),
    # Another image below: nothing was tried after it yet.
    (1, 1, True, [1, 0], [0.3, -1]),
  ):
    made = note(
      [0.5, 0.1, 0.3, 0.0],
      [0, 0, 1, 0],
      image,
      depth=depth,
      is_select=is_select,
    )
    notes = evidence_lib.take_note(notes, made)
    assert notes.tried[0].tolist() == [*tried, 0, 0]
    np.testing.assert_allclose(notes.best[0], [*best, -1, -1], rtol=1e-6)
  np.testing.assert_allclose(notes.choice[0, :2], [[0.1, 0.3], [0, 0.3]])


def test_a_rejected_image_is_discounted_by_what_went_on_from_it():
  notes = evidence_lib.start_notes(1, BUDGET)
  # Image 2 would have gone on from 1, and 3 from 0.
  discounts = []
  for seen, image, depth, is_select in (
    ([0.5, 0.1, 0.3, 0.0], 0, 1, True),
    ([0.5, 0.1, 0.3, 0.0], 1, 2, True),
    ([0.5, 0.1, 0.3, 0.0], 0, 1, False),
    ([0.5, 0.1, 0.3, 0.0], 3, 2, True),
    ([0.5, 0.1, 0.3, 0.0], 0, 1, False),
    ([0.5, 0.1, 0.7, 0.0], 0, 0, False),
    ([0.5, 0.1, 0.3, 0.0], 1, 1, True),
  ):
    made = note(seen, [0, 0, 1, 0], image, depth=depth, is_select=is_select)
    notes = evidence_lib.take_note(notes, made)
    discounts.append(
      evidence_lib.compute_discount(
        notes,
        jnp.array([depth]),
        num_images=IMAGES,
        inverse_temperature=jnp.asarray(10.0),
        absence=jnp.asarray(0.5),
      )[0]
    )
  low, high = -np.log(1 + np.exp(2)), -np.log(1 + np.exp(-2))
  np.testing.assert_allclose(
    discounts,
    [
      [0, 0, 0, 0],
      [0, 0, 0, 0],
      [0, low, 0, 0],
      [0, 0, 0, 0],
      [0, low, 0, low],
      # Those rejected after image 0 count no more; it could go on better.
      [high, 0, 0, 0],
      [0, 0, 0, 0],
    ],
    rtol=1e-5,
  )


@pytest.mark.parametrize('count', [5, 4095, 4096, 5000])
def test_best_of_a_large_gallery_are_those_of_sorting(count):
  rng = np.random.default_rng(count)
  cosines = rng.uniform(-0.9, 0.9, (2, 3, count)).astype(np.float32)
  # Several of the best in one block.
  cosines[0, 0, :3] = 0.95
  best = evidence_lib._find_best(jnp.asarray(cosines))
  expected = -np.sort(-cosines, axis=-1)[..., : evidence_lib.EVIDENCE_IMAGES]
  np.testing.assert_array_equal(best[..., : expected.shape[-1]], expected)
  assert (best[..., count:] == -1).all()

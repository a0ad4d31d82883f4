"""Puts pieces of images in front of others."""

import numpy as np

from vhop_jax.data import cover

# Each image is of one grey of its own.
PIXELS = np.broadcast_to(
  np.arange(1, 41, dtype=np.uint8)[:, None, None, None], (40, 32, 48, 3)
)


def run(frac, seed=0):
  return cover.cover(PIXELS, np.random.default_rng(seed), frac=frac)


def test_a_share_is_covered_low_down_by_a_small_piece_of_another():
  covered = run(0.5)
  changed = (covered != PIXELS).any(axis=3)
  hit = changed.any(axis=(1, 2))
  assert 10 < hit.sum() < 30
  for image, mask in zip(covered[hit], changed[hit], strict=True):
    # All of it comes from one other image.
    (grey,) = np.unique(image[mask])
    assert 1 <= grey <= 40
    rows = np.flatnonzero(mask.any(axis=1))
    # Nothing above what is the highest piece at its highest place.
    assert rows[0] >= (0.8 - 0.32) * 32 - 1
    assert rows[-1] >= 0.8 * 32 - 2
    assert mask.sum() < 0.12 * mask.size


def test_draws_follow_the_generator_and_pixels_stay_as_they_were():
  before = PIXELS.copy()
  np.testing.assert_array_equal(run(0.5), run(0.5))
  assert (run(0.5) != run(0.5, seed=1)).any()
  np.testing.assert_array_equal(run(0.0), PIXELS)
  assert (run(1.0) != PIXELS).any(axis=(1, 2, 3)).all()
  np.testing.assert_array_equal(PIXELS, before)

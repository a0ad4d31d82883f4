import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.models import positions

IMAGE = 9


def test_positions_by_hand():
  # Text at 0 and 1; an image of 2 x 3 merged patches starts at 2 and reaches
  # 4, so the next text is at 2 + max(2, 3) = 5; an image of one patch is at
  # 6; the text after it at 7; padding at 0.
  tokens = np.array([[1, 2, *[IMAGE] * 6, 3, IMAGE, 4, 0]])
  got = positions.compute_rope_positions(
    tokens,
    np.array([[1, 4, 6], [1, 2, 2]]),
    image_token_id=IMAGE,
    mask=np.arange(12)[None] < 11,
  )
  expected = [
    [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 0],
    [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 0],
    [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 0],
  ]
  np.testing.assert_array_equal(got[:, 0], expected)


def test_rows_take_their_images_in_turn_and_touching_images_part():
  # Row 0: a tall image (2 x 1) and, with no text between, one of 1 x 1: it
  # starts at 0 + max(2, 1). Row 1 takes the third image.
  tokens = np.array([[IMAGE] * 3, [5, IMAGE, IMAGE]])
  got = positions.compute_rope_positions(
    tokens,
    np.array([[1, 4, 2], [1, 2, 2], [1, 2, 4]]),
    image_token_id=IMAGE,
  )
  np.testing.assert_array_equal(got[:, 0], [[0, 0, 2], [0, 1, 2], [0, 0, 2]])
  np.testing.assert_array_equal(got[:, 1], [[0, 1, 1], [0, 1, 1], [0, 1, 2]])


@pytest.mark.parametrize(
  'tokens, grids, message',
  [
    ([[1, IMAGE]], [], 'beyond the 0 images'),
    ([[1, IMAGE]], [[1, 4, 4]], 'needs 4 image tokens'),
    ([[1, IMAGE, 2, 3, 4]], [[1, 2, 4]], 'needs 2 image tokens'),
    ([[1, 2]], [[1, 2, 2]], '1 images were given'),
  ],
)
def test_tokens_and_images_must_match(tokens, grids, message):
  with pytest.raises(errors.DataError, match=message):
    positions.compute_rope_positions(
      np.array(tokens),
      np.array(grids, int).reshape(-1, 3),
      image_token_id=IMAGE,
    )


def test_visual_index_counts_through_the_rows():
  tokens = np.array([[1, IMAGE, 2], [IMAGE, IMAGE, 3]])
  np.testing.assert_array_equal(
    positions.compute_visual_index(tokens, image_token_id=IMAGE),
    [[-1, 0, -1], [1, 2, -1]],
  )

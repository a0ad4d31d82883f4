"""Puts something small in front of images, as clutter to be looked past.

Copy-paste augmentation (Ghiasi et al., 2021) without masks: half of another
image, where one of its objects stands, is shrunk and pasted through an ellipse.
"""

import numpy as np
from PIL import Image

from vhop_jax.typing import UInt8, ndarray

# Of the height of an image: how high the ellipse is, and where it ends.
_HEIGHTS = (0.14, 0.32)
_BOTTOMS = (0.8, 1.0)
# Of the rows of an image: where objects stand.
_OBJECT_ROWS = (0.2, 0.9)


def cover(
  pixels: UInt8[ndarray, 'N H W 3'], rng: np.random.Generator, *, frac: float
) -> UInt8[ndarray, 'N H W 3']:
  """Returns images some of which have a piece of another one in front.

  Args:
    pixels: of at least two images.
    rng: draws which, of what, and where.
    frac: share of the images.
  """
  covered = pixels.copy()
  count, height, width, _ = pixels.shape
  for number in np.flatnonzero(rng.random(count) < frac):
    other = (number + 1 + rng.integers(count - 1)) % count
    top, bottom = (round(share * height) for share in _OBJECT_ROWS)
    left = rng.integers(2) * (width // 2)
    piece = Image.fromarray(pixels[other, top:bottom, left : left + width // 2])
    rows = max(2, round(rng.uniform(*_HEIGHTS) * height))
    columns = max(2, round(rows * rng.uniform(0.7, 1.3)))
    small = np.asarray(piece.resize((columns, rows)))
    y = round(rng.uniform(*_BOTTOMS) * height) - rows
    x = int(rng.integers(width - columns + 1))
    place = covered[number, y : y + rows, x : x + columns]
    v, u = np.meshgrid(
      np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing='ij'
    )
    inside = (u**2 + v**2 <= 1)[:, :, None]
    place[:] = np.where(inside, small, place)
  return covered

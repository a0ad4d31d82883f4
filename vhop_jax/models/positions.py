"""Host-side positions of the tokens of a sequence, in NumPy.

What `get_rope_index` of transformers' Qwen3-VL computes, for images: text
counts on, the tokens of an image share one time and spread over height and
width, and the text after an image goes on from the largest position in it.
"""

import numpy as np

from vhop_jax import errors
from vhop_jax.typing import Bool, Int, Int32, ndarray, typed

NO_VISUAL = -1


@typed
def compute_rope_positions(
  tokens: Int[ndarray, 'B S'],
  image_grid_thw: Int[ndarray, 'images 3'],
  *,
  image_token_id: int,
  mask: Bool[ndarray, 'B S'] | None = None,
  merge_size: int = 2,
) -> Int32[ndarray, '3 B S']:
  """Computes M-RoPE positions (time, height, width) of every token.

  Args:
    tokens: with one image token for each merged patch.
    image_grid_thw: patches of each image along time, height and width (before
      merging), in the order of the images over the rows of the batch.
    image_token_id: the token that stands for a merged patch.
    mask: True at tokens, False at padding, which gets position 0 and may
      stand anywhere; all True if None.
    merge_size: patches per merged patch, along each side.

  Returns:
    The positions.

  Raises:
    DataError: if the image tokens do not match the grids.
  """
  if mask is None:
    mask = np.ones(tokens.shape, bool)
  positions = np.zeros((3, *tokens.shape), np.int32)
  next_image = 0
  for row in range(tokens.shape[0]):
    slots = np.flatnonzero(mask[row])
    is_image = tokens[row, slots] == image_token_id
    start, i = 0, 0
    while i < len(slots):
      if not is_image[i]:
        end = i
        while end < len(slots) and not is_image[end]:
          end += 1
        count = end - i
        positions[:, row, slots[i:end]] = np.arange(start, start + count)[None]
        start += count
      else:
        if next_image == len(image_grid_thw):
          raise errors.DataError(
            f'row {row} of the batch holds image tokens beyond the '
            f'{len(image_grid_thw)} images given: pass one grid for each image'
          )
        t, h, w = (int(size) for size in image_grid_thw[next_image])
        h, w = h // merge_size, w // merge_size
        end = i + t * h * w
        if end > len(slots) or not is_image[i:end].all():
          raise errors.DataError(
            f'image {next_image} needs {t * h * w} image tokens in a run in '
            f'row {row} of the batch, and there are fewer: was the text cut?'
          )
        grid = np.indices((t, h, w), np.int32).reshape(3, -1)
        positions[:, row, slots[i:end]] = grid + start
        start += max(h, w)
        next_image += 1
      i = end
  if next_image != len(image_grid_thw):
    raise errors.DataError(
      f'{len(image_grid_thw)} images were given and the tokens name '
      f'{next_image}: every image needs its image tokens'
    )
  return positions


@typed
def compute_visual_index(
  tokens: Int[ndarray, 'B S'], *, image_token_id: int
) -> Int32[ndarray, 'B S']:
  """Says which merged patch each slot shows.

  Args:
    tokens: with one image token for each merged patch; the images in the
      order in which their patches are packed.
    image_token_id: the token that stands for a merged patch.

  Returns:
    The index of the merged patch, `NO_VISUAL` at text and padding.
  """
  is_image = tokens == image_token_id
  index = np.cumsum(is_image).reshape(tokens.shape) - 1
  return np.where(is_image, index, NO_VISUAL).astype(np.int32)

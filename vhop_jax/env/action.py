"""Numbers the actions: Select(i) is i, then comes Backtrack, then Stop.

So the log-probabilities of all actions over a gallery of N images are one
array [B, N + 2].
"""

import jax.numpy as jnp

from vhop_jax.typing import Array, Int

SELECT, BACKTRACK, STOP = range(3)  # The kinds of action.
NUM_KINDS = 3


def make_backtrack(num_images: int) -> int:
  """Returns the number of Backtrack over a gallery of that size."""
  return num_images


def make_stop(num_images: int) -> int:
  """Returns the number of Stop over a gallery of that size."""
  return num_images + 1


def find_kind(action: Int[Array, '*B'], num_images: int) -> Int[Array, '*B']:
  """Returns the kind of each action."""
  return jnp.maximum(action - num_images + 1, SELECT)

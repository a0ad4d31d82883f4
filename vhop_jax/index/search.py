"""Searches a gallery by scores."""

import numpy as np

from vhop_jax.typing import Bool, Float, Int, ndarray, typed

EXCLUDED_SCORE = -np.inf


@typed
def find_top(
  scores: Float[ndarray, 'B N'], candidate_mask: Bool[ndarray, 'B N'], k: int
) -> Int[ndarray, 'B K']:
  """Returns the k best candidates of each row, best first."""
  masked = np.where(candidate_mask, scores, EXCLUDED_SCORE)
  return np.argsort(-masked, axis=1, kind='stable')[:, :k]

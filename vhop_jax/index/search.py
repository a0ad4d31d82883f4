"""Ranks gallery images by their scores."""

import numpy as np

from vhop_jax.typing import Bool, Float, Int, ndarray, typed

EXCLUDED_SCORE = -np.inf


@typed
def compute_ranks(
  scores: Float[ndarray, 'B N'],
  targets: Int[ndarray, 'B'],
  candidate_mask: Bool[ndarray, 'B N'],
) -> Int[ndarray, 'B']:
  """Returns the rank of each row's target among its candidates, from 1.

  Ties count against the target, so that equal scores are no success.

  Args:
    scores: similarity of each gallery image.
    targets: index of the right image, which must be a candidate.
    candidate_mask: True at images that may be retrieved.
  """
  own = np.take_along_axis(scores, targets[:, None], axis=1)
  ahead = (scores >= own) & candidate_mask
  return ahead.sum(axis=1)


@typed
def find_top(
  scores: Float[ndarray, 'B N'], candidate_mask: Bool[ndarray, 'B N'], k: int
) -> Int[ndarray, 'B K']:
  """Returns the k best candidates of each row, best first."""
  masked = np.where(candidate_mask, scores, EXCLUDED_SCORE)
  return np.argsort(-masked, axis=1, kind='stable')[:, :k]

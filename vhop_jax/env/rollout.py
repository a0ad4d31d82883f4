"""Rolls a router out over a gallery in one `lax.scan`."""

import functools

import flax
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Bool, Float, Int, Params


@flax.struct.dataclass
class Rollout:
  """Holds what greedy selection did.

  Attributes:
    selected: gallery index of the image selected at each decision.
    scores: its cosine with the state.
  """

  selected: Int[Array, 'B T']
  scores: Float[Array, 'B T']


@functools.partial(jax.jit, static_argnames=('module', 'steps'))
def select_greedily(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M D'],
  gallery: Float[Array | np.ndarray, 'N D'],
  *,
  steps: int,
) -> Rollout:
  """Selects the best candidate `steps` times; there is no stop.

  A candidate is every gallery image but the query image and what was selected
  before.

  Args:
    module: the router.
    params: its parameters.
    prefix: instruction and query image of each row, right-padded.
    segment: the layout of one decision, [1, M + 1].
    query_index: gallery index of the query image.
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
    steps: T, decisions.

  Raises:
    UsageError: there are fewer candidates than decisions.
  """
  if steps >= len(gallery):
    raise errors.UsageError(
      f'{steps} decisions are too many for a gallery of {len(gallery)} images:'
      ' take fewer, or a larger world'
    )
  gallery_visual, gallery = jnp.asarray(gallery_visual), jnp.asarray(gallery)
  variables = {'params': params}
  rows = jnp.arange(query_index.shape[0])
  candidate_mask = jnp.ones((len(rows), gallery.shape[0]), bool)
  candidate_mask = candidate_mask.at[rows, query_index].set(False)
  context = module.apply(
    variables,
    prefix,
    gallery_visual[query_index],
    max_length=prefix.tokens.shape[1] + steps * segment.tokens.shape[1],
    method='start',
  )

  def decide(
    carry: tuple[router_lib.Context, Bool[Array, 'B N']], _: None
  ) -> tuple[
    tuple[router_lib.Context, Bool[Array, 'B N']],
    tuple[Int[Array, 'B'], Float[Array, 'B']],
  ]:
    context, candidate_mask = carry
    queries, _ = module.apply(variables, context.state, method='make_queries')
    scores = jnp.where(candidate_mask, queries @ gallery.T, -jnp.inf)
    chosen = jnp.argmax(scores, axis=1)
    context = module.apply(
      variables, context, segment, gallery_visual[chosen], method='advance'
    )
    candidate_mask = candidate_mask.at[rows, chosen].set(False)
    return (context, candidate_mask), (chosen, jnp.max(scores, axis=1))

  _, (selected, scores) = jax.lax.scan(
    decide, (context, candidate_mask), None, length=steps
  )
  return Rollout(selected=selected.T, scores=scores.T)

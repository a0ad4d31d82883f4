"""Makes the policy that a router is over one gallery."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.env import action as action_lib
from vhop_jax.env import beam as beam_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import state as state_lib
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Float, Int, Params


def make_policy(
  module: router_lib.Router,
  params: Params,
  decisions: sequence_lib.Sequence,
  gallery_visual: Float[Array | np.ndarray, 'N M D'],
  gallery: Float[Array | np.ndarray, 'N D'],
) -> policy_lib.Policy:
  """Makes the policy; its context is a `router.Context`.

  Args:
    module: the router.
    params: its parameters.
    decisions: the layout of each kind, [3, M + 1].
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
  """
  gallery_visual, gallery = jnp.asarray(gallery_visual), jnp.asarray(gallery)
  count = len(gallery)

  def apply(*args: Any, method: str) -> Any:
    return module.apply({'params': params}, *args, method=method)

  def score(
    context: router_lib.Context, state: state_lib.State
  ) -> policy_lib.Scores:
    queries, scale = apply(context.state, method='make_queries')
    cosines = queries @ gallery.T
    evidence = router_lib.compute_evidence(
      cosines,
      state_lib.make_candidate_mask(state),
      inverse_temperature=scale,
      depth=state.depth,
      decisions_left=state.budget - state.decisions,
    )
    stop, backtrack = apply(context.state, evidence, method='compute_gates')
    return policy_lib.Scores(
      select=scale * cosines, stop=stop, backtrack=backtrack
    )

  def advance(
    context: router_lib.Context, action: Array, state: state_lib.State
  ) -> router_lib.Context:
    # A rollout that is done reads nothing more.
    kind = jnp.where(
      state_lib.is_done(state),
      action_lib.STOP,
      action_lib.find_kind(action, count),
    )
    visual = gallery_visual[jnp.minimum(action, count - 1)]
    moved: router_lib.Context = apply(
      context, decisions, kind, visual, method='advance'
    )
    return moved

  return policy_lib.Policy(
    score=score, advance=advance, take=router_lib.take_context
  )


def _start(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  decisions: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M D'],
  gallery: Float[Array | np.ndarray, 'N D'],
  *,
  budget: int,
) -> tuple[policy_lib.Policy, router_lib.Context, state_lib.State]:
  """Returns the policy, its context and the state before the first decision."""
  context = module.apply(
    {'params': params},
    prefix,
    jnp.asarray(gallery_visual)[query_index],
    max_length=prefix.tokens.shape[1] + budget * decisions.tokens.shape[1],
    method='start',
  )
  policy = make_policy(module, params, decisions, gallery_visual, gallery)
  state = state_lib.start(
    query_index, num_images=gallery.shape[0], budget=budget
  )
  return policy, context, state


@functools.partial(
  jax.jit, static_argnames=('module', 'budget', 'choose', 'forgets')
)
def route(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  decisions: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M D'],
  gallery: Float[Array | np.ndarray, 'N D'],
  rng: Array,
  *,
  budget: int,
  choose: rollout_lib.Choose,
  forgets: bool,
  stop_depth: Int[Array | np.ndarray, 'B'] | None = None,
) -> rollout_lib.Rollout:
  """Rolls a router out over a gallery.

  Args:
    module: the router.
    params: its parameters.
    prefix: instruction and query image of each row, right-padded.
    decisions: the layout of each kind, [3, M + 1].
    query_index: gallery index of the query image.
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
    rng: for `choose`.
    budget: T, decisions.
    choose: how an action is taken.
    forgets: as in `state.step`.
    stop_depth: as in `state.make_legal_mask`.

  Raises:
    UsageError: there are fewer candidates than decisions.
  """
  policy, context, state = _start(
    module,
    params,
    prefix,
    decisions,
    query_index,
    gallery_visual,
    gallery,
    budget=budget,
  )
  return rollout_lib.roll_out(
    policy,
    context,
    state,
    choose=choose,
    rng=rng,
    forgets=forgets,
    stop_depth=stop_depth,
  )


@functools.partial(jax.jit, static_argnames=('module', 'longest', 'width'))
def search(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  decisions: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M D'],
  gallery: Float[Array | np.ndarray, 'N D'],
  *,
  longest: int,
  width: int,
) -> beam_lib.Beams:
  """Searches the most probable chains, see `beam.search`.

  Args:
    module: the router.
    params: its parameters.
    prefix: instruction and query image of each row, right-padded.
    decisions: the layout of each kind, [3, M + 1].
    query_index: gallery index of the query image.
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
    longest: images of the longest chain.
    width: K, chains kept at each length.
  """
  policy, context, state = _start(
    module,
    params,
    prefix,
    decisions,
    query_index,
    gallery_visual,
    gallery,
    budget=longest + 1,
  )
  return beam_lib.search(policy, context, state, width=width)

"""Makes the policy that a router is over one gallery."""

import functools
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.env import action as action_lib
from vhop_jax.env import beam as beam_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import state as state_lib
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Float, Int, Params


@flax.struct.dataclass
class Context:
  """Holds what the policy carries from decision to decision.

  Attributes:
    router: what it has read.
    notes: what the gates are told of what happened before.
  """

  router: router_lib.Context
  notes: evidence_lib.Notes


def take_context(context: Context, rows: Int[Array, 'P']) -> Context:
  """Returns the context of some rows, in that order; they may repeat."""
  return Context(
    router=router_lib.take_context(context.router, rows),
    notes=jax.tree.map(lambda x: x[rows], context.notes),
  )


def start(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_visual: Float[Array, 'B M packed'],
  *,
  budget: int,
) -> Context:
  """Returns the context before the first decision.

  Args:
    module: the router.
    params: its parameters.
    prefix: instruction and query image of each row, right-padded.
    segment: the layout of one decision, [1, M + 1].
    query_visual: visual tokens of the query images.
    budget: T, decisions.
  """
  router = module.apply(
    router_lib.make_variables(params),
    prefix,
    segment,
    query_visual,
    budget=budget,
    method='start',
  )
  notes = evidence_lib.start_notes(query_visual.shape[0], budget)
  return Context(router=router, notes=notes)


def make_policy(
  module: router_lib.Router,
  params: Params,
  segment: sequence_lib.Sequence,
  gallery_visual: Float[Array | np.ndarray, 'N M packed'],
  gallery: Float[Array | np.ndarray, 'N D'],
) -> policy_lib.Policy:
  """Makes the policy; its context is a `Context`.

  Args:
    module: the router.
    params: its parameters.
    segment: the layout of one decision, [1, M + 1].
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
  """
  gallery_visual, gallery = jnp.asarray(gallery_visual), jnp.asarray(gallery)
  variables = router_lib.make_variables(params)

  def apply(*args: Any, method: str) -> Any:
    return module.apply(variables, *args, method=method)

  def score(context: Context, state: state_lib.State) -> policy_lib.Scores:
    encoded = context.router.state
    queries, scale = apply(encoded, method='make_queries')
    cosines = queries @ gallery.T
    evidence = evidence_lib.compute_evidence(
      cosines,
      state_lib.make_candidate_mask(state),
      inverse_temperature=scale,
      depth=state.depth,
      decisions_left=state.budget - state.decisions,
      notes=context.notes,
    )
    stop, backtrack = apply(encoded, evidence, method='compute_gates')
    absence = apply(method='get_absence')
    return policy_lib.Scores(
      select=scale * cosines,
      stop=stop,
      backtrack=backtrack,
      discount=evidence_lib.compute_discount(
        context.notes,
        state.depth,
        num_images=state.num_images,
        inverse_temperature=scale,
        absence=absence,
      ),
      absence=jnp.broadcast_to(scale * absence, stop.shape),
    )

  def advance(
    context: Context, action: Array, state: state_lib.State
  ) -> Context:
    count = state.num_images
    is_select = action_lib.find_kind(action, count) == action_lib.SELECT
    # XLA shares this product with that of `score`.
    queries, _ = apply(context.router.state, method='make_queries')
    note = evidence_lib.make_note(
      queries @ gallery.T,
      state_lib.make_candidate_mask(state),
      jnp.minimum(action, count - 1),
      depth=state.depth,
      is_select=is_select,
    )
    moved: router_lib.Context = apply(
      context.router,
      segment,
      state.depth,
      is_select,
      gallery_visual[state_lib.get_top(state)],
      method='advance',
    )
    return Context(
      router=moved, notes=evidence_lib.take_note(context.notes, note)
    )

  return policy_lib.Policy(score=score, advance=advance, take=take_context)


def _start(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M packed'],
  gallery: Float[Array | np.ndarray, 'N D'],
  *,
  budget: int,
) -> tuple[policy_lib.Policy, Context, state_lib.State]:
  """Returns the policy, its context and the state before the first decision."""
  context = start(
    module,
    params,
    prefix,
    segment,
    jnp.asarray(gallery_visual)[query_index],
    budget=budget,
  )
  policy = make_policy(module, params, segment, gallery_visual, gallery)
  state = state_lib.start(
    query_index, num_images=gallery.shape[0], budget=budget
  )
  return policy, context, state


@functools.partial(
  jax.jit, static_argnames=('module', 'budget', 'choose', 'rejection')
)
def route(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M packed'],
  gallery: Float[Array | np.ndarray, 'N D'],
  rng: Array,
  *,
  budget: int,
  choose: rollout_lib.Choose,
  rejection: str,
  stop_depth: Int[Array | np.ndarray, 'B'] | None = None,
) -> rollout_lib.Rollout:
  """Rolls a router out over a gallery.

  Args:
    module: the router.
    params: its parameters.
    prefix: instruction and query image of each row, right-padded.
    segment: the layout of one decision, [1, M + 1].
    query_index: gallery index of the query image.
    gallery_visual: visual tokens of the gallery.
    gallery: embeddings of the gallery, of length 1.
    rng: for `choose`.
    budget: T, decisions.
    choose: how an action is taken.
    rejection: as in `state.step`.
    stop_depth: as in `state.make_legal_mask`.

  Raises:
    UsageError: there are fewer candidates than decisions.
  """
  policy, context, state = _start(
    module,
    params,
    prefix,
    segment,
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
    rejection=rejection,
    stop_depth=stop_depth,
  )


@functools.partial(jax.jit, static_argnames=('module', 'longest', 'width'))
def search(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_index: Int[Array | np.ndarray, 'B'],
  gallery_visual: Float[Array | np.ndarray, 'N M packed'],
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
    segment: the layout of one decision, [1, M + 1].
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
    segment,
    query_index,
    gallery_visual,
    gallery,
    budget=longest + 1,
  )
  return beam_lib.search(policy, context, state, width=width)

"""Routes: reads a causal sequence of decisions and scores the gallery.

The context of the policy is one sequence,

    [instruction][query image] <s>   [image] <s>   [image] <s> ...

and each decision adds the image that is on top of the stack after it: Select
the selected one, Backtrack once more the one below. The state token is told the
depth of the stack by an embedding of its own, zero before training. What a
state token sees of it is a setting, `view`:

  history  all that came before, taken back or not; the hidden state at the
           last <s> is the state s_t
  stack    the images below it on the stack, at the positions they would have
           without any detour. So each chain of images has one state, however
           it was reached, and Backtrack returns to the state of the chain
           that is left; what was tried is told by the evidence

`encode_states` reads a whole trajectory in one parallel pass; `start` and
`advance` read the same sequence decision by decision with a KV cache.
"""

import dataclasses

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Bool, Float, Int, Params, typed

VIEWS = ('history', 'stack')
# What the backtrack gate reads. The stop gate reads both, but for 'state'.
GATE_INPUTS = ('evidence', 'both', 'state')

_MAX_LOG_SCALE = 4.6  # ln 100, CLIP's bound on the inverse temperature.
_ABSENCE = 0.5  # Cosine of absence at the start.
_CLOSED_LOGIT = -4.0  # A gate's logit at the start: p = 0.02.


@flax.struct.dataclass
class Context:
  """Holds what the policy has read so far.

  Attributes:
    state: s_t of each row.
    cache: keys and values of the sequence.
    position: M-RoPE position of the first decision of each row.
    decisions: how many were read.
    put: for each place of the stack which decision put an image there; above
      the stack anything.
    states: after each of those decisions; before them that of an empty stack.
  """

  state: Float[Array, 'B D']
  cache: decoder_lib.Cache
  position: Int[Array, 'B']
  decisions: Int[Array, '']
  put: Int[Array, 'B T']
  states: Float[Array, 'B T+1 D']


@typed
def find_next_position(
  positions: Int[Array | np.ndarray, 'B 3 S'], mask: Array | np.ndarray
) -> Int[Array, 'B']:
  """Returns the position that follows each row's tokens."""
  return jnp.max(jnp.where(mask[:, None], positions, -1), axis=(1, 2)) + 1


def _init_identity(
  rng: Array, shape: tuple[int, ...], dtype: jnp.dtype
) -> Array:
  del rng
  return jnp.eye(shape[0], dtype=dtype)


def make_variables(params: Params) -> dict[str, Params]:
  """Returns what a router's `apply` takes, from its parameters as stored.

  With adapters both sides share one frozen text encoder, stored once as `base`;
  here it is put under each. Within `jit` that copies nothing.
  """
  if 'base' not in params:
    return {'params': params}
  sides = {
    side: lora_lib.join(params['base'], params[side])
    for side in ('state', 'gallery')
  }
  rest = {name: part for name, part in params.items() if name != 'base'}
  return {'params': {**rest, **sides}}


def take_cache(
  cache: decoder_lib.Cache, rows: Int[Array, 'P']
) -> decoder_lib.Cache:
  """Returns the cache of some rows, in that order; they may repeat."""
  taken: decoder_lib.Cache = dataclasses.replace(
    cache, k=cache.k[:, rows], v=cache.v[:, rows], mask=cache.mask[rows]
  )
  return taken


def take_context(context: Context, rows: Int[Array, 'P']) -> Context:
  """Returns the context of some rows, in that order; they may repeat."""
  return dataclasses.replace(
    context,
    state=context.state[rows],
    cache=take_cache(context.cache, rows),
    position=context.position[rows],
    put=context.put[rows],
    states=context.states[rows],
  )


def find_selects(depth: Int[Array, 'R T']) -> Bool[Array, 'R T']:
  """Tells which decisions were Select, from the depth after each."""
  return depth > jnp.pad(depth[:, :-1], ((0, 0), (1, 0)))


def find_visible(depth: Int[Array, 'R T']) -> Bool[Array, 'R T T']:
  """Says for each decision which put the images of its stack there.

  Args:
    depth: images on the stack after each decision.

  Returns:
    True where the second axis is a Select that was not taken back up to the
    first; a Backtrack sees what is left.
  """
  t = depth.shape[1]
  time = jnp.arange(t)
  # The lowest depth from each decision (last axis) on up to another.
  is_between = (time[:, None, None] >= time[None, :, None]) & (
    time[None, :, None] >= time[None, None, :]
  )
  lowest = jnp.min(
    jnp.where(is_between[None], depth[:, None, :, None], t), axis=2
  )
  is_earlier = time[None] <= time[:, None]
  stays = is_earlier[None] & (lowest >= depth[:, None, :])
  return stays & find_selects(depth)[:, None, :]


def _return_to_chains(
  states: Float[Array, 'R T+1 D'], seen: Bool[Array, 'R T T'] | None
) -> Float[Array, 'R T+1 D']:
  """Puts in place of each state that of the chain it stands for.

  Args:
    states: before the first decision and after each.
    seen: of `find_visible`; None leaves the states alone.
  """
  if seen is None:
    return states
  place = jnp.arange(seen.shape[2])[None, None]
  # The last image of the chain was the last that was put there.
  last = jnp.max(jnp.where(seen, place + 1, 0), axis=2)
  return embedder_lib.take_rows(states, jnp.pad(last, ((0, 0), (1, 0))))


def compute_scale(log_scale: Float[Array, '']) -> Float[Array, '']:
  """Returns 1 / tau from the parameter that holds its logarithm."""
  return jnp.exp(jnp.minimum(log_scale, _MAX_LOG_SCALE))


class SelectHead(nn.Module):
  """Turns a state into a query: norm(W s), W starting as the identity."""

  inverse_temperature: float

  @nn.compact
  @typed
  def __call__(
    self, states: Float[Array, '*B D']
  ) -> tuple[Float[Array, '*B D'], Float[Array, '']]:
    """Returns the normalised queries and the inverse temperature."""
    size = states.shape[-1]
    kernel = self.param(
      'kernel',
      nn.with_logical_partitioning(_init_identity, ('embed', None)),
      (size, size),
      jnp.float32,
    )
    log_scale = self.param(
      'log_scale',
      nn.initializers.constant(np.log(self.inverse_temperature)),
      (),
      jnp.float32,
    )
    flat = states.reshape(-1, size) @ kernel
    queries = embedder_lib.normalize(flat).reshape(states.shape)
    return queries, compute_scale(log_scale)


class AbsenceHead(nn.Module):
  """Holds the cosine above which an image goes on from a state."""

  @nn.compact
  def __call__(self) -> Float[Array, '']:
    """Returns the cosine."""
    cosine: Array = self.param(
      'cosine', nn.initializers.constant(_ABSENCE), (), jnp.float32
    )
    return cosine


class DepthEmbedding(nn.Module):
  """Tells a state token how many images are on the stack."""

  size: int

  @nn.compact
  @typed
  def __call__(self, depth: Int[Array, '*B']) -> Float[Array, '*B D']:
    """Returns what is added to the token; nothing at depth 0."""
    table = self.param(
      'table',
      nn.with_logical_partitioning(
        nn.initializers.zeros_init(), (None, 'embed')
      ),
      (evidence_lib.MAX_DEPTH, self.size),
      jnp.float32,
    )
    index = jnp.clip(depth, 1, evidence_lib.MAX_DEPTH) - 1
    return jnp.where(
      (depth > 0)[..., None], jnp.take(table, index, axis=0), 0.0
    )


class GateHead(nn.Module):
  """Turns a state and the evidence of its candidates into a gate's logit.

  Starts closed, so that an untrained router selects only.
  """

  hidden_size: int

  @nn.compact
  @typed
  def __call__(
    self, states: Float[Array, '*B D'], evidence: Float[Array, '*B E']
  ) -> Float[Array, '*B']:
    """Returns the logits."""
    inputs = jnp.concatenate([states, evidence], axis=-1)
    flat = inputs.reshape(-1, inputs.shape[-1])
    hidden = nn.gelu(nn.Dense(self.hidden_size, name='hidden')(flat))
    closed = nn.initializers.constant(_CLOSED_LOGIT)
    logits = nn.Dense(1, bias_init=closed, name='logit')(hidden)
    return logits.reshape(states.shape[:-1])


class Router(nn.Module):
  """VHOP-Router: the embedding model made autoregressive.

  The state side and the gallery side have parameters of their own, both
  starting as the embedding model's: the gallery can stay frozen while the
  state encoder warms up.

  Attributes:
    config: sizes of both text encoders.
    inverse_temperature: 1 / tau at the start of training.
    view: one of `VIEWS`.
    gate_input: one of `GATE_INPUTS`. A state is enough to learn the training
      worlds' dead ends by heart, which is of no use elsewhere.
    gate_size: hidden width of the gates.
  """

  config: decoder_lib.DecoderConfig
  inverse_temperature: float
  view: str = 'stack'
  gate_input: str = 'evidence'
  gate_size: int = 64

  def setup(self) -> None:
    """Declares both sides and the head."""
    self.state = embedder_lib.TextEncoder(self.config)
    self.gallery = embedder_lib.TextEncoder(self.config)
    self.select = SelectHead(self.inverse_temperature)
    self.absence = AbsenceHead()
    self.depth = DepthEmbedding(self.config.hidden_size)
    self.stop = GateHead(self.gate_size)
    self.backtrack = GateHead(self.gate_size)

  def embed_gallery(
    self, sequence: sequence_lib.Sequence, visual: Float[Array, 'N M packed']
  ) -> Float[Array, 'N D']:
    """Returns the embeddings d_i of images from their visual tokens."""
    return self.gallery.embed(sequence, visual)

  def make_queries(
    self, states: Float[Array, '*B D']
  ) -> tuple[Float[Array, '*B D'], Float[Array, '']]:
    """Returns norm(W s) and 1 / tau."""
    return self.select(states)

  def get_absence(self) -> Float[Array, '']:
    """Returns the cosine of the candidate that stands for no image."""
    return self.absence()

  def compute_gates(
    self, states: Float[Array, '*B D'], evidence: Float[Array, '*B E']
  ) -> tuple[Float[Array, '*B'], Float[Array, '*B']]:
    """Returns the logits of p_stop and p_bt."""
    if self.gate_input == 'state':
      evidence = jnp.zeros_like(evidence)
    stop = self.stop(states, evidence)
    if self.gate_input == 'evidence':
      states = jnp.zeros_like(states)
    return stop, self.backtrack(states, evidence)

  def encode_states(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M packed'],
    depth: Int[Array, 'R T'],
    top_visual: Float[Array, 'R T M packed'],
    *,
    rows: Int[Array, 'R'] | None = None,
  ) -> Float[Array, 'R T+1 D']:
    """Returns the states of whole trajectories by one parallel pass.

    Args:
      prefix: instruction and query image, right-padded.
      segment: the layout of one decision, [1, M + 1].
      query_visual: visual tokens of the query images.
      depth: images on the stack after each decision.
      top_visual: visual tokens of the topmost, or of the query image.
      rows: which of the B queries each trajectory belongs to, so that many of
        one query share its prefix; None for one of each.
    """
    r, t, m, packed = top_visual.shape
    d = self.config.hidden_size
    length, size = prefix.tokens.shape[1], segment.tokens.shape[1]
    first = find_next_position(prefix.positions, prefix.mask)
    if rows is not None:
      first = first[rows]
    step = find_next_position(segment.positions, segment.mask)[0]
    places = jnp.arange(t)[None]
    seen = visible = None
    if self.view == 'stack':
      places = jnp.maximum(depth - 1, 0)
      seen = find_visible(depth)
      visible = seen | jnp.eye(t, dtype=bool)[None]
      visible = jnp.repeat(jnp.repeat(visible, size, axis=1), size, axis=2)
      visible = jnp.pad(
        visible, ((0, 0), (0, 0), (length, 0)), constant_values=True
      )
    starts = first[:, None] + step * places
    positions = (
      starts[:, None, :, None] + jnp.asarray(segment.positions)[:, :, None, :]
    )
    offsets = m * jnp.arange(t)[:, None]
    index = jnp.asarray(segment.visual_index)
    index = jnp.where(index >= 0, index + offsets, index).reshape(-1)

    def tile(x: Array) -> Array:
      return jnp.broadcast_to(
        jnp.tile(jnp.asarray(x)[0], t)[None], (r, t * size)
      )

    tail = sequence_lib.Sequence(
      tokens=tile(segment.tokens),
      positions=positions.reshape(r, 3, t * size),
      mask=tile(segment.mask),
      visual_index=jnp.broadcast_to(index[None], (r, t * size)),
    )
    visual = top_visual.reshape(r, t * m, packed)
    shift = (
      jnp.zeros((r, t, size, d))
      .at[:, :, -1]
      .set(self.depth(jnp.asarray(depth)))
      .reshape(r, t * size, d)
    )
    last = embedder_lib.find_last(jnp.asarray(prefix.mask))[:, None]
    ends = jnp.broadcast_to((size * (1 + jnp.arange(t)) - 1)[None], (r, t))
    if rows is not None:
      cache = decoder_lib.make_cache(
        self.config, len(prefix.tokens), length + t * size
      )
      hidden, filled = self.state(prefix, query_visual, cache)
      assert filled is not None
      first_states = embedder_lib.take_rows(hidden, last)[rows]
      hidden, _ = self.state(
        tail, visual, take_cache(filled, rows), shift, visible
      )
      states = embedder_lib.take_rows(hidden, ends)
      states = jnp.concatenate([first_states, states], axis=1)
      return _return_to_chains(states, seen)
    tail = dataclasses.replace(
      tail,
      visual_index=jnp.where(
        tail.visual_index >= 0, tail.visual_index + m, tail.visual_index
      ),
    )
    sequence: sequence_lib.Sequence = jax.tree.map(
      lambda x, y: jnp.concatenate([x, y], axis=-1), prefix, tail
    )
    if visible is not None:
      visible = jnp.pad(
        visible, ((0, 0), (length, 0), (0, 0)), constant_values=True
      )
    hidden, _ = self.state(
      sequence,
      jnp.concatenate([query_visual, visual], axis=1),
      shift=jnp.pad(shift, ((0, 0), (length, 0), (0, 0))),
      visible=visible,
    )
    ends = jnp.concatenate([last, length + ends], axis=1)
    return _return_to_chains(embedder_lib.take_rows(hidden, ends), seen)

  def start(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M packed'],
    *,
    budget: int,
  ) -> Context:
    """Reads instruction and query image.

    Args:
      prefix: right-padded.
      segment: the layout of one decision, [1, M + 1].
      query_visual: visual tokens of the query images.
      budget: decisions that the cache has room for.
    """
    rows, length = prefix.tokens.shape
    cache = decoder_lib.make_cache(
      self.config, rows, length + budget * segment.tokens.shape[1]
    )
    hidden, filled = self.state(prefix, query_visual, cache)
    assert filled is not None
    last = embedder_lib.find_last(jnp.asarray(prefix.mask))
    states = embedder_lib.take_rows(hidden, last[:, None])
    return Context(
      state=states[:, 0],
      cache=filled,
      position=find_next_position(prefix.positions, prefix.mask),
      decisions=jnp.zeros((), jnp.int32),
      put=jnp.zeros((rows, budget), jnp.int32),
      states=jnp.repeat(states, budget + 1, axis=1),
    )

  def advance(
    self,
    context: Context,
    segment: sequence_lib.Sequence,
    depth: Int[Array, 'B'],
    is_select: Bool[Array, 'B'],
    visual: Float[Array, 'B M packed'],
  ) -> Context:
    """Reads one decision.

    Args:
      context: what was read before.
      segment: the layout of one decision, [1, M + 1].
      depth: images on the stack after the decision.
      is_select: whether it put the topmost there.
      visual: visual tokens of the topmost, or of the query image.
    """
    count, budget = context.put.shape
    size = segment.tokens.shape[1]
    place, visible = context.decisions, None
    index = jnp.arange(count)
    put = context.put.at[index, jnp.where(is_select, depth - 1, budget)].set(
      context.decisions, mode='drop'
    )
    if self.view == 'stack':
      place = jnp.maximum(depth - 1, 0)
      # False at the decisions that the stack does not hold.
      seen = jnp.zeros((count, budget), bool)
      seen = seen.at[
        index[:, None],
        jnp.where(jnp.arange(budget)[None] < depth[:, None], put, budget),
      ].set(True, mode='drop')
      seen = seen.at[:, context.decisions].set(True)
      seen = jnp.repeat(seen, size, axis=1)
      before = context.cache.mask.shape[1] - seen.shape[1]
      visible = jnp.pad(seen, ((0, 0), (before, 0)), constant_values=True)
      visible = jnp.broadcast_to(
        visible[:, None], (count, size, visible.shape[1])
      )
    rows = embedder_lib.repeat_rows(segment, count)
    step = find_next_position(segment.positions, segment.mask)[0]
    starts = context.position + step * place
    rows = dataclasses.replace(
      rows, positions=rows.positions + starts[:, None, None]
    )
    shift = jnp.zeros((*rows.tokens.shape, self.config.hidden_size))
    shift = shift.at[:, -1].set(self.depth(jnp.asarray(depth)))
    hidden, cache = self.state(rows, visual, context.cache, shift, visible)
    assert cache is not None
    state, states = hidden[:, -1], context.states
    if self.view == 'stack':
      states = states.at[index, jnp.where(is_select, depth, budget + 1)].set(
        state, mode='drop'
      )
      state = states[index, depth]
    return Context(
      state=state,
      cache=cache,
      position=context.position,
      decisions=context.decisions + 1,
      put=put,
      states=states,
    )

  def __call__(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    documents: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M packed'],
    depth: Int[Array, 'B T'],
    top_visual: Float[Array, 'B T M packed'],
    gallery_visual: Float[Array, 'N M packed'],
  ) -> Float[Array, 'B T+1 N']:
    """Returns the selection logits of whole trajectories, none masked."""
    states = self.encode_states(
      prefix, segment, query_visual, depth, top_visual
    )
    queries, scale = self.make_queries(states)
    gallery = self.embed_gallery(documents, gallery_visual)
    return scale * jnp.einsum('btd,nd->btn', queries, gallery)

"""Routes: reads a causal sequence of decisions and scores the gallery.

The context of the policy is one sequence,

    [instruction][query image] <s>   [image] <s>   [image] <s> ...

and each decision adds the image that is on top of the stack after it: Select
the selected one, Backtrack once more the one below. The state token is told the
depth of the stack by an embedding of its own, zero before training.

and the hidden state at each <s> is the state s_t. `encode_states` reads a
whole trajectory in one parallel pass; `start` and `advance` read the same
sequence decision by decision with a KV cache.
"""

import dataclasses

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Bool, Float, Int, typed

EVIDENCE_IMAGES = 8  # Best candidates that the gates are told about.
MAX_DEPTH = 8  # Greater depths are taken for this one.
EVIDENCE_SIZE = 2 * EVIDENCE_IMAGES + MAX_DEPTH + 4

_MAX_LOG_SCALE = 4.6  # ln 100, CLIP's bound on the inverse temperature.
_ABSENCE = 0.5  # Cosine of absence at the start.
_CLOSED_LOGIT = -4.0  # A gate's logit at the start: p = 0.02.
# Bring evidence near 1: a tenth is much between two cosines.
_COSINE_UNIT = 0.1
_DECISIONS_UNIT = 16.0


@flax.struct.dataclass
class Context:
  """Holds what the policy has read so far.

  Attributes:
    state: s_t of each row.
    cache: keys and values of the sequence.
    position: M-RoPE position of the next token of each row.
  """

  state: Float[Array, 'B D']
  cache: decoder_lib.Cache
  position: Int[Array, 'B']


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
  return Context(
    state=context.state[rows],
    cache=take_cache(context.cache, rows),
    position=context.position[rows],
  )


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
      (MAX_DEPTH, self.size),
      jnp.float32,
    )
    index = jnp.clip(depth, 1, MAX_DEPTH) - 1
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


def compute_evidence(
  cosines: Float[Array, '*B N'],
  candidate_mask: Bool[Array, '*B N'],
  *,
  inverse_temperature: Float[Array, ''],
  depth: Int[Array, '*B'],
  decisions_left: Int[Array, '*B'],
  choice: Float[Array, '*B 2'],
) -> Float[Array, '*B E']:
  """Says what a gate should know of the candidates.

  Without it a gate cannot tell that no image goes on from here, nor whether
  there is a better one to come back to. No gradient flows through it.

  Args:
    cosines: of each state with the gallery.
    candidate_mask: what may be selected.
    inverse_temperature: of the selection.
    depth: images on the stack.
    decisions_left: of the budget.
    choice: cosines of the image on top of the stack and of its best rival when
      it was selected; nothing is read of it at depth 0.

  Returns:
    The best cosines, their margins to the best, the entropy of the selection,
    the depth as a one-hot vector, the decisions left, and of the choice both
    cosines and their margin.
  """
  cosines, choice = jax.lax.stop_gradient((cosines, choice))
  choice = jnp.where((depth > 0)[..., None], choice, 0.0)
  logits = jnp.where(
    candidate_mask,
    jax.lax.stop_gradient(inverse_temperature) * cosines,
    -jnp.inf,
  )
  known = jnp.where(candidate_mask, cosines, -1.0)
  # A gallery may be smaller than that.
  missing = max(EVIDENCE_IMAGES - known.shape[-1], 0)
  widths = [(0, 0)] * (known.ndim - 1) + [(0, missing)]
  best, _ = jax.lax.top_k(
    jnp.pad(known, widths, constant_values=-1.0), EVIDENCE_IMAGES
  )
  # XLA would merge the slices below into the search and sort everything.
  best = jax.lax.optimization_barrier(best)
  log_probs = jax.nn.log_softmax(logits, axis=-1)
  entropy = -jnp.sum(
    jnp.where(candidate_mask, jnp.exp(log_probs) * log_probs, 0.0), axis=-1
  )
  return jnp.concatenate(
    [
      best / _COSINE_UNIT,
      (best[..., :1] - best[..., 1:]) / _COSINE_UNIT,
      entropy[..., None],
      jax.nn.one_hot(jnp.minimum(depth, MAX_DEPTH - 1), MAX_DEPTH),
      decisions_left[..., None] / _DECISIONS_UNIT,
      choice / _COSINE_UNIT,
      (choice[..., :1] - choice[..., 1:]) / _COSINE_UNIT,
    ],
    axis=-1,
  )


def compute_choice(
  cosines: Float[Array, '*B N'],
  rivals: Bool[Array, '*B N'],
  image: Int[Array, '*B'],
) -> Float[Array, '*B 2']:
  """Returns the cosines of a selected image and of its best rival.

  Args:
    cosines: of the state that selects it with the gallery.
    rivals: what else could have been selected; maybe nothing.
    image: the selected one.
  """
  chosen = jnp.take_along_axis(cosines, image[..., None], axis=-1)
  best = jnp.max(jnp.where(rivals, cosines, -1.0), axis=-1, keepdims=True)
  return jnp.concatenate([chosen, best], axis=-1)


class Router(nn.Module):
  """VHOP-Router: the embedding model made autoregressive.

  The state side and the gallery side have parameters of their own, both
  starting as the embedding model's: the gallery can stay frozen while the
  state encoder warms up.

  Attributes:
    config: sizes of both text encoders.
    inverse_temperature: 1 / tau at the start of training.
    gate_size: hidden width of the gates.
  """

  config: decoder_lib.DecoderConfig
  inverse_temperature: float
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
    self, sequence: sequence_lib.Sequence, visual: Float[Array, 'N M D']
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
    return self.stop(states, evidence), self.backtrack(states, evidence)

  def encode_states(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M D'],
    depth: Int[Array, 'R T'],
    top_visual: Float[Array, 'R T M D'],
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
    r, t, m, d = top_visual.shape
    length, size = prefix.tokens.shape[1], segment.tokens.shape[1]
    first = find_next_position(prefix.positions, prefix.mask)
    if rows is not None:
      first = first[rows]
    step = find_next_position(segment.positions, segment.mask)[0]
    starts = first[:, None] + step * jnp.arange(t)[None]
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
    visual = top_visual.reshape(r, t * m, d)
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
      hidden, _ = self.state(tail, visual, take_cache(filled, rows), shift)
      states = embedder_lib.take_rows(hidden, ends)
      return jnp.concatenate([first_states, states], axis=1)
    tail = dataclasses.replace(
      tail,
      visual_index=jnp.where(
        tail.visual_index >= 0, tail.visual_index + m, tail.visual_index
      ),
    )
    sequence: sequence_lib.Sequence = jax.tree.map(
      lambda x, y: jnp.concatenate([x, y], axis=-1), prefix, tail
    )
    hidden, _ = self.state(
      sequence,
      jnp.concatenate([query_visual, visual], axis=1),
      shift=jnp.pad(shift, ((0, 0), (length, 0), (0, 0))),
    )
    places = jnp.concatenate([last, length + ends], axis=1)
    return embedder_lib.take_rows(hidden, places)

  def start(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M D'],
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
    return Context(
      state=embedder_lib.take_rows(hidden, last[:, None])[:, 0],
      cache=filled,
      position=find_next_position(prefix.positions, prefix.mask),
    )

  def advance(
    self,
    context: Context,
    segment: sequence_lib.Sequence,
    depth: Int[Array, 'B'],
    visual: Float[Array, 'B M D'],
  ) -> Context:
    """Reads one decision.

    Args:
      context: what was read before.
      segment: the layout of one decision, [1, M + 1].
      depth: images on the stack after the decision.
      visual: visual tokens of the topmost, or of the query image.
    """
    rows = embedder_lib.repeat_rows(segment, visual.shape[0])
    rows = dataclasses.replace(
      rows, positions=rows.positions + context.position[:, None, None]
    )
    shift = jnp.zeros((*rows.tokens.shape, visual.shape[-1]))
    shift = shift.at[:, -1].set(self.depth(jnp.asarray(depth)))
    hidden, cache = self.state(rows, visual, context.cache, shift)
    assert cache is not None
    step = find_next_position(segment.positions, segment.mask)[0]
    return Context(
      state=hidden[:, -1], cache=cache, position=context.position + step
    )

  def __call__(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    documents: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M D'],
    depth: Int[Array, 'B T'],
    top_visual: Float[Array, 'B T M D'],
    gallery_visual: Float[Array, 'N M D'],
  ) -> Float[Array, 'B T+1 N']:
    """Returns the selection logits of whole trajectories, none masked."""
    states = self.encode_states(
      prefix, segment, query_visual, depth, top_visual
    )
    queries, scale = self.make_queries(states)
    gallery = self.embed_gallery(documents, gallery_visual)
    return scale * jnp.einsum('btd,nd->btn', queries, gallery)

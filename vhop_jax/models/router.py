"""Routes: reads a causal sequence of decisions and scores the gallery.

The context of the policy is one sequence,

    [instruction][query image] <s>   [image] <s>   [image] <s> ...

and the hidden state at each <s> is the state s_t. `encode_states` reads a
whole trajectory in one parallel pass; `start` and `advance` read the same
sequence decision by decision with a KV cache.
"""

import dataclasses

import flax
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Array, Float, Int, typed

_MAX_LOG_SCALE = 4.6  # ln 100, CLIP's bound on the inverse temperature.


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
    return queries, jnp.exp(jnp.minimum(log_scale, _MAX_LOG_SCALE))


class Router(nn.Module):
  """VHOP-Router: the embedding model made autoregressive.

  The state side and the gallery side have parameters of their own, both
  starting as the embedding model's: the gallery can stay frozen while the
  state encoder warms up.

  Attributes:
    config: sizes of both text encoders.
    inverse_temperature: 1 / tau at the start of training.
  """

  config: decoder_lib.DecoderConfig
  inverse_temperature: float

  def setup(self) -> None:
    """Declares both sides and the head."""
    self.state = embedder_lib.TextEncoder(self.config)
    self.gallery = embedder_lib.TextEncoder(self.config)
    self.select = SelectHead(self.inverse_temperature)

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

  def encode_states(
    self,
    prefix: sequence_lib.Sequence,
    segment: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M D'],
    selected_visual: Float[Array, 'B T M D'],
  ) -> Float[Array, 'B T+1 D']:
    """Returns the states of whole trajectories by one parallel pass.

    Args:
      prefix: instruction and query image, right-padded.
      segment: the layout of one decision, [1, M + 1].
      query_visual: visual tokens of the query images.
      selected_visual: visual tokens of the images selected, in order.
    """
    b, t, m, d = selected_visual.shape
    length, size = prefix.tokens.shape[1], segment.tokens.shape[1]
    first = find_next_position(prefix.positions, prefix.mask)
    step = find_next_position(segment.positions, segment.mask)[0]
    starts = first[:, None] + step * jnp.arange(t)[None]
    tail_positions = (
      starts[:, None, :, None] + jnp.asarray(segment.positions)[:, :, None, :]
    )
    offsets = m * (1 + jnp.arange(t))[:, None]
    index = jnp.asarray(segment.visual_index)
    tail_index = jnp.where(index >= 0, index + offsets, index).reshape(-1)

    def tile(x: Array) -> Array:
      return jnp.broadcast_to(
        jnp.tile(jnp.asarray(x)[0], t)[None], (b, t * size)
      )

    sequence = sequence_lib.Sequence(
      tokens=jnp.concatenate([prefix.tokens, tile(segment.tokens)], axis=1),
      positions=jnp.concatenate(
        [prefix.positions, tail_positions.reshape(b, 3, t * size)], axis=2
      ),
      mask=jnp.concatenate([prefix.mask, tile(segment.mask)], axis=1),
      visual_index=jnp.concatenate(
        [
          prefix.visual_index,
          jnp.broadcast_to(tail_index[None], (b, t * size)),
        ],
        axis=1,
      ),
    )
    visual = jnp.concatenate(
      [query_visual, selected_visual.reshape(b, t * m, d)], axis=1
    )
    hidden, _ = self.state(sequence, visual)
    ends = length + size * (1 + jnp.arange(t)) - 1
    places = jnp.concatenate(
      [
        embedder_lib.find_last(jnp.asarray(prefix.mask))[:, None],
        jnp.broadcast_to(ends[None], (b, t)),
      ],
      axis=1,
    )
    return embedder_lib.take_rows(hidden, places)

  def start(
    self,
    prefix: sequence_lib.Sequence,
    query_visual: Float[Array, 'B M D'],
    *,
    max_length: int,
  ) -> Context:
    """Reads instruction and query image.

    Args:
      prefix: right-padded.
      query_visual: visual tokens of the query images.
      max_length: slots of the cache: the prefix and all later segments.
    """
    cache = decoder_lib.make_cache(
      self.config, prefix.tokens.shape[0], max_length
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
    visual: Float[Array, 'B M D'],
  ) -> Context:
    """Reads one selected image.

    Args:
      context: what was read before.
      segment: the layout of one decision, [1, M + 1].
      visual: visual tokens of the selected images.
    """
    rows = embedder_lib.repeat_rows(segment, visual.shape[0])
    rows = dataclasses.replace(
      rows, positions=rows.positions + context.position[:, None, None]
    )
    hidden, cache = self.state(rows, visual, context.cache)
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
    selected_visual: Float[Array, 'B T M D'],
    gallery_visual: Float[Array, 'N M D'],
  ) -> Float[Array, 'B T+1 N']:
    """Returns the selection logits of whole trajectories, none masked."""
    states = self.encode_states(prefix, segment, query_visual, selected_visual)
    queries, scale = self.make_queries(states)
    gallery = self.embed_gallery(documents, gallery_visual)
    return scale * jnp.einsum('btd,nd->btn', queries, gallery)

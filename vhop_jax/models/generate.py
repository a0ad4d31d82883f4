"""Generates text token by token, greedily or by sampling, with a KV cache."""

from collections.abc import Sequence
import functools
from typing import Any

import flax
import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Array, Bool, Float, Int, Params, typed


@flax.struct.dataclass
class Prompt:
  """Holds a batch of prompts; padding may stand at either side.

  Attributes:
    tokens: with an image token for each visual token.
    positions: see `positions.compute_rope_positions`.
    mask: True at tokens.
    patches: of all images, packed; None for text alone.
    layout: see `vision_qwen3_vl.make_patch_layout`; goes with `patches`.
    visual_index: see `positions.compute_visual_index`; goes with `patches`.
  """

  tokens: Int[Any, 'B S']
  positions: Int[Any, '3 B S']
  mask: Bool[Any, 'B S']
  patches: Float[Any, '*rows patches patch_dim'] | None = None
  layout: vision_lib.PatchLayout | None = None
  visual_index: Int[Any, 'B S'] | None = None


@flax.struct.dataclass
class Generated:
  """Holds what was generated.

  Attributes:
    tokens: the end token included, then `pad_id`.
    mask: True up to the end token.
  """

  tokens: Int[Array, 'B new']
  mask: Bool[Array, 'B new']


@typed
def choose_tokens(
  logits: Float[Array, 'B V'],
  rng: Array,
  *,
  temperature: float,
  top_k: int,
  top_p: float,
) -> Int[Array, 'B']:
  """Draws the next token of each row.

  Args:
    logits: of the next tokens.
    rng: draws; unused by greedy choice.
    temperature: 0 takes the likeliest token.
    top_k: how many of the likeliest tokens may be drawn; 0 is all.
    top_p: the likeliest tokens that together reach this probability may be
      drawn (Holtzman et al., 2020); 1 is all.
  """
  if temperature == 0:
    return jnp.argmax(logits, axis=-1)
  logits = logits / temperature
  if top_k:
    lowest = jax.lax.top_k(logits, min(top_k, logits.shape[-1]))[0][:, -1:]
    logits = jnp.where(logits < lowest, -jnp.inf, logits)
  if top_p < 1:
    ordered = jnp.sort(logits, axis=-1, descending=True)
    probabilities = jax.nn.softmax(ordered, axis=-1)
    # What comes before a token must not reach `top_p` without it.
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    lowest = jnp.min(
      jnp.where(before < top_p, ordered, jnp.inf), axis=-1, keepdims=True
    )
    logits = jnp.where(logits < lowest, -jnp.inf, logits)
  return jax.random.categorical(rng, logits, axis=-1)


def generate(
  module: qwen3_vl_lib.Qwen3VLForConditionalGeneration,
  params: Params,
  prompt: Prompt,
  *,
  max_new_tokens: int,
  end_ids: Sequence[int] = (),
  pad_id: int = 0,
  temperature: float = 0.0,
  top_k: int = 0,
  top_p: float = 1.0,
  rng: Array | None = None,
) -> Generated:
  """Goes on from prompts until each has ended.

  Args:
    module: the model with its language head.
    params: its parameters.
    prompt: B of them, none of which is empty.
    max_new_tokens: at most so many tokens each.
    end_ids: tokens that end a text.
    pad_id: what stands after the end.
    temperature: see `choose_tokens`, as the next two.
    top_k: likewise.
    top_p: likewise.
    rng: a key; needed unless the temperature is 0.

  Raises:
    UsageError: a setting is out of its range.
  """
  for name, value, is_right in (
    ('max_new_tokens', max_new_tokens, max_new_tokens > 0),
    ('temperature', temperature, temperature >= 0),
    ('top_k', top_k, top_k >= 0),
    ('top_p', top_p, 0 < top_p <= 1),
  ):
    if not is_right:
      raise errors.UsageError(f'{name}={value} is out of its range')
  if temperature and rng is None:
    raise errors.UsageError(f'temperature={temperature} needs an rng')
  made: Generated = _generate(
    module,
    params,
    prompt,
    jax.random.key(0) if rng is None else rng,
    max_new_tokens=max_new_tokens,
    end_ids=tuple(end_ids),
    pad_id=pad_id,
    temperature=float(temperature),
    top_k=top_k,
    top_p=float(top_p),
  )
  return made


@functools.partial(
  jax.jit,
  static_argnames=(
    'module',
    'max_new_tokens',
    'end_ids',
    'pad_id',
    'temperature',
    'top_k',
    'top_p',
  ),
)
def _generate(
  module: qwen3_vl_lib.Qwen3VLForConditionalGeneration,
  params: Params,
  prompt: Prompt,
  rng: Array,
  *,
  max_new_tokens: int,
  end_ids: tuple[int, ...],
  pad_id: int,
  temperature: float,
  top_k: int,
  top_p: float,
) -> Generated:
  rows, length = prompt.tokens.shape

  def read(
    *args: Any, last: Int[Array, 'B'], **kwargs: Any
  ) -> tuple[Float[Array, 'B V'], decoder_lib.Cache]:
    """Returns the logits after each row's last token, and the cache."""
    hidden, cache = module.apply({'params': params}, *args, **kwargs)
    hidden = embedder_lib.take_rows(hidden, last[:, None])[:, 0]
    logits = module.apply({'params': params}, hidden, method='compute_logits')
    return logits, cache

  logits, cache = read(
    prompt.tokens,
    prompt.positions,
    prompt.mask,
    patches=prompt.patches,
    layout=prompt.layout,
    visual_index=prompt.visual_index,
    cache=decoder_lib.make_cache(
      module.config.decoder, rows, length + max_new_tokens, module.dtype
    ),
    last=embedder_lib.find_last(jnp.asarray(prompt.mask)),
  )
  next_position = 1 + jnp.max(
    jnp.where(prompt.mask[None], prompt.positions, -1), axis=(0, 2)
  )
  start = (
    jnp.zeros((), jnp.int32),
    logits,
    cache,
    jnp.zeros(rows, bool),
    jnp.full((rows, max_new_tokens), pad_id, jnp.int32),
    jnp.zeros((rows, max_new_tokens), bool),
  )

  def is_unfinished(carry: Any) -> Array:
    t, _, _, has_ended, _, _ = carry
    return (t < max_new_tokens) & ~jnp.all(has_ended)

  def add_token(carry: Any) -> Any:
    t, logits, cache, has_ended, tokens, mask = carry
    token = choose_tokens(
      logits,
      jax.random.fold_in(rng, t),
      temperature=temperature,
      top_k=top_k,
      top_p=top_p,
    )
    token = jnp.where(has_ended, pad_id, token).astype(jnp.int32)
    tokens = tokens.at[:, t].set(token)
    mask = mask.at[:, t].set(~has_ended)
    position = jnp.broadcast_to(
      (next_position + t)[None, :, None], (3, rows, 1)
    )
    logits, cache = read(
      token[:, None],
      position,
      ~has_ended[:, None],
      cache=cache,
      last=jnp.zeros(rows, jnp.int32),
    )
    if end_ids:
      ends = jnp.asarray(end_ids, jnp.int32)
      has_ended |= jnp.any(token[:, None] == ends[None], axis=1)
    return t + 1, logits, cache, has_ended, tokens, mask

  _, _, _, _, tokens, mask = jax.lax.while_loop(is_unfinished, add_token, start)
  return Generated(tokens=tokens, mask=mask)

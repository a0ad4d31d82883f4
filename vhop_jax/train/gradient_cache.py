"""Encodes a large contrastive batch in memory for a small one.

Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited
Setup" (2021): embed the batch chunk by chunk without keeping activations, take
the loss's gradient at the embeddings, then go through the chunks once more to
take it on to the parameters. Reverse-mode differentiation of a scan whose body
is checkpointed does just that: what is kept of a chunk are its inputs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from vhop_jax import errors
from vhop_jax.typing import Array, Float, Params


def encode_in_chunks(
  encode: Callable[[Params, Any, Array | None], Float[Array, 'chunk D']],
  params: Params,
  inputs: Any,
  *,
  chunk: int,
  rng: Array | None = None,
) -> Float[Array, 'B D']:
  """Embeds a batch; gradients of the result are those of `encode` at once.

  Args:
    encode: embeds some rows, given the parameters, the rows and a key.
    params: what is differentiated.
    inputs: pytree of arrays with a leading axis of B rows.
    chunk: rows whose activations are in memory at a time, on all devices
      together; divides B.
    rng: split into one key for each chunk, the same in both passes.

  Returns:
    The embeddings, in the order of the rows.

  Raises:
    UsageError: `chunk` does not divide the batch.
  """
  count = len(jax.tree.leaves(inputs)[0])
  if chunk < 1 or count % chunk:
    raise errors.UsageError(
      f'chunk={chunk} does not divide a batch of {count} rows: change one'
    )
  num_chunks = count // chunk
  # Chunk i is rows i, i + num_chunks, ...: some of what each device holds.
  # Chunks of neighbours would be those of one device, and all would compute
  # each of them.
  chunks = jax.tree.map(
    lambda x: jnp.swapaxes(
      jnp.reshape(x, (chunk, num_chunks, *x.shape[1:])), 0, 1
    ),
    inputs,
  )
  rngs = None if rng is None else jax.random.split(rng, num_chunks)

  @jax.checkpoint
  def run(params: Params, rows: Any, rng: Array | None) -> Array:
    return encode(params, rows, rng)

  embedded = jax.lax.map(lambda x: run(params, *x), (chunks, rngs))
  return jnp.swapaxes(embedded, 0, 1).reshape(count, -1)

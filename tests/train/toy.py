"""A linear model that the tests of the loop train.

Run as a program it trains in the folder given by its first argument, slowly
enough to be killed in between.
"""

from collections.abc import Callable
import sys
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.train import loop
from vhop_jax.train.state import Stage

WIDTH = 8
BATCH = 16
SETTINGS: dict[str, Any] = {
  'steps': 12,
  'seed': 3,
  'optimizer': {
    'lr': 0.05,
    'b1': 0.9,
    'b2': 0.95,
    'weight_decay': 0.1,
    'clip_norm': 1.0,
    'warmup_steps': 2,
    'schedule': 'cosine',
  },
  'log_every': 2,
  'checkpoint_every': 4,
  'evaluate_every': 0,
  'mesh': {'data': 1, 'fsdp': 1, 'tensor': 1},
}


class Batches:
  """Draws batch i from a generator seeded by i."""

  def __init__(self, *, sleep_secs: float = 0.0, stop_at: int = -1):
    self.index = 0
    self.sleep_secs = sleep_secs
    self.stop_at = stop_at

  def __next__(self):
    if self.index == self.stop_at:
      raise RuntimeError('the machine fell over')
    time.sleep(self.sleep_secs)
    x = np.random.default_rng(self.index).normal(size=(BATCH, WIDTH))
    self.index += 1
    return {'x': np.float32(x), 'y': np.float32(x @ np.arange(WIDTH))}

  def get_state(self):
    return {'index': self.index}

  def set_state(self, state):
    self.index = state['index']


def init(rng):
  rng_w, rng_v = jax.random.split(rng)
  boxed = nn.LogicallyPartitioned
  return {
    'first': {
      'kernel': boxed(
        jax.random.normal(rng_w, (WIDTH, 4 * WIDTH)) / WIDTH, ('embed', 'mlp')
      ),
      'bias': boxed(jnp.zeros(4 * WIDTH), ('mlp',)),
    },
    'last': {
      'kernel': boxed(jax.random.normal(rng_v, (4 * WIDTH,)) / WIDTH, ('mlp',))
    },
  }


def loss(params, batch, rng, step, dropout=0.1):
  del step
  hidden = jnp.einsum('bd,dm->bm', batch['x'], params['first']['kernel'])
  hidden = hidden + params['first']['bias'][None]
  # Dropout, so that a wrong key after resuming shows.
  keep = jax.random.bernoulli(rng, 1 - dropout, hidden.shape)
  y = jnp.einsum('bm,m->b', hidden * keep, params['last']['kernel'])
  error = jnp.mean((y - batch['y']) ** 2)
  return error, {'mean_y': jnp.mean(y)}


def make_stage(batches: Any = None, **fields: Any) -> Stage:
  return Stage(init=init, loss=loss, batches=batches or Batches(), **fields)


def train(workdir, stage=None, **changes):
  settings = {**SETTINGS, **changes}
  return loop.train(
    stage or make_stage(),
    workdir=workdir,
    config={k: v for k, v in settings.items() if k != 'config'},
    **settings,
  )


def run_program(function: Callable[[], object]) -> None:
  sys.exit(errors.run_entry_point(function))


if __name__ == '__main__':
  run_program(
    lambda: train(
      sys.argv[1],
      make_stage(Batches(sleep_secs=float(sys.argv[2]))),
      steps=int(sys.argv[3]),
      checkpoint_every=int(sys.argv[4]),
    )
  )

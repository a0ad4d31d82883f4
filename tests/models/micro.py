"""Makes models that are large enough to test with."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np

from tests.models import quick
from vhop_jax.data import routes
from vhop_jax.models import pretrained

SETTINGS = {
  'template': 'tiny',
  'tower': {
    'width_px': 24,
    'height_px': 16,
    'patch_px': 4,
    'channels': [8, 16],
    'blocks': [0, 1],
    'num_heads': 2,
    'num_tokens': 2,
    'output_size': 32,
  },
  'decoder': {
    'vocab_size': 320,
    'hidden_size': 32,
    'num_layers': 2,
    'num_heads': 4,
    'num_kv_heads': 2,
    'head_dim': 8,
    'mlp_size': 48,
    'rope_theta': 1e4,
    'mrope_section': [2, 1, 1],
    'rms_norm_eps': 1e-6,
    'remat': 'none',
    'scan_unroll': 1,
  },
}


def make_embedder():
  """Returns a random embedding model, its parameters as NumPy arrays."""
  params = quick.jit(lambda rng: pretrained.init_params(SETTINGS, rng))(
    jax.random.key(0)
  )
  return pretrained.make_pretrained(
    SETTINGS, jax.device_get(nn.meta.unbox(params))
  )


def make_router(embedder, *, noise=0.1):
  """Returns a router whose sides and head differ from the embedder's."""
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  rng = np.random.default_rng(1)
  return made.replace_params(
    jax.tree.map(
      lambda x: np.float32(x + noise * rng.normal(size=np.shape(x))),
      made.params,
    )
  )


def open_gates(router, *, stop=-1.5, backtrack=0.0, kernel_scale=1.0):
  """Returns the router with gates that are often open.

  Args:
    router: a router.
    stop: bias of that gate's logit.
    backtrack: likewise.
    kernel_scale: shrinks what the state and the evidence add to both.
  """
  params = dict(router.params)
  for name, logit in (('stop', stop), ('backtrack', backtrack)):
    gate = params[name]
    params[name] = {
      **gate,
      'logit': {
        'kernel': kernel_scale * gate['logit']['kernel'],
        'bias': np.float32([logit]),
      },
    }
  return dataclasses.replace(router, params=params, has_gates=True)


def make_route(instruction, query_image, chain, equals, family):
  """Returns a route that has one chain."""
  return routes.Route(
    instruction=instruction,
    query_image=query_image,
    chains=(chain,),
    equals=(equals,),
    answers=chain[-1:],
    family=family,
    hops=('hop',) * len(chain),
  )


def make_batch(embedder, made, *, images, family_size, decisions, turns=None):
  """Returns a batch of these routes, in Grain's order.

  Args:
    embedder: lays out the prefixes.
    made: the routes.
    images: of the route set, with random visual tokens.
    family_size: as in `routes.make_batches`.
    decisions: likewise.
    turns: likewise; None takes no wrong turn.
  """
  size = SETTINGS['tower']['num_tokens'], SETTINGS['decoder']['hidden_size']
  visual = np.random.default_rng(0).normal(size=(images, *size))
  return next(
    routes.make_batches(
      routes.RouteSet(tuple(made), visual.astype(np.float32)),
      embedder.maker,
      seed=0,
      batch_size=len(made),
      family_size=family_size,
      max_text_tokens=24,
      reword=False,
      compose_frac=0.0,
      walk_frac=0.0,
      decisions=decisions,
      turns=turns or {'wrong_frac': 0.0, 'equal_frac': 0.0, 'deeper_frac': 0.0},
      threads=1,
    )
  )


def find_equal(a, b):
  """Returns a tree that says which arrays of two trees are the same."""
  return jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), a, b)

"""Measures rollouts: the cached scan against two slower ways to decide.

B rollouts of T decisions over a gallery of N random images, by the shipped
embedding model made a router whose gates stay closed. All ways decide alike,
which is printed, and are measured in turns.

- scan: one `lax.scan` with a KV cache, what `env.router_policy.route` runs;
- loop: the same cached decision, compiled once and driven by a Python loop;
- anew: the whole sequence is read again at every decision, all of it in one
  compiled call;
- large: the scan over a large gallery. What it takes longer is selection:
  scoring the gallery, its mask, its softmax, its best.

    python benchmarks/rollout.py [rounds]
"""

from collections.abc import Callable
import dataclasses
import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import router_policy
from vhop_jax.env import state as state_lib
from vhop_jax.models import pretrained

BATCH, BUDGET, IMAGES, MANY_IMAGES = 64, 16, 450, 100_000
TEXT = (
  'Find the photo where this object stands left of a red object, then the one'
  ' where that object stands right of a blue object.'
)

Run = Callable[[], jax.Array | np.ndarray]  # Returns the actions [B, T].


def make_inputs(router: pretrained.RouterModel, images: int) -> dict[str, Any]:
  """Returns random images and queries."""
  rng = np.random.default_rng(0)
  size = router.embedder.module.config.decoder.hidden_size
  gallery = rng.standard_normal((images, size), np.float32)
  gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
  inputs = {
    'prefix': router.embedder.maker.queries([TEXT] * BATCH),
    'segment': router.embedder.maker.segment(),
    'query_index': rng.integers(images, size=BATCH),
    'gallery_visual': rng.standard_normal(
      (images, router.embedder.maker.num_visual, size), np.float32
    ),
    'gallery': gallery,
  }
  placed: dict[str, Any] = jax.tree.map(jnp.asarray, inputs)
  return placed


def make_scan(router: pretrained.RouterModel, inputs: dict[str, Any]) -> Run:
  """Returns what the package does."""

  def run() -> jax.Array:
    return router_policy.route(
      router.module,
      router.params,
      **inputs,
      rng=jax.random.key(0),
      budget=BUDGET,
      choose=rollout_lib.choose_greedily,
      rejection='final',
    ).action

  return run


def _start(
  router: pretrained.RouterModel, params: Any, inputs: dict[str, Any]
) -> tuple[router_policy.Context, state_lib.State]:
  """Returns where both slower ways begin."""
  context = router_policy.start(
    router.module,
    params,
    inputs['prefix'],
    inputs['segment'],
    inputs['gallery_visual'][inputs['query_index']],
    budget=BUDGET,
  )
  state = state_lib.start(
    inputs['query_index'], num_images=len(inputs['gallery']), budget=BUDGET
  )
  return context, state


def _decide(
  router: pretrained.RouterModel,
  params: Any,
  inputs: dict[str, Any],
  context: router_policy.Context,
  state: state_lib.State,
) -> tuple[router_policy.Context, state_lib.State, jax.Array]:
  """Takes one decision as the package does."""
  policy = router_policy.make_policy(
    router.module,
    params,
    inputs['segment'],
    inputs['gallery_visual'],
    inputs['gallery'],
  )
  scores = policy.score(context, state)
  action = policy_lib.choose_greedily(scores, state_lib.make_legal_mask(state))
  state = state_lib.step(state, action, rejection='final')
  return policy.advance(context, action, state), state, action


def make_loop(router: pretrained.RouterModel, inputs: dict[str, Any]) -> Run:
  """Returns the same with one compiled decision and a Python loop."""

  @jax.jit
  def start(params: Any, inputs: dict[str, Any]) -> Any:
    return _start(router, params, inputs)

  @jax.jit
  def decide(
    params: Any, inputs: dict[str, Any], context: Any, state: Any
  ) -> Any:
    return _decide(router, params, inputs, context, state)

  def run() -> np.ndarray:
    context, state = start(router.params, inputs)
    actions = []
    for _ in range(BUDGET):
      context, state, action = decide(router.params, inputs, context, state)
      # A loop that acts on its decisions must wait for them.
      actions.append(np.asarray(action))
    return np.stack(actions, axis=1)

  return run


def make_anew(router: pretrained.RouterModel, inputs: dict[str, Any]) -> Run:
  """Returns the same without a cache: each state by a parallel pass."""

  @jax.jit
  def run_all(params: Any, inputs: dict[str, Any]) -> jax.Array:
    context, state = _start(router, params, inputs)
    visual = inputs['gallery_visual']
    actions, depths, tops = [], [], []
    for _ in range(BUDGET):
      context, state, action = _decide(router, params, inputs, context, state)
      actions.append(action)
      depths.append(state.depth)
      tops.append(state_lib.get_top(state))
      states = router.module.apply(
        {'params': params},
        inputs['prefix'],
        inputs['segment'],
        visual[inputs['query_index']],
        jnp.stack(depths, axis=1),
        visual[jnp.stack(tops, axis=1)],
        method='encode_states',
      )
      # Nothing reads what the cache gave any more, so XLA leaves it out.
      context = dataclasses.replace(
        context,
        router=dataclasses.replace(context.router, state=states[:, -1]),
      )
    return jnp.stack(actions, axis=1)

  return lambda: run_all(router.params, inputs)


def measure(ways: dict[str, Run], rounds: int) -> dict[str, np.ndarray]:
  """Returns the seconds of each way in each round, measured in turns."""
  secs: dict[str, list[float]] = {name: [] for name in ways}
  for _ in range(rounds):
    for name, run in ways.items():
      start = time.perf_counter()
      jax.block_until_ready(run())
      secs[name].append(time.perf_counter() - start)
  return {name: np.array(values) for name, values in secs.items()}


def show(values: np.ndarray, style: str) -> str:
  """Returns the median and the range."""
  low, middle, high = (
    format(x, style) for x in np.quantile(values, [0, 0.5, 1])
  )
  return f'{middle} [{low}, {high}]'


def main() -> None:
  """Prints decisions a second and the ratios."""
  rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
  router = pretrained.make_router(
    pretrained.load_embedder('tiny'), inverse_temperature=20.0
  )
  inputs = make_inputs(router, IMAGES)
  ways = {
    'scan': make_scan(router, inputs),
    'loop': make_loop(router, inputs),
    'anew': make_anew(router, inputs),
    'large': make_scan(router, make_inputs(router, MANY_IMAGES)),
  }
  # Compiles, too.
  actions = {name: np.asarray(run()) for name, run in ways.items()}
  same = min(np.mean(actions['scan'] == actions[x]) for x in ('loop', 'anew'))
  gates = max(
    np.mean(actions[name] >= count)
    for name, count in (('scan', IMAGES), ('large', MANY_IMAGES))
  )
  print(
    f'{jax.default_backend()}, {len(os.sched_getaffinity(0))} cores; B={BATCH}'
    f' T={BUDGET} N={IMAGES}; median [lowest, highest] of {rounds} rounds\n'
    f'equal actions {same:.1%}, gates taken {gates:.1%}',
    flush=True,
  )
  secs = measure(ways, rounds)
  for name, values in secs.items():
    note = f'  (N={MANY_IMAGES})' if name == 'large' else ''
    rate = show(BATCH * BUDGET / values, '.0f')
    print(f'{name:5s}  {rate} decisions/s{note}')
  # Ratios are of one round each: other work on the machine hits both alike.
  for name in ('anew', 'loop'):
    print(f'{name} / scan  {show(secs[name] / secs["scan"], ".2f")} in time')
  share = 1 - secs['scan'] / secs['large']
  print(
    f'selection over {MANY_IMAGES} images  {show(share, ".0%")} of a decision'
  )


if __name__ == '__main__':
  main()

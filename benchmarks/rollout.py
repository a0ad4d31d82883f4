"""Measures rollouts: the cached scan against two slower ways to decide.

B rollouts of T decisions over a gallery of N random images, by the shipped
embedding model made a router with gates. All three ways decide alike, which is
checked.

- scan: one `lax.scan` with a KV cache, what `env.router_policy.route` runs;
- loop: the same cached decision, compiled once and driven by a Python loop;
- anew: the whole sequence is read again at every decision, all of it in one
  compiled call.

The last lines give the share of a decision that the selection over a large
gallery takes.

    python benchmarks/rollout.py [rounds]
"""

from collections.abc import Callable
import functools
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.env import action as action_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import router_policy
from vhop_jax.env import state as state_lib
from vhop_jax.models import pretrained
from vhop_jax.models import router as router_lib

BATCH, BUDGET, IMAGES, MANY_IMAGES = 64, 16, 450, 100_000
TEXT = (
  'Find the photo where this object stands left of a red object, then the one'
  ' where that object stands right of a blue object.'
)


def make_inputs(router: pretrained.RouterModel, images: int) -> dict[str, Any]:
  """Returns random images and queries."""
  rng = np.random.default_rng(0)
  size = router.embedder.module.config.decoder.hidden_size
  gallery = rng.normal(size=(images, size)).astype(np.float32)
  gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
  visual = rng.normal(size=(images, router.embedder.maker.num_visual, size))
  inputs = {
    'prefix': router.embedder.maker.queries([TEXT] * BATCH),
    'decisions': router.embedder.maker.decisions(),
    'query_index': rng.integers(images, size=BATCH),
    'gallery_visual': visual.astype(np.float32),
    'gallery': gallery,
  }
  placed: dict[str, Any] = jax.tree.map(jnp.asarray, inputs)
  return placed


def make_scan(
  router: pretrained.RouterModel, inputs: dict[str, Any]
) -> Callable[[], jax.Array]:
  """Returns what the package does."""

  def run() -> jax.Array:
    return router_policy.route(
      router.module,
      router.params,
      **inputs,
      rng=jax.random.key(0),
      budget=BUDGET,
      choose=rollout_lib.choose_greedily,
      forgets=False,
    ).action

  return run


def make_loop(
  router: pretrained.RouterModel, inputs: dict[str, Any]
) -> Callable[[], jax.Array]:
  """Returns the same with one compiled decision and a Python loop."""
  params = router.params

  @jax.jit
  def start(params: Any) -> Any:
    return router.module.apply(
      {'params': params},
      inputs['prefix'],
      jnp.asarray(inputs['gallery_visual'])[inputs['query_index']],
      max_length=inputs['prefix'].tokens.shape[1]
      + BUDGET * inputs['decisions'].tokens.shape[1],
      method='start',
    )

  @jax.jit
  def decide(params: Any, context: Any, state: state_lib.State) -> Any:
    policy = router_policy.make_policy(
      router.module,
      params,
      inputs['decisions'],
      inputs['gallery_visual'],
      inputs['gallery'],
    )
    scores = policy.score(context, state)
    action = policy_lib.choose_greedily(
      scores, state_lib.make_legal_mask(state)
    )
    context = policy.advance(context, action, state)
    return context, state_lib.step(state, action, forgets=False), action

  def run() -> jax.Array:
    context = start(params)
    state = state_lib.start(
      inputs['query_index'],
      num_images=len(inputs['gallery']),
      budget=BUDGET,
    )
    actions = []
    for _ in range(BUDGET):
      context, state, action = decide(params, context, state)
      # A loop that acts on its decisions must wait for them.
      actions.append(np.asarray(action))
    return jnp.stack(actions, axis=1)

  return run


def make_anew(
  router: pretrained.RouterModel, inputs: dict[str, Any]
) -> Callable[[], jax.Array]:
  """Returns the same without a cache: each state by a parallel pass."""
  visual = jnp.asarray(inputs['gallery_visual'])
  gallery = jnp.asarray(inputs['gallery'])
  count = len(gallery)

  @jax.jit
  def run_all(params: Any) -> jax.Array:
    apply = functools.partial(router.module.apply, {'params': params})
    state = state_lib.start(
      inputs['query_index'], num_images=count, budget=BUDGET
    )
    actions = jnp.zeros((BATCH, 0), jnp.int32)
    for _ in range(BUDGET):
      states = apply(
        inputs['prefix'],
        inputs['decisions'],
        visual[inputs['query_index']],
        action_lib.find_kind(actions, count),
        visual[jnp.minimum(actions, count - 1)],
        method='encode_states',
      )[:, -1]
      queries, scale = apply(states, method='make_queries')
      cosines = queries @ gallery.T
      evidence = router_lib.compute_evidence(
        cosines,
        state_lib.make_candidate_mask(state),
        inverse_temperature=scale,
        depth=state.depth,
        decisions_left=state.budget - state.decisions,
      )
      stop, backtrack = apply(states, evidence, method='compute_gates')
      action = policy_lib.choose_greedily(
        policy_lib.Scores(scale * cosines, stop, backtrack),
        state_lib.make_legal_mask(state),
      )
      state = state_lib.step(state, action, forgets=False)
      actions = jnp.concatenate([actions, action[:, None]], axis=1)
    return actions

  return lambda: run_all(router.params)


def measure(
  functions: dict[str, Callable[[], jax.Array]], rounds: int
) -> dict[str, float]:
  """Returns the median seconds of each, measured in turns."""
  secs: dict[str, list[float]] = {name: [] for name in functions}
  for number in range(rounds + 1):
    for name, function in functions.items():
      start = time.perf_counter()
      jax.block_until_ready(function())
      if number:  # The first round compiles.
        secs[name].append(time.perf_counter() - start)
  return {name: float(np.median(values)) for name, values in secs.items()}


def main() -> None:
  """Prints decisions a second and the ratios."""
  rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
  router = pretrained.make_router(
    pretrained.load_embedder('tiny'), inverse_temperature=20.0
  )
  inputs = make_inputs(router, IMAGES)
  ways = {
    'scan': make_scan(router, inputs),
    'loop': make_loop(router, inputs),
    'anew': make_anew(router, inputs),
  }
  actions = {name: np.asarray(run()) for name, run in ways.items()}
  same = [np.mean(actions['scan'] == actions[name]) for name in ways]
  print(f'B={BATCH} T={BUDGET} N={IMAGES}; equal actions: {min(same):.1%}')
  secs = measure(ways, rounds)
  for name, value in secs.items():
    print(
      f'{name}: {BATCH * BUDGET / value:8.0f} decisions/s,'
      f' {value / secs["scan"]:5.2f} x the time of the scan',
      flush=True,
    )
  large = measure(
    {'large': make_scan(router, make_inputs(router, MANY_IMAGES))}, rounds
  )['large']
  share = 1 - secs['scan'] / large
  print(
    f'N={MANY_IMAGES}: {BATCH * BUDGET / large:.0f} decisions/s; the larger'
    f' gallery takes {share:.0%} of a decision'
  )


if __name__ == '__main__':
  main()

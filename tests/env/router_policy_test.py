"""Holds a router's rollout equal to the parallel pass over what it did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax.env import action as action_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout, router_policy
from vhop_jax.env import state as state_lib
from vhop_jax.models import router as router_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

TEXTS = ['Find the photo.', 'Find the photo where this object stands alone']
WIDTH, IMAGES, BUDGET = 32, 17, 9
QUERY = np.array([3, 8] * 8)


@pytest.fixture(scope='module')
def visual():
  rng = np.random.default_rng(0)
  return rng.normal(size=(IMAGES, 2, WIDTH)).astype(np.float32)


@pytest.fixture(scope='module')
def gallery():
  gallery = np.random.default_rng(1).normal(size=(IMAGES, WIDTH))
  gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
  return gallery.astype(np.float32)


@pytest.fixture(scope='module')
def prefix(router):
  return router.embedder.maker.queries(TEXTS * 8)


def route(router, prefix, visual, gallery, *, choose, forgets):
  return jax.device_get(
    router_policy.route(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segment(),
      QUERY,
      visual,
      gallery,
      jax.random.key(0),
      budget=BUDGET,
      choose=choose,
      forgets=forgets,
    )
  )


@pytest.fixture(scope='module')
def compute_parallel(open_router, prefix, visual, gallery):
  """Returns a function from actions to all log-probabilities, [B, T, N + 2]."""
  segment = open_router.embedder.maker.segment()
  module, params = open_router.module, open_router.params

  def apply(*args, method):
    return module.apply({'params': params}, *args, method=method)

  def compute(actions, forgets):
    start = state_lib.start(QUERY, num_images=IMAGES, budget=BUDGET)
    states = state_lib.replay(start, actions, forgets=forgets)
    flat = jax.tree.map(
      lambda x: x.reshape(len(QUERY) * BUDGET, *x.shape[2:]), states
    )
    encoded = apply(
      prefix,
      segment,
      visual[QUERY],
      states.depth[:, 1:],
      jnp.asarray(visual)[
        state_lib.get_top(flat).reshape(len(QUERY), BUDGET)[:, 1:]
      ],
      method='encode_states',
    ).reshape(-1, WIDTH)
    queries, scale = apply(encoded, method='make_queries')
    cosines = queries @ gallery.T
    # Plainly: when the topmost image was put there, over what it had won.
    candidates = state_lib.make_candidate_mask(flat)
    by_row = cosines.reshape(len(QUERY), BUDGET, IMAGES)
    allowed = candidates.reshape(by_row.shape)
    choices = []
    for t in range(BUDGET):
      choice = jnp.zeros((len(QUERY), 2))
      for earlier in range(t):
        put = states.depth[:, earlier] + 1 == states.depth[:, t]
        image = actions[:, earlier]
        is_select = image < IMAGES
        image = jnp.minimum(image, IMAGES - 1)[:, None]
        own = jnp.take_along_axis(by_row[:, earlier], image, axis=1)[:, 0]
        others = allowed[:, earlier] & (jnp.arange(IMAGES)[None] != image)
        rival = jnp.where(others, by_row[:, earlier], -1).max(axis=1)
        choice = jnp.where(
          (put & is_select)[:, None], jnp.stack([own, rival], axis=1), choice
        )
      choices.append(choice)
    evidence = router_lib.compute_evidence(
      cosines,
      candidates,
      inverse_temperature=scale,
      depth=flat.depth,
      decisions_left=BUDGET - flat.decisions,
      choice=jnp.stack(choices, axis=1).reshape(-1, 2),
    )
    stop, backtrack = apply(encoded, evidence, method='compute_gates')
    log_probs = policy_lib.compute_log_probs(
      policy_lib.Scores(select=scale * cosines, stop=stop, backtrack=backtrack),
      state_lib.make_legal_mask(flat),
    )
    return log_probs.reshape(len(QUERY), BUDGET, -1)

  return quick.jit(compute, static_argnames='forgets')


@pytest.mark.parametrize('forgets', [False, True])
def test_log_probs_equal_those_of_the_parallel_pass(
  open_router, prefix, visual, gallery, compute_parallel, forgets
):
  made = route(
    open_router,
    prefix,
    visual,
    gallery,
    choose=rollout.make_sampler(),
    forgets=forgets,
  )
  kinds = np.asarray(action_lib.find_kind(made.action, IMAGES))[made.mask]
  assert set(kinds.tolist()) == {0, 1, 2}
  assert made.state.stopped.any()
  parallel = np.take_along_axis(
    np.asarray(compute_parallel(made.action, forgets)),
    made.action[:, :, None],
    axis=2,
  )[:, :, 0]
  np.testing.assert_allclose(
    made.log_prob[made.mask], parallel[made.mask], atol=1e-4
  )


def test_greedy_decisions_follow_the_parallel_pass(
  open_router, prefix, visual, gallery, compute_parallel
):
  made = route(
    open_router,
    prefix,
    visual,
    gallery,
    choose=rollout.choose_selects,
    forgets=False,
  )
  assert made.mask.all()
  log_probs = np.asarray(compute_parallel(made.action, False))
  for row in range(len(QUERY)):
    seen = {int(QUERY[row])}
    for t in range(BUDGET):
      best = int(log_probs[row, t, :IMAGES].argmax())
      assert made.action[row, t] == best
      assert best not in seen
      seen.add(best)

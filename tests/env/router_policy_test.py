"""Holds a router's rollout equal to the parallel pass over what it did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env import oracle
from tests.models import quick
from vhop_jax.env import action as action_lib
from vhop_jax.env import policy as policy_lib
from vhop_jax.env import rollout, router_policy
from vhop_jax.env import state as state_lib
from vhop_jax.models import evidence as evidence_lib

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


def route(router, prefix, visual, gallery, *, choose, rejection):
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
      rejection=rejection,
    )
  )


def write_notes(actions, cosines, rejection):
  """Returns what is remembered before each decision, by a plain walk.

  That is the notes that the gates read, and for each image the cosine that went
  on from it when it was rejected where the walk stands; NaN at others.
  """
  rows, images = cosines.shape[0], cosines.shape[2]
  made = {
    # The gates read none of these four.
    'image': np.zeros((rows, BUDGET, 1), np.int32),
    'rejected': np.zeros((rows, BUDGET, 1), np.int32),
    'rejected_at': np.zeros((rows, BUDGET, 1), np.int32),
    'went_on': np.zeros((rows, BUDGET, 1), np.float32),
    'choice': np.zeros((rows, BUDGET, BUDGET, 2), np.float32),
    'tried': np.zeros((rows, BUDGET, BUDGET), np.int32),
    'best': np.full((rows, BUDGET, BUDGET), -1, np.float32),
  }
  went_on = np.full((rows, BUDGET, images), np.nan, np.float32)
  for row in range(rows):
    walk = oracle.Walk(int(QUERY[row]), images, BUDGET, rejection=rejection)
    won, lost = {}, {}  # By place: of its image, and of those it had before.
    returns = {}  # By the stack below: what went on from images rejected there.
    for t in range(BUDGET):
      for image, best in returns.get(tuple(walk.stack), {}).items():
        went_on[row, t, image] = best
      for place, pair in won.items():
        made['choice'][row, t, place] = pair
      for place, others in lost.items():
        made['tried'][row, t, place] = len(others)
        made['best'][row, t, place] = max(others, default=-1)
      if walk.is_done():
        continue
      action, seen = int(actions[row, t]), cosines[row, t]
      act = {images: oracle.BACK, images + 1: oracle.STOP}.get(action, action)
      before = walk.stack[-1:]
      walk.take(act)
      best = max((seen[i] for i in oracle.list_images(walk)), default=-1)
      place = len(walk.stack)
      if act == oracle.BACK:
        lost.setdefault(place, []).append(best)
        below = tuple(walk.stack)
        # Of an image that was rejected at several places the last counts.
        returns = {
          stack: {i: value for i, value in others.items() if i != before[0]}
          for stack, others in returns.items()
          if len(stack) <= len(below)
        }
        returns.setdefault(below, {})[before[0]] = best
      elif act != oracle.STOP:
        won[place - 1] = seen[act], best
        lost[place] = []
  return evidence_lib.Notes(**made), went_on


@pytest.fixture(scope='module')
def compute_parallel(open_router, prefix, visual, gallery):
  """Returns a function from actions to all log-probabilities, [B, T, N + 2]."""
  segment = open_router.embedder.maker.segment()
  module, params = open_router.module, open_router.params
  absence = params['absence']['cosine']

  def apply(*args, method):
    return module.apply({'params': params}, *args, method=method)

  def encode(top, depth):
    encoded = apply(
      prefix,
      segment,
      visual[QUERY],
      depth[:, 1:],
      jnp.asarray(visual)[top[:, 1:]],
      method='encode_states',
    )
    queries, scale = apply(encoded, method='make_queries')
    flat = queries.reshape(-1, WIDTH) @ gallery.T
    return encoded, flat.reshape(*depth.shape, IMAGES), scale

  def score(encoded, cosines, scale, flat, notes, went_on):
    evidence = evidence_lib.compute_evidence(
      cosines,
      state_lib.make_candidate_mask(flat),
      inverse_temperature=scale,
      depth=flat.depth,
      decisions_left=BUDGET - flat.decisions,
      notes=notes,
    )
    stop, backtrack = apply(encoded, evidence, method='compute_gates')
    chance = 1 / (1 + jnp.exp(-scale * (went_on - absence)))
    logits = scale * cosines + jnp.where(
      jnp.isnan(went_on), 0.0, jnp.log(chance)
    )
    return policy_lib.compute_log_probs(
      policy_lib.Scores(select=logits, stop=stop, backtrack=backtrack),
      state_lib.make_legal_mask(flat),
    )

  encode, score = quick.jit(encode), quick.jit(score)

  def compute(actions, rejection):
    start = state_lib.start(QUERY, num_images=IMAGES, budget=BUDGET)
    states = state_lib.replay(start, actions, rejection=rejection)
    flat = state_lib.flatten(states)
    top = state_lib.get_top(flat).reshape(states.depth.shape)
    encoded, cosines, scale = encode(top, states.depth)
    notes, went_on = write_notes(
      np.asarray(actions), np.asarray(cosines), rejection
    )
    log_probs = score(
      encoded.reshape(-1, WIDTH),
      cosines.reshape(-1, IMAGES),
      scale,
      flat,
      jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), notes),
      went_on.reshape(-1, IMAGES),
    )
    return log_probs.reshape(len(QUERY), BUDGET, -1)

  return compute


@pytest.mark.parametrize('rejection', state_lib.REJECTIONS)
def test_log_probs_equal_those_of_the_parallel_pass(
  open_router, prefix, visual, gallery, compute_parallel, rejection
):
  made = route(
    open_router,
    prefix,
    visual,
    gallery,
    choose=rollout.make_sampler(),
    rejection=rejection,
  )
  kinds = np.asarray(action_lib.find_kind(made.action, IMAGES))[made.mask]
  assert set(kinds.tolist()) == {0, 1, 2}
  assert made.state.stopped.any()
  parallel = np.take_along_axis(
    np.asarray(compute_parallel(made.action, rejection)),
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
    rejection='final',
  )
  assert made.mask.all()
  log_probs = np.asarray(compute_parallel(made.action, 'final'))
  for row in range(len(QUERY)):
    seen = {int(QUERY[row])}
    for t in range(BUDGET):
      best = int(log_probs[row, t, :IMAGES].argmax())
      assert made.action[row, t] == best
      assert best not in seen
      seen.add(best)

"""Tests that the router reads the same sequence in each of its ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax.models import evidence as evidence_lib
from vhop_jax.models import pretrained
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

TEXTS = ['Find the photo.', 'Find the photo where this object stands alone']
WIDTH, IMAGES = 32, 7


@pytest.fixture(scope='module')
def visual():
  """Returns the visual tokens of seven images."""
  rng = np.random.default_rng(0)
  return rng.normal(size=(IMAGES, 2, WIDTH)).astype(np.float32)


@pytest.fixture(scope='module')
def prefix(embedder):
  """Returns two prefixes, the first of them padded."""
  prefix = embedder.maker.queries(TEXTS)
  assert len(set(prefix.mask.sum(axis=1))) == 2
  return prefix


@pytest.fixture(scope='module')
def apply(embedder):
  """Returns Router.apply of any method, compiled."""
  module = pretrained.make_router(embedder, inverse_temperature=20.0).module
  compiled = {}

  def apply(params, *args, method, view='stack', **static):
    key = (method, view, *static.items())
    if key not in compiled:
      seeing = module.clone(view=view)
      compiled[key] = quick.jit(
        lambda params, *args: seeing.apply(
          {'params': params}, *args, method=method, **static
        )
      )
    return compiled[key](params, *args)

  return apply


@pytest.fixture(scope='module')
def read_anew(embedder, router):
  """Returns a function from one row's images to its state, read from the start.

  The sequence is laid out by hand and padded on the right only. Each depth has
  a state token of its own, whose embedding is that of the state token plus
  what the router adds for the depth.
  """
  length = 40
  decoder = dict(router.params['state']['decoder'])
  vocabulary = embedder.maker.tokenizer.get_vocab()
  image, state = vocabulary['<|image_pad|>'], vocabulary['<|endoftext|>']
  table = np.array(decoder['embedding'])
  depth_tokens = np.arange(len(table) - 9, len(table))
  table[depth_tokens[0]] = table[state]
  table[depth_tokens[1:]] = table[state] + router.params['depth']['table']
  params = {
    'tower': embedder.params['tower'],
    'text': {'decoder': {**decoder, 'embedding': table}},
  }
  embed = quick.jit(
    lambda sequence, visual: embedder.module.apply(
      {'params': params}, sequence, visual, method='embed'
    )
  )

  def read(text, query_visual, tops, depths):
    """Takes the visual tokens on top and the depth after each decision."""
    row = embedder.maker.queries([text])
    tokens = row.tokens[0].tolist()
    positions = row.positions[0].T.tolist()
    index = row.visual_index[0].tolist()
    assert not set(tokens) & set(depth_tokens.tolist())
    seen = [query_visual]
    for visual, depth in zip(tops, depths, strict=True):
      start = max(map(max, positions)) + 1
      tokens += [image, image, depth_tokens[depth]]
      positions += [[start] * 3, [start, start, start + 1], [start + 2] * 3]
      index += [2 * len(seen), 2 * len(seen) + 1, -1]
      seen.append(visual)
    size = len(tokens)
    visual = np.zeros((1, 2 * IMAGES, WIDTH), np.float32)
    visual[0, : 2 * len(seen)] = np.reshape(seen, (-1, WIDTH))
    pad = length - size
    sequence = sequence_lib.Sequence(
      tokens=np.int32([tokens + [0] * pad]),
      positions=np.int32([positions + [[0] * 3] * pad]).transpose(0, 2, 1),
      mask=np.array([[True] * size + [False] * pad]),
      visual_index=np.int32([index + [-1] * pad]),
    )
    return np.asarray(embed(sequence, visual)[0])

  return read


def make_gallery():
  gallery = np.random.default_rng(1).normal(size=(IMAGES, WIDTH))
  gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
  return gallery.astype(np.float32)


def normalize(x):
  return x / np.linalg.norm(x, axis=-1, keepdims=True)


def encode(apply, router, prefix, query, tops, depth=None, view='stack'):
  """Returns the states of whole trajectories, by default of selections."""
  if depth is None:
    depth = np.tile(1 + np.arange(tops.shape[1]), (len(tops), 1))
  return np.asarray(
    apply(
      router.params,
      prefix,
      router.embedder.maker.segment(),
      query,
      depth,
      tops,
      method='encode_states',
      view=view,
    )
  )


def test_untrained_router_is_the_embedding_model(
  embedder, apply, prefix, visual
):
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  states = encode(
    apply, made, prefix, visual[:2], visual[2:6].reshape(2, 2, 2, -1)
  )
  queries, scale = apply(made.params, states, method='make_queries')
  embed = quick.jit(
    lambda *args: embedder.module.apply(
      {'params': embedder.params}, *args, method='embed'
    )
  )
  expected = embed(prefix, visual[:2])
  np.testing.assert_allclose(queries[:, 0], expected, atol=1e-5)
  np.testing.assert_allclose(scale, 20.0, rtol=1e-5)
  documents = embedder.maker.documents(IMAGES)
  np.testing.assert_allclose(
    apply(made.params, documents, visual, method='embed_gallery'),
    embed(documents, visual),
    atol=1e-5,
  )


# The second row goes back twice, to its query image, and on again.
TOPS = np.array([[2, 3, 4, 6, 0], [5, 6, 5, 1, 2]])
DEPTH = np.array([[1, 2, 3, 4, 5], [1, 2, 1, 0, 1]])
# Of the second row, what is on the stack after each decision.
STACKS = ([], [5], [5, 6], [5], [], [2])


@pytest.mark.parametrize('view', router_lib.VIEWS)
def test_parallel_pass_is_each_sequence_read_anew(
  apply, router, prefix, visual, read_anew, view
):
  states = encode(apply, router, prefix, visual[:2], visual[TOPS], DEPTH, view)
  assert states.shape == (2, 6, WIDTH)
  for row in range(2):
    for t in range(6):
      tops, depth = TOPS[row, :t], DEPTH[row, :t]
      if view == 'stack' and row == 1:
        tops, depth = STACKS[t], range(1, len(STACKS[t]) + 1)
      expected = read_anew(
        TEXTS[row], visual[row], visual[np.array(tops, int)], depth
      )
      np.testing.assert_allclose(normalize(states[row, t]), expected, atol=1e-4)


def test_trajectories_of_one_query_may_share_its_prefix(
  apply, router, prefix, visual
):
  tops = visual[np.array([[2, 3, 4], [5, 6, 5], [1, 0, 2]])]
  depth = np.array([[1, 2, 3], [1, 2, 1], [1, 2, 3]])
  rows = np.array([1, 0, 1])
  segment = router.embedder.maker.segment()
  shared = quick.jit(
    lambda *args: router.module.apply(
      {'params': router.params}, *args, rows=rows, method='encode_states'
    )
  )(prefix, segment, visual[:2], depth, tops)
  repeated = jax.tree.map(lambda x: x[rows], prefix)
  alone = encode(apply, router, repeated, visual[:2][rows], tops, depth)
  np.testing.assert_allclose(shared, alone, atol=1e-4)


@pytest.mark.parametrize('view', router_lib.VIEWS)
def test_cached_reading_equals_the_parallel_pass(
  apply, router, prefix, visual, view
):
  tops, count = visual[TOPS], TOPS.shape[1]
  states = encode(apply, router, prefix, visual[:2], tops, DEPTH, view)
  is_select = np.diff(DEPTH, axis=1, prepend=0) > 0
  segment = router.embedder.maker.segment()
  context = apply(
    router.params,
    prefix,
    segment,
    visual[:2],
    method='start',
    view=view,
    budget=count,
  )
  np.testing.assert_allclose(context.state, states[:, 0], atol=1e-4)
  for t in range(count):
    context = apply(
      router.params,
      context,
      segment,
      DEPTH[:, t],
      is_select[:, t],
      tops[:, t],
      method='advance',
      view=view,
    )
    np.testing.assert_allclose(context.state, states[:, t + 1], atol=1e-4)


def test_depth_is_told_to_the_state(apply, router, prefix, visual):
  tops = visual[np.array([[2, 3], [5, 6]])]
  states = [
    encode(
      apply,
      router,
      prefix,
      visual[:2],
      tops,
      np.tile(depth, (2, 1)),
      'history',
    )
    for depth in ([1, 2], [1, 3], [1, 8], [1, 99])
  ]
  assert np.abs(states[0] - states[1])[:, 2].max() > 1e-3
  np.testing.assert_array_equal(states[0][:, :2], states[1][:, :2])
  # The deepest are not told apart.
  np.testing.assert_array_equal(states[2], states[3])


def test_a_row_does_not_depend_on_its_batch(apply, router, prefix, visual):
  selected = visual[np.array([[2, 3], [5, 6]])]
  both = encode(apply, router, prefix, visual[:2], selected)
  for row in range(2):
    alone = router.embedder.maker.queries([TEXTS[row]])
    rows = slice(row, row + 1)
    np.testing.assert_allclose(
      both[rows],
      encode(apply, router, alone, visual[rows], selected[rows]),
      atol=1e-5,
    )


def test_state_does_not_see_what_is_selected_later(
  apply, router, prefix, visual
):
  first = encode(apply, router, prefix, visual[:2], visual[[[2, 3], [5, 6]]])
  other = encode(apply, router, prefix, visual[:2], visual[[[2, 4], [5, 4]]])
  np.testing.assert_array_equal(first[:, :2], other[:, :2])
  assert (first[:, 2] != other[:, 2]).any(axis=1).all()


def test_call_is_states_against_the_gallery(apply, router, prefix, visual):
  maker = router.embedder.maker
  selected = visual[np.array([[2, 3], [5, 6]])]
  documents = maker.documents(IMAGES)
  logits = apply(
    router.params,
    prefix,
    maker.segment(),
    documents,
    visual[:2],
    np.array([[1, 2]] * 2),
    selected,
    visual,
    method='__call__',
  )
  states = encode(apply, router, prefix, visual[:2], selected)
  gallery = apply(router.params, documents, visual, method='embed_gallery')
  queries = normalize(states @ np.asarray(router.params['select']['kernel']))
  scale = np.exp(router.params['select']['log_scale'])
  np.testing.assert_allclose(
    logits, scale * (queries @ np.asarray(gallery).T), rtol=1e-3, atol=1e-4
  )


def test_temperature_stays_above_a_hundredth(router, apply):
  params = jax.tree.map(jnp.asarray, router.params)
  params['select']['log_scale'] = jnp.asarray(9.0)
  states = jnp.ones((1, WIDTH))
  _, scale = apply(params, states, method='make_queries')
  np.testing.assert_allclose(scale, 100.0, rtol=0.01)


@pytest.mark.parametrize(
  ('gate_input', 'stop_reads', 'backtrack_reads'),
  [
    ('evidence', (True, True), (False, True)),
    ('both', (True, True), (True, True)),
    ('state', (True, False), (True, False)),
  ],
)
def test_gates_read_what_they_are_told_to(
  open_router, gate_input, stop_reads, backtrack_reads
):
  module = open_router.module.clone(gate_input=gate_input)
  rng = np.random.default_rng(0)
  states = jnp.asarray(rng.normal(size=(1, WIDTH)), jnp.float32)
  evidence = jnp.asarray(
    rng.normal(size=(1, evidence_lib.EVIDENCE_SIZE)), jnp.float32
  )

  def compute(states, evidence):
    return module.apply(
      {'params': open_router.params}, states, evidence, method='compute_gates'
    )

  first = compute(states, evidence)
  others = compute(2 * states, evidence), compute(states, 2 * evidence)
  for gate, reads in enumerate((stop_reads, backtrack_reads)):
    assert tuple(bool(o[gate] != first[gate]) for o in others) == reads


def test_gates_start_closed(embedder, apply):
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  rng = np.random.default_rng(0)
  states = rng.normal(size=(3, WIDTH)).astype(np.float32)
  evidence = rng.normal(size=(3, evidence_lib.EVIDENCE_SIZE)).astype(np.float32)
  gates = apply(made.params, states, evidence, method='compute_gates')
  assert len(gates) == 2
  for logits in gates:
    assert logits.shape == (3,)
    assert (logits < -1).all()
    assert len(np.unique(logits)) == 3

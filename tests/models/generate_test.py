"""Tests the choice of tokens by hand and generation by recomputation."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import quick
from vhop_jax import errors
from vhop_jax.models import decoder, generate, qwen3_vl, vision_qwen3_vl

pytestmark = pytest.mark.usefixtures('quick_compile')

CONFIG = qwen3_vl.Qwen3VLConfig(
  vision=vision_qwen3_vl.VisionConfig(
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    mlp_size=16,
    out_size=32,
    deepstack_layers=(),
    grid_side=2,
  ),
  decoder=decoder.DecoderConfig(
    vocab_size=41,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_size=48,
    mrope_section=(2, 1, 1),
  ),
  tie_word_embeddings=False,
)
NEW = 6
LENGTH = 12  # Of the texts that are read anew, padding included.


@pytest.fixture(scope='module')
def model():
  module = qwen3_vl.Qwen3VLForConditionalGeneration(CONFIG)

  def init(rng):
    return module.init(
      rng,
      jnp.zeros((1, 1), jnp.int32),
      jnp.zeros((3, 1, 1), jnp.int32),
      jnp.ones((1, 1), bool),
      method=lambda m, *args: m.compute_logits(m(*args)[0]),
    )['params']

  params = nn.meta.unbox(quick.jit(init)(jax.random.key(0)))
  # Rows that differ: at the start the table is all but zero.
  params['decoder']['embedding'] *= 50
  return module, params


def make_prompt(rows, *, left=False):
  size = max(map(len, rows)) + 1
  tokens = np.zeros((len(rows), size), np.int32)
  mask = np.zeros((len(rows), size), bool)
  positions = np.zeros((3, len(rows), size), np.int32)
  for i, row in enumerate(rows):
    place = slice(size - len(row), size) if left else slice(0, len(row))
    tokens[i, place], mask[i, place] = row, True
    positions[:, i, place] = np.arange(len(row))
  return generate.Prompt(tokens=tokens, positions=positions, mask=mask)


@functools.cache
def compile_reading(module):
  def read(params, tokens, count):
    places = jnp.arange(LENGTH)
    hidden, _ = module.apply(
      {'params': params},
      tokens[None],
      jnp.broadcast_to(places[None, None], (3, 1, LENGTH)),
      (places < count)[None],
    )
    return module.apply(
      {'params': params}, hidden[:, count - 1], method='compute_logits'
    )[0]

  return quick.jit(read)


def compute_logits(model, row):
  """Returns the logits after a text, read anew and alone."""
  module, params = model
  tokens = np.zeros(LENGTH, np.int32)
  tokens[: len(row)] = row
  return np.asarray(compile_reading(module)(params, tokens, len(row)))


def go_on(model, row, count):
  """Goes on greedily without any cache."""
  row = list(row)
  for _ in range(count):
    row.append(int(np.argmax(compute_logits(model, row))))
  return row[-count:]


ROWS = [[3, 5, 7, 11], [2], [13, 1, 4]]


@pytest.mark.parametrize('left', [False, True])
def test_greedy_text_is_that_without_a_cache(model, left):
  module, params = model
  made = generate.generate(
    module, params, make_prompt(ROWS, left=left), max_new_tokens=NEW
  )
  expected = [go_on(model, row, NEW) for row in ROWS]
  np.testing.assert_array_equal(made.tokens, expected)
  assert made.mask.all()
  # Else the test would not see a wrong token.
  assert len(set(map(tuple, expected))) == len(ROWS)


def test_text_ends_at_the_end_token_and_is_padded(model):
  module, params = model
  whole, other = (go_on(model, row, NEW) for row in ROWS[:2])
  end = whole[2]
  never = min(set(range(39)) - {*whole, *other})
  count = whole.index(end) + 1
  made = generate.generate(
    module,
    params,
    make_prompt(ROWS[:2]),
    max_new_tokens=NEW,
    end_ids=(never, end),
    pad_id=39,
  )
  np.testing.assert_array_equal(made.tokens[0, :count], whole[:count])
  np.testing.assert_array_equal(made.tokens[0, count:], 39)
  np.testing.assert_array_equal(made.mask[0], np.arange(NEW) < count)
  assert end not in other
  np.testing.assert_array_equal(made.tokens[1], other)


def test_samples_follow_the_probabilities(model):
  module, params = model
  count = 400
  made = generate.generate(
    module,
    params,
    make_prompt([ROWS[0]] * count),
    max_new_tokens=1,
    temperature=2.0,
    rng=jax.random.key(1),
  )
  expected = jax.nn.softmax(compute_logits(model, ROWS[0]) / 2.0)
  seen = np.bincount(np.asarray(made.tokens[:, 0]), minlength=41) / count
  # Four standard deviations of the likeliest token's share.
  bound = 4 * np.sqrt(np.max(expected * (1 - expected)) / count)
  assert np.abs(seen - expected).max() < bound
  assert len(set(np.asarray(made.tokens[:, 0]).tolist())) > 2


# Probabilities .5, .25, .15, .1 of tokens 2, 0, 3, 1.
LOGITS = np.log(np.float32([0.25, 0.1, 0.5, 0.15]))


@pytest.mark.parametrize(
  ('settings', 'possible'),
  [
    ({'top_k': 2}, {0, 2}),
    ({'top_k': 9}, {0, 1, 2, 3}),
    # .5 does not reach .6, .75 does.
    ({'top_p': 0.6}, {0, 2}),
    ({'top_p': 0.4}, {2}),
    ({'top_k': 3, 'top_p': 0.99}, {0, 2, 3}),
  ],
)
def test_limits_of_sampling(settings, possible):
  settings = {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0, **settings}
  drawn = generate.choose_tokens(
    jnp.broadcast_to(LOGITS[None], (300, 4)), jax.random.key(0), **settings
  )
  assert set(np.asarray(drawn).tolist()) == possible


@pytest.mark.parametrize(
  ('settings', 'words'),
  [
    ({'max_new_tokens': 0}, 'max_new_tokens=0'),
    ({'temperature': -1.0}, r'temperature=-1\.0'),
    ({'top_p': 0.0}, r'top_p=0\.0'),
    ({'temperature': 1.0}, 'needs an rng'),
  ],
)
def test_settings_out_of_range_are_refused(model, settings, words):
  with pytest.raises(errors.UsageError, match=words):
    generate.generate(
      *model, make_prompt(ROWS), **{'max_new_tokens': 1, **settings}
    )


@pytest.mark.parametrize('tie', [True, False])
def test_logits_are_not_rounded(model, tie):
  _, params = model
  module = qwen3_vl.Qwen3VLForConditionalGeneration(
    dataclasses.replace(CONFIG, tie_word_embeddings=tie), jnp.bfloat16
  )
  hidden = jax.random.normal(jax.random.key(2), (3, 32), jnp.bfloat16)
  logits = module.apply({'params': params}, hidden, method='compute_logits')
  assert logits.dtype == jnp.float32
  kernel = params['head']['kernel']
  if tie:
    kernel = params['decoder']['embedding'].T
  # Factors of bfloat16, products and sums of float32.
  rounded = np.asarray(kernel.astype(jnp.bfloat16), np.float32)
  expected = np.asarray(hidden, np.float32) @ rounded
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-4)

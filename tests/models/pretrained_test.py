"""Tests that models are saved whole and loaded only where they fit."""

import copy
import dataclasses
import json

import flax.linen as nn
import jax
import numpy as np
import pytest

from tests.models import micro
from vhop_jax import errors
from vhop_jax.models import parameter_file, pretrained


def change(**decoder):
  settings = copy.deepcopy(micro.SETTINGS)
  settings['decoder'] |= decoder
  return settings


def save(path, model, **metadata):
  parameter_file.save_params(
    path, model.params, {'model': model.settings, **metadata}
  )


def assert_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_what_is_saved_is_loaded(embedder, tmp_path):
  path = tmp_path / 'embedder.safetensors'
  save(path, embedder)
  loaded = pretrained.load_embedder(path)
  assert_equal(loaded.params, embedder.params)
  assert loaded.module == embedder.module
  assert loaded.fingerprint == embedder.fingerprint
  assert loaded.maker.grid == (1, 2)


def test_shipped_model_loads_and_knows_every_word():
  model = pretrained.load_embedder('tiny')
  assert (
    model.maker.tokenizer.get_vocab_size()
    <= (model.settings['decoder']['vocab_size'])
  )
  assert pretrained.SHIPPED['tiny'].stat().st_size < 10e6


@pytest.mark.parametrize(
  ('decoder', 'name'),
  [
    # The first in the order of names.
    ({'num_layers': 3}, 'text/decoder/layers/attention_norm/scale'),
    ({'mlp_size': 64}, 'text/decoder/layers/down/kernel'),
    ({'vocab_size': 400}, 'text/decoder/embedding'),
  ],
)
def test_model_of_another_size_is_a_data_error(
  embedder, tmp_path, decoder, name
):
  path = tmp_path / 'embedder.safetensors'
  parameter_file.save_params(
    path, embedder.params, {'model': change(**decoder)}
  )
  with pytest.raises(
    errors.DataError, match=f'another model size: {name} '
  ) as e:
    pretrained.load_embedder(path)
  assert '\n' not in str(e.value)
  assert str(path) in str(e.value)


@pytest.mark.parametrize(
  'settings',
  [change(wings=2), {}, change(num_kv_heads=3), change(vocab_size=10)],
)
def test_settings_that_no_model_has_are_a_data_error(
  embedder, tmp_path, settings
):
  path = tmp_path / 'embedder.safetensors'
  parameter_file.save_params(path, embedder.params, {'model': settings})
  with pytest.raises(errors.DataError, match='cannot make'):
    pretrained.load_embedder(path)


def test_file_of_something_else_is_a_data_error(embedder, tmp_path):
  path = tmp_path / 'other.safetensors'
  parameter_file.save_params(path, embedder.params, {})
  with pytest.raises(errors.DataError, match='holds no embedding model'):
    pretrained.load_embedder(path)
  with pytest.raises(errors.DataError, match='holds no router'):
    pretrained.load_router(path, embedder)


def test_sizes_that_do_not_fit_each_other_are_usage_errors():
  with pytest.raises(errors.UsageError, match='output_size=32 must equal'):
    pretrained.make_module(change(hidden_size=48))
  with pytest.raises(errors.UsageError, match=r'vocab_size=10: raise it'):
    pretrained.make_maker(change(vocab_size=10))


def test_fingerprint_is_of_parameters_and_layout(embedder):
  again = pretrained.make_pretrained(
    json.loads(json.dumps(micro.SETTINGS)), embedder.params
  )
  assert again.fingerprint == embedder.fingerprint
  other = {**micro.SETTINGS, 'template': 'qwen3_vl_embedding'}
  made = pretrained.make_pretrained(other, embedder.params)
  assert made.fingerprint != embedder.fingerprint
  moved = jax.tree.map(lambda x: x + 1, embedder.params)
  made = pretrained.make_pretrained(micro.SETTINGS, moved)
  assert made.fingerprint != embedder.fingerprint


def test_new_router_scores_as_the_embedder(embedder):
  made = pretrained.make_router(embedder, inverse_temperature=20.0)
  assert_equal(made.params['state'], embedder.params['text'])
  assert_equal(made.params['gallery'], embedder.params['text'])
  np.testing.assert_array_equal(made.params['select']['kernel'], np.eye(32))
  assert made.gallery_embedder().params == embedder.params


def test_saved_router_is_loaded_by_its_own_embedder(embedder, router, tmp_path):
  path = tmp_path / 'router.safetensors'
  module = router.module.clone(view='history', gate_input='both')
  router = dataclasses.replace(router, module=module)
  pretrained.save_router(path, router, training={'steps': 3})
  loaded = pretrained.load_router(path, embedder)
  assert_equal(loaded.params, router.params)
  assert loaded.module == module
  assert loaded.inverse_temperature == router.inverse_temperature
  _, metadata = parameter_file.load_params(path)
  assert metadata['training'] == {'steps': 3}
  other = pretrained.make_pretrained(
    micro.SETTINGS, jax.tree.map(lambda x: x + 1, embedder.params)
  )
  with pytest.raises(errors.DataError, match='another embedding model') as e:
    pretrained.load_router(path, other)
  assert other.fingerprint[:12] in str(e.value)


def test_router_of_another_size_names_its_first_tensor(
  embedder, router, tmp_path
):
  path = tmp_path / 'router.safetensors'
  pretrained.save_router(path, router, training={})
  settings = change(mlp_size=64)
  shapes = jax.eval_shape(
    lambda: pretrained.init_params(settings, jax.random.key(0))
  )
  larger = pretrained.make_pretrained(
    settings,
    jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), nn.meta.unbox(shapes)),
  )
  words = r'gallery/decoder/layers/down/kernel has shape \[2, 48, 32\] there'
  with pytest.raises(errors.DataError, match=words):
    pretrained.load_router(path, larger)

"""Tests the account of memory by hand and by its command."""

import pathlib

import jax
import numpy as np
import pytest

from tests import command
from tests.models import micro
from vhop_jax import errors
from vhop_jax.models import lora, pretrained
from vhop_jax.train import memory, sharding

LORA = lora.LoraConfig(rank=2, alpha=4.0)


@pytest.mark.parametrize('name', memory.STAGES)
def test_paper_recipe_fits_a_chip(name, capsys):
  code = memory.main(['memory', f'--config=configs/{name}.py:2b'])
  assert code == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == 'Qwen3-VL 2b on 8 chips; GB on each:'
  # An H100 has 80 GB, a v5p chip 95.
  assert 1 < float(lines[-1].split()[-1]) < 60


def account(**changes):
  config = command.load_config('sft', '2b', changes)
  return memory.compute_account(config, size='2b', devices=8)


def test_parameters_are_those_of_the_model():
  made = account()
  # The text encoder: a table of 151,936 x 2,048; 28 layers of query and out
  # 2 x 2,048 x 2,048, key and value 2 x 2,048 x 1,024, MLP 3 x 2,048 x 6,144,
  # norms 2 x 2,048 and 2 x 128; and the last norm. bfloat16 over 8 chips; only
  # the norms of heads, 2 x 128 a layer, lie whole on each.
  layer = 2 * 2048**2 + 2 * 2048 * 1024 + 3 * 2048 * 6144 + 2 * 2048
  count = 151_936 * 2048 + 28 * layer + 2048
  assert made.base == pytest.approx(2 * (count / 8 + 28 * 256), rel=1e-3)
  # Float32; A and B of each product, on both sides. What is as long as the
  # residual stream is cut in 8: the inputs of five products, the outputs of
  # `down`. And the head W, 2,048 x 2,048, cut by its rows.
  a = 32 * (5 * 2048 / 8 + 6144)
  b = 32 * (2048 + 2 * 1024 + 2 * 6144 + 2048 / 8)
  expected = 4 * (2 * 28 * (a + b) + 2048**2 / 8)
  assert made.trained == pytest.approx(expected, rel=0.01)
  assert made.optimizer == 2 * made.trained
  assert made.gradients == made.trained


def test_remat_and_batch_change_the_activations():
  made = account()
  assert account(**{'backbone.remat': 'none'}).activations > (
    5 * made.activations
  )
  larger = account(**{'data.batch_size': 64})
  assert larger.activations == pytest.approx(2 * made.activations, rel=0.01)
  assert larger.batch == pytest.approx(2 * made.batch, rel=0.01)
  assert larger.base == made.base


def test_embedding_model_keeps_a_chunk():
  def count(**changes):
    config = command.load_config('embed', '2b', changes)
    return memory.compute_account(config, size='2b', devices=8)

  made = count()
  assert made.base == account().base
  assert made.tower == account().tower
  # The adapters of one side, and no head.
  assert made.trained == pytest.approx(
    (account().trained - 4 * 2048**2 / 8) / 2, rel=0.01
  )
  larger = count(**{'data.batch_size': 1024})
  assert larger.activations == made.activations
  assert larger.batch == 2 * made.batch
  assert count(chunk=128).activations == 2 * made.activations


def test_impossible_requests_are_refused(capsys):
  config = command.load_config('sft', '2b', {})
  with pytest.raises(errors.UsageError, match="size='3b': choose tiny"):
    memory.compute_account(config, size='3b', devices=8)
  config.mesh.tensor = 3
  with pytest.raises(errors.UsageError, match='does not divide 8'):
    memory.compute_account(config, size='2b', devices=8)
  assert memory.main(['memory']) == 2
  assert memory.main(['memory', '--config=configs/pretrain.py']) == 2
  assert '--config=FILE.py is needed' in capsys.readouterr().err


def test_loaded_parameters_keep_their_axes(embedder):
  """What comes from a file lies on the mesh as what was drawn there does."""
  made = pretrained.make_router(embedder, inverse_temperature=20.0, lora=LORA)
  axes = sharding.compute_logical_axes(
    pretrained.box_params(made.module, made.params)
  )
  layers = axes['base']['decoder']['layers']
  assert layers['query']['kernel'] == ('layers', 'embed', 'heads', 'head_dim')
  assert axes['base']['decoder']['embedding'] == ('vocab', 'embed')
  adapter = axes['state']['decoder']['layers']['query']
  assert adapter['lora_a'] == ('layers', 'embed', None)
  assert adapter['lora_b'] == ('layers', None, 'heads', 'head_dim')
  assert axes['select']['kernel'] == ('embed', None)
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  placed = jax.device_put(
    made.params, sharding.make_param_shardings(made.params, axes, mesh)
  )
  kernel = placed['base']['decoder']['layers']['query']['kernel']
  size = micro.SETTINGS['decoder']
  assert {s.data.shape for s in kernel.addressable_shards} == {
    (
      size['num_layers'],
      size['hidden_size'] // 2,
      size['num_heads'] // 2,
      size['head_dim'],
    )
  }
  np.testing.assert_array_equal(
    kernel, made.params['base']['decoder']['layers']['query']['kernel']
  )


def test_configs_say_how_to_count():
  for name in memory.STAGES:
    text = pathlib.Path(f'configs/{name}.py').read_text()
    assert f'--config=configs/{name}.py:2b' in text

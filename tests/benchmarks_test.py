"""Runs the benchmark of the backbone at the smallest size."""

import dataclasses
import importlib.util
import pathlib

import pytest

from tests.models import qwen3_vl_folder


@pytest.fixture(scope='module')
def backbone():
  path = pathlib.Path('benchmarks/backbone.py')
  spec = importlib.util.spec_from_file_location('backbone', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_step_of_adapters_is_measured(backbone, capsys):
  backbone.main(
    ['--step', '--size=tiny', '--batch=2', '--length=8', '--rounds=1']
  )
  lines = capsys.readouterr().out.splitlines()
  assert 'batch 2 x 8 tokens' in lines[0]
  assert lines[-1].startswith('share of the rate')


def test_work_is_that_of_the_formula(backbone):
  config = dataclasses.replace(
    qwen3_vl_folder.CONFIG.decoder, num_layers=2, num_heads=4, head_dim=16
  )
  params = qwen3_vl_folder.make_params(qwen3_vl_folder.CONFIG)['decoder']
  # Two layers of query and out 2 x 64 x 64, key and value 2 x 64 x 32, MLP
  # 3 x 64 x 96; four times for each of 3 x 5 tokens. Attention: 3 passes x 4 x
  # 2 layers x 15 tokens x 5 slots x 64 / 2.
  products = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
  expected = 4 * products * 15 + 3 * 4 * 2 * 15 * 5 * 64 / 2
  work = backbone.count_work(config, {}, params, batch=3, length=5)
  assert work == expected


@pytest.mark.parity
def test_both_sides_are_compared(backbone, capsys, monkeypatch):
  pytest.importorskip('torch', reason='needs the extra [parity]')
  monkeypatch.setattr(backbone, 'IMAGES', 2)
  monkeypatch.setattr(backbone, 'SIDE_PX', 64)
  backbone.compare(
    dataclasses.replace(qwen3_vl_folder.CONFIG, image_token_id=300), 1, False
  )
  out = capsys.readouterr().out
  assert 'largest difference' in out
  assert 'forward: ours / eager' in out
  assert 'forward + backward: ours / eager' in out

"""Exchanges adapters with PEFT, and refuses what would be misread."""

import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests.models import micro, qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.models import convert, lora, peft_format

CONFIG = qwen3_vl_folder.CONFIG
LORA = lora.LoraConfig(
  rank=3, alpha=5.0, modules=('query', 'key', 'value', 'out', 'up', 'down')
)


def make_adapters():
  base = qwen3_vl_folder.make_params(CONFIG)['decoder']
  made = lora.init(base, LORA, jax.random.key(0))
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: np.float32(0.1 * rng.normal(size=x.shape)), made
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return peft_format.save_adapters(
    tmp_path_factory.mktemp('peft'), make_adapters(), LORA
  )


def test_round_trip(folder):
  adapters, config = peft_format.load_adapters(folder, CONFIG.decoder)
  assert (config.rank, config.alpha, config.dropout) == (3, 5.0, 0.0)
  assert set(config.modules) == set(LORA.modules)
  assert all(jax.tree.leaves(micro.find_equal(adapters, make_adapters())))


@pytest.mark.parity
# PEFT 0.21 asks transformers 5.24 by an old name.
@pytest.mark.filterwarnings('ignore:.is_gradient_checkpointing:FutureWarning')
@pytest.mark.parametrize('with_head', [False, True])
def test_peft_computes_the_same(tmp_path, with_head):
  torch = pytest.importorskip('torch', reason='needs the extra [parity]')
  transformers = pytest.importorskip('transformers')
  peft = pytest.importorskip('peft', reason='needs the extra [parity]')
  qwen3_vl_folder.save(tmp_path / 'base')
  adapters = make_adapters()
  peft_format.save_adapters(
    tmp_path / 'ours', adapters, LORA, with_head=with_head
  )
  kind = 'Qwen3VLForConditionalGeneration' if with_head else 'Qwen3VLModel'
  load = getattr(transformers, kind).from_pretrained
  tokens = torch.arange(2, 9)[None]

  def run(model):
    with torch.no_grad():
      return model(input_ids=tokens)[0].numpy()

  # Ours merged into the base is what PEFT makes of base and adapters.
  params = convert.load_params(tmp_path / 'base')
  params['decoder'] = lora.merge(lora.join(params['decoder'], adapters), LORA)
  convert.save_folder(tmp_path / 'merged', params, CONFIG)
  expected = run(load(tmp_path / 'merged'))
  plain = run(load(tmp_path / 'base'))
  model = peft.PeftModel.from_pretrained(
    load(tmp_path / 'base'), tmp_path / 'ours'
  )
  np.testing.assert_allclose(run(model), expected, atol=1e-4, rtol=1e-4)
  assert np.abs(plain - expected).max() > 1e-2

  # What PEFT writes is what it read.
  model.save_pretrained(tmp_path / 'theirs')
  again, config = peft_format.load_adapters(tmp_path / 'theirs', CONFIG.decoder)
  assert config.scale == LORA.scale
  assert all(jax.tree.leaves(micro.find_equal(again, adapters)))


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'use_rslora': True}, 'use_rslora=True is not implemented'),
    ({'use_dora': True}, 'use_dora'),
    ({'bias': 'all'}, "bias='all'"),
    ({'rank_pattern': {'q_proj': 8}}, 'rank_pattern'),
    ({'modules_to_save': ['lm_head']}, 'modules_to_save'),
    ({'target_modules': 'all-linear'}, "'all-linear' is not implemented"),
    ({'target_modules': ['qkv']}, r"\['qkv'\] is not implemented"),
    ({'target_modules': ['q_proj']}, 'tensors that have no place'),
    ({'target_modules': ['gate_proj']}, 'lacks language_model.*gate_proj'),
    ({'r': 4}, 'needs .64, 4.: is it for another model'),
  ],
)
def test_what_would_be_misread_is_refused(folder, tmp_path, changes, words):
  other = tmp_path / 'other'
  shutil.copytree(folder, other)
  path = other / peft_format.CONFIG
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))
  with pytest.raises(errors.DataError, match=words):
    peft_format.load_adapters(other, CONFIG.decoder)


@pytest.mark.parametrize('name', [peft_format.CONFIG, peft_format.WEIGHTS])
def test_missing_and_damaged_files_are_named(folder, tmp_path, name):
  other = tmp_path / 'other'
  shutil.copytree(folder, other)
  (other / name).write_bytes(b'{')
  with pytest.raises(errors.DataError, match=f'{name} is damaged'):
    peft_format.load_adapters(other, CONFIG.decoder)
  (other / name).unlink()
  with pytest.raises(errors.DataError, match=f'{name} is missing'):
    peft_format.load_adapters(other, CONFIG.decoder)


def test_matrices_are_torchs(folder):
  tensors = safetensors.numpy.load_file(folder / peft_format.WEIGHTS)
  name = 'base_model.model.language_model.layers.1.self_attn.o_proj.lora_{}'
  a = make_adapters()['layers']['out']['lora_a']
  np.testing.assert_array_equal(
    tensors[name.format('A.weight')], a[1].reshape(-1, 3).T
  )
  assert tensors[name.format('B.weight')].shape == (64, 3)

"""Exchanges adapters with PEFT, and refuses what would be misread."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.models import micro, qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.models import convert, decoder, lora, peft_format

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
    ({'init_lora_weights': 'pissa'}, "'pissa' changes the base"),
    ({'init_lora_weights': 'olora'}, "'olora' changes the base"),
    ({'kasa_config': {'beta': 1e-4}}, 'kasa_config'),
    ({'use_next_variant': True}, 'use_next_variant=True is not implemented'),
    ({'r': 0}, f'{peft_format.CONFIG}: lora rank=0'),
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


@pytest.mark.parity
@pytest.mark.filterwarnings('ignore:.is_gradient_checkpointing:FutureWarning')
@pytest.mark.parametrize('draw', [True, 'gaussian', 'orthogonal'])
def test_adapters_that_peft_made_compute_the_same(tmp_path, draw):
  torch = pytest.importorskip('torch', reason='needs the extra [parity]')
  transformers = pytest.importorskip('transformers')
  peft = pytest.importorskip('peft', reason='needs the extra [parity]')
  qwen3_vl_folder.save(tmp_path / 'base')
  load = transformers.Qwen3VLModel.from_pretrained
  tokens = np.arange(2, 9)[None]
  torch.manual_seed(0)
  targets = [name.split('.')[-1] for name in lora.MODULES.values()]
  model = peft.get_peft_model(
    load(tmp_path / 'base'),
    peft.LoraConfig(
      r=4, lora_alpha=6, target_modules=targets, init_lora_weights=draw
    ),
  )
  with torch.no_grad():
    for name, x in model.named_parameters():
      if 'lora_B' in name:  # As training would; it starts at zero.
        x += 0.1 * torch.randn_like(x)
    expected = model.eval()(input_ids=torch.from_numpy(tokens))[0].numpy()
  model.save_pretrained(tmp_path / 'theirs')

  # Beside the base, not merged into it.
  adapters, config = peft_format.load_adapters(
    tmp_path / 'theirs', CONFIG.decoder
  )
  assert (config.rank, config.alpha) == (4, 6.0)
  params = convert.load_params(tmp_path / 'base')['decoder']
  module = decoder.Decoder(dataclasses.replace(CONFIG.decoder, lora=config))

  def run(params):
    size = tokens.shape[1]
    return module.apply(
      {'params': params},
      params['embedding'][tokens],
      jnp.broadcast_to(jnp.arange(size)[None, None], (3, 1, size)),
      jnp.ones((1, size), bool),
    )[0]

  hidden = jax.jit(run)(lora.join(params, adapters))
  np.testing.assert_allclose(hidden, expected, atol=1e-4, rtol=1e-4)

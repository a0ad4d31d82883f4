"""Tests that every config loads and that the shipped model's is the repo's."""

import importlib.util
import json
import pathlib

import pytest

from vhop_jax.evaluate import paper
from vhop_jax.models import parameter_file, pretrained
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import prompt, splits, wordings
from vhop_jax.worlds import world as world_lib

CONFIGS = sorted(pathlib.Path('configs').glob('*.py'))


def load(path, arg=None):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config(arg)


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_configs_are_locked_and_name_their_stage(path):
  config = load(path)
  assert config.is_locked
  assert config.stage == path.stem
  assert config.seed == 0


def test_sft_of_the_paper_takes_one_world_and_its_gold_chains():
  sft = next(path for path in CONFIGS if path.stem == 'sft')
  config = load(sft, 'paper')
  assert config.worlds.endswith('paper_sft')
  assert config.data.walk_frac == 0
  assert not config.data.reword
  with pytest.raises(ValueError, match='sft.py:other'):
    load(sft, 'other')


def test_routers_of_2b_are_measured_on_the_model_they_were_trained_on():
  configs = {
    name: load(pathlib.Path(f'configs/{name}.py'), '2b')
    for name in ('sft', 'imitation', 'reinforce', 'evaluate')
  }
  for config in configs.values():
    assert config.embedder == configs['sft'].embedder
    # What the fingerprint is of.
    for name in ('width_px', 'height_px', 'dtype'):
      assert config.backbone[name] == configs['sft'].backbone[name]
  with pytest.raises(ValueError, match='evaluate.py:other'):
    load(pathlib.Path('configs/evaluate.py'), 'other')


def test_worlds_that_configs_name_are_splits():
  names = set(splits.make_splits())
  for path in CONFIGS:
    config = load(path)
    for key in ('dev', 'world'):
      if key in config:
        assert pathlib.Path(config[key]).name in names
    for folder in config.get('test', ()):
      assert pathlib.Path(folder).name in names


def test_wider_pretraining_goes_on_from_the_first_on_other_pairs():
  pretrain = next(path for path in CONFIGS if path.stem == 'pretrain')
  first, wider = load(pretrain), load(pretrain, 'wider')
  assert wider.embedder
  assert wider.seed != first.seed
  assert wider.model == first.model
  with pytest.raises(ValueError, match='pretrain.py:other'):
    load(pretrain, 'other')


def test_shipped_model_was_made_by_the_config():
  _, metadata = parameter_file.load_params(pretrained.SHIPPED['tiny'])
  pretrain = next(path for path in CONFIGS if path.stem == 'pretrain')
  made = metadata['training']
  # As the file holds it: JSON has no tuples.
  now = json.loads(json.dumps(load(pretrain, 'wider').to_dict()))
  # How often it was logged makes no difference.
  for name in ('model', 'loss', 'seed'):
    assert made[name] == now[name]
  # What there was not yet is off.
  assert made['data'] | {'dress_frac': 0.0} == now['data']
  for phase in ('tower', 'text', 'joint'):
    for name in (f'{phase}_steps', f'{phase}_optimizer'):
      assert made[name] == now[name]


def test_an_ablation_changes_what_it_says():
  experiment = next(path for path in CONFIGS if path.stem == 'experiment')
  main = load(experiment).settings
  assert {name: main[name] for name in paper.ABLATIONS} == paper.ABLATIONS
  for name, setting, value in (
    ('demonstrations', 'demonstrations', True),
    ('no_warmup', 'warmup', False),
    ('no_evidence', 'gate_input', 'state'),
    ('plain_dagger', 'follows_expert', False),
    ('history', 'view', 'history'),
    ('final', 'rejection', 'final'),
    ('five_wordings', 'composed', False),
    ('lambda_0', 'decision_penalty', 0.0),
    ('lambda_002', 'decision_penalty', 0.02),
    ('lambda_005', 'decision_penalty', 0.05),
  ):
    config = load(experiment, name)
    assert dict(config.settings) == {**main, setting: value}
    assert config.experiment == 'precise_3hop'
  final = load(experiment, 'final')
  sections = (final.sft, final.imitation, final.reinforce, final.evaluate)
  assert {section.rejection for section in sections} == {'final'}
  assert load(experiment, 'demonstrations').sft.loss.gate_weight > 0
  assert load(experiment, 'plain_dagger').imitation.collect.expert_fracs == (
    0.0,
  )
  assert load(experiment, 'no_warmup').sft.warmup_steps == 0
  plain = load(experiment, 'five_wordings')
  for stage in plain.stages:
    assert plain[stage].data.compose_frac == 0


@pytest.mark.parametrize('name', ['precise_mixed', 'vague_mixed', 'all_levels'])
def test_training_on_several_kinds_has_room_for_its_longest_routes(name):
  experiment = next(path for path in CONFIGS if path.stem == 'experiment')
  config = load(experiment, name)
  kinds = [
    splits.choose_splits(pattern) for pattern in config.sft.worlds.split(',')
  ]
  specs = [spec for kind in kinds for spec in kind.values()]
  hops = max(spec.hops for spec in specs) + config.sft.walk_extra_hops
  assert config.imitation.walk_extra_hops == config.sft.walk_extra_hops
  marks = {level_lib.find_print(spec.level) for spec in specs}
  assert config.sft.data.decisions >= hops
  route = [
    world_lib.Hop('leftof', ('orange', 'purple')[i % 2]) for i in range(hops)
  ]
  # Wordings in which these are long; a template and the image come on top.
  longest = max(
    len(prompt.split_words(prompt.say_precise(one, route)))
    for mark in marks
    for one in wordings.WORDINGS[mark]['standard']['precise']
  )
  for stage in config.stages:
    assert config[stage].data.max_text_tokens >= longest + 8

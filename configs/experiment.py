r"""Runs an experiment of the paper: trains all stages, then measures.

  python -m vhop_jax.main --config=configs/experiment.py:precise_3hop \
      --workdir=runs/precise_3hop

The argument names the experiment:

  precise_3hop   trained on precise prompts of three hops
  precise_mixed  ... of two, three and four hops
  vague_3hop     trained on vague prompts of three hops
  vague_mixed    ... of two, three and four hops
  all_levels     on precise prompts of three hops, of levels L4, L5 and L6
  quickstart     precise_3hop, measured on its own kind of worlds alone
  demonstrations precise_3hop whose SFT trains the gates too, on wrong turns
  no_warmup      ... whose SFT trains both sides from the start
  no_evidence    ... whose gates read the state alone
  plain_dagger   ... whose rollouts in imitation never follow the expert
  history        ... whose states see what was taken back, too
  final          ... where a rejected image never returns
  five_wordings  ... whose prompts are never put together from parts
  lambda_0, lambda_002, lambda_005   ... with another decision penalty
"""

import os
import runpy

import ml_collections

# A test set is a line: its name, and the names of its worlds.
TEST_SETS = (
  ('L4 3-hop', 'test_w*'),
  ('L1', 'l1_test_w*'),
  ('L2', 'l2_test_w*'),
  ('L3', 'l3_test_w*'),
  ('L5', 'l5_test_w*'),
  ('L6', 'l6_test_w*'),
  ('L7', 'l7_test_w*'),
  ('foreground', 'foreground_test_w*'),
  ('2 hops', 'hop2_test_w*'),
  ('4 hops', 'hop4_test_w*'),
  ('5 hops', 'hop5_test_w*'),
  ('rephrased L4', 'rephrased_test_w*'),
  ('realistic', 'realistic_test_w*'),
  ('vague L4', 'vague_test_w*'),
  ('vague L1', 'vague_l1_test_w*'),
  ('vague L2', 'vague_l2_test_w*'),
  ('vague L3', 'vague_l3_test_w*'),
  ('vague, rephrased L4', 'vague_rephrased_test_w*'),
  ('vague, 2 hops', 'vague_hop2_test_w*'),
  ('vague, 4 hops', 'vague_hop4_test_w*'),
)
_MIXED = ('', 'hop2_', 'hop4_')
# Of these there are more worlds to fine-tune on than of other kinds; trained on
# several kinds, these give ten.
_LARGE = ('', 'vague_')
_MIXED_HOPS = 4  # Of the longest chains.
# What an experiment trains on: prefixes of the names of its worlds.
TRAINING_SETS = {
  'precise_3hop': ('',),
  'precise_mixed': _MIXED,
  'vague_3hop': ('vague_',),
  'all_levels': ('', 'l5_', 'l6_'),
  'vague_mixed': tuple(f'vague_{prefix}' for prefix in _MIXED),
}
# An ablation keeps its experiment's name; its settings tell it apart.
_ABLATIONS = (
  'quickstart',
  'demonstrations',
  'no_warmup',
  'no_evidence',
  'plain_dagger',
  'history',
  'final',
  'five_wordings',
  'lambda_0',
  'lambda_002',
  'lambda_005',
)
_PENALTIES = {'lambda_0': 0.0, 'lambda_002': 0.02, 'lambda_005': 0.05}


def _load(name, arg=None):
  """Returns the settings of a config file beside this one."""
  path = os.path.join(os.path.dirname(__file__), f'{name}.py')
  return runpy.run_path(path)['get_config'](arg).to_dict()


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: one of the names above; None is 'precise_3hop'.
  """
  arg = arg or 'precise_3hop'
  if arg not in (*TRAINING_SETS, *_ABLATIONS):
    raise ValueError(
      f'configs/experiment.py:{arg}: the argument is one of'
      f' {", ".join((*TRAINING_SETS, *_ABLATIONS))}'
    )
  config = ml_collections.ConfigDict()
  config.stage = 'experiment'
  config.experiment = arg if arg in TRAINING_SETS else 'precise_3hop'
  config.seed = 0
  config.embedder = 'tiny'
  # What the first stage starts from, if that is not the embedding model.
  config.router = ''
  config.stages = ('sft', 'imitation', 'reinforce')
  # Stages whose routers another experiment's folder has.
  config.reuse = ''
  config.reuse_stages = ()

  # The folder of all worlds; the names below lie in it.
  config.worlds = 'runs/worlds'
  prefixes = TRAINING_SETS[config.experiment]
  config.sft = _load('sft', 'turns' if arg == 'demonstrations' else None)
  config.imitation = _load(
    'imitation', 'plain' if arg == 'plain_dagger' else None
  )
  config.reinforce = _load('reinforce')
  config.sft.worlds = ','.join(
    f'{p}sft_00*' if p in _LARGE and len(prefixes) > 1 else f'{p}sft_*'
    for p in prefixes
  )
  config.imitation.worlds = ','.join(f'{p}il_*' for p in prefixes)
  config.reinforce.worlds = ','.join(f'{p}rl_*' for p in prefixes)
  is_mixed = config.experiment.endswith('_mixed')
  for stage in config.stages:
    config[stage].dev = f'{prefixes[0]}dev'
    # The worlds of several lengths differ in the size of their families.
    if len(prefixes) > 1:
      config[stage].data.family_size = 12
      config[stage].data.max_text_tokens = 96 if is_mixed else 80

  if is_mixed:
    # Walks through a family of four hops may go one further, so routes of five
    # hops are learned from worlds that ask for four at most.
    config.sft.walk_extra_hops = 1
    config.imitation.walk_extra_hops = 1
    config.sft.data.decisions = _MIXED_HOPS + 1
  if prefixes[0].startswith('vague'):
    # Which object is new is learned from pairs of images, not from words, so it
    # takes longer.
    config.sft.warmup_steps = 900
    config.sft.data.walk_frac = 0.75

  if arg == 'no_warmup':
    config.sft.joint_steps += config.sft.warmup_steps
    config.sft.warmup_steps = 0
  if arg == 'no_evidence':
    config.sft.gate_input = 'state'
  if arg == 'history':
    config.sft.view = 'history'
  if arg == 'final':
    for stage in config.stages:
      config[stage].rejection = 'final'
  if arg == 'five_wordings':
    for stage in config.stages:
      config[stage].data.compose_frac = 0.0
  if arg in _PENALTIES:
    config.reinforce.collect.decision_penalty = _PENALTIES[arg]
  config.settings = dict(
    demonstrations=arg == 'demonstrations',
    warmup=arg != 'no_warmup',
    gate_input=config.sft.gate_input,
    follows_expert=arg != 'plain_dagger',
    view=config.sft.view,
    rejection=config.sft.rejection,
    composed=arg != 'five_wordings',
    decision_penalty=config.reinforce.collect.decision_penalty,
  )

  # The report is about the first: the experiment's own kind, if it has one.
  own = 'vague L4' if config.experiment.startswith('vague') else 'L4 3-hop'
  config.test_sets = tuple(sorted(TEST_SETS, key=lambda pair: pair[0] != own))
  if arg == 'quickstart':
    config.test_sets = config.test_sets[:1]
  config.evaluate = _load('evaluate')
  config.evaluate.rejection = config.sft.rejection
  config.evaluate.dev = f'{prefixes[0]}dev'
  # Decided by the experiment.
  for name in ('routers', 'training', 'test_sets', 'settings', 'experiment'):
    del config.evaluate[name]
  return config.lock()

r"""Trains the router on gold chains, from the embedding model.

  python -m vhop_jax.main --config=configs/sft.py --workdir=runs/sft

The argument `turns` trains the gates too, on demonstrations that take wrong
turns and come back; `paper` takes a single world of 500 families, with gold
chains alone:

  python -m vhop_jax.main --config=configs/sft.py:paper --workdir=runs/paper

The argument `2b` is for Qwen3-VL-Embedding-2B in the folder
models/Qwen3-VL-Embedding-2B, on a slice of a v5p-8 or 8 x H100; what a chip
holds is told, without any, by

  python -m vhop_jax.train.memory --config=configs/sft.py:2b
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, 'turns' for demonstrations with wrong turns, 'paper' for one
      training world, or '2b' for the paper's backbone.
  """
  if arg not in (None, 'turns', 'paper', '2b'):
    raise ValueError(
      f"configs/sft.py:{arg}: the argument is 'turns', 'paper', '2b' or none"
    )
  config = ml_collections.ConfigDict()
  config.stage = 'sft'
  config.seed = 0
  # 'tiny' is the model in the package; or the path of a parameter file.
  config.embedder = 'tiny'
  # Of a Hugging Face folder of Qwen3-VL as the embedder, else not read.
  config.backbone = dict(
    width_px=224,
    height_px=160,
    dtype='float32',
    # 'none', 'dots' or 'full': what is computed anew in the backward pass.
    remat='none',
    # 'matmul', 'xla' or, on NVIDIA GPUs in bfloat16, 'cudnn'.
    attention='matmul',
  )
  # A pattern; the training worlds must share nothing with the others.
  config.worlds = 'runs/worlds/sft_*'
  if arg == 'paper':
    config.worlds = 'runs/worlds/paper_sft'
  config.dev = 'runs/worlds/dev'
  # Beyond the paper: each training world a second time, as in a mirror.
  config.mirror = True
  # Of the walks below: as many hops more than the world's chains have.
  config.walk_extra_hops = 0

  # With the gallery side frozen; then of both sides.
  # One world alone is learned by heart when it is read longer.
  config.warmup_steps = 400 if arg in ('paper', '2b') else 700
  config.joint_steps = 100
  config.data = dict(
    batch_size=64,
    family_size=10,
    max_text_tokens=64,
    # Beyond the paper: every route in ever new words, and half of them
    # replaced by other walks through the same family.
    reword=True,
    # Share of these words that are put together from parts.
    compose_frac=0.5,
    walk_frac=0.5,
    # Of a demonstration; its wrong turns, none here.
    decisions=3,
    turns=dict(wrong_frac=0.0, equal_frac=0.8, deeper_frac=0.25),
    threads=2,
  )
  if arg == 'paper':
    config.mirror = False
    config.data.update(reword=False, walk_frac=0.0)
  config.temperature = 0.05
  # Adapters on a shared frozen text encoder; rank 0: none, all is trained.
  config.lora = dict(
    rank=0,
    alpha=32.0,
    dropout=0.0,
    modules=('query', 'key', 'value', 'up', 'gate', 'down'),
  )
  # What a state sees: all that came before ('history'), or the 'stack'.
  config.view = 'stack'
  # What the backtrack gate reads: 'evidence', the 'state', or 'both'.
  config.gate_input = 'evidence'
  config.loss = dict(
    equals='ignored',
    noise=0.2,
    false_negative_margin=0.1,
    # Without wrong turns there is nothing for the gates to learn.
    gate_weight=0.0,
    # Of the backtrack gate: the weight of images to leave, of the first at a
    # place and of later ones.
    leave_shares=(0.5, 0.5),
    absence_weight=0.0,
    # That none of the others goes on were the right images withdrawn.
    withdrawn_weight=0.5,
  )
  if arg == 'turns':
    config.data.decisions = 12
    config.data.turns.wrong_frac = 0.35
    config.loss.gate_weight = 1.0
    config.loss.absence_weight = 1.0
  # Decisions of a rollout, which the gates are told.
  config.budget = 16
  # How long a rejected image stays so: 'final', 'branch' or 'selection'.
  config.rejection = 'selection'
  optimizer = dict(
    lr=1.5e-3,
    b1=0.9,
    b2=0.98,
    weight_decay=0.05,
    clip_norm=1.0,
    warmup_steps=20,
    schedule='cosine',
  )
  config.warmup_optimizer = dict(optimizer)
  config.joint_optimizer = dict(optimizer, lr=3e-4)
  config.evaluate_decisions = 5
  config.best_metric = ''
  config.mesh = dict(data=-1, fsdp=1, tensor=1)
  config.log_every = 10
  config.checkpoint_every = 50
  config.evaluate_every = 100
  if arg == '2b':
    # The paper's recipe on Qwen3-VL-Embedding-2B: one world of 500 families in
    # its own words, adapters of rank 32, the rest frozen.
    config.embedder = 'models/Qwen3-VL-Embedding-2B'
    config.worlds = 'runs/worlds/paper_sft'
    config.mirror = False
    config.backbone.update(dtype='bfloat16', remat='full')
    config.lora.rank = 32
    config.data.update(
      batch_size=32, max_text_tokens=160, reword=False, walk_frac=0.0
    )
    for phase in ('warmup', 'joint'):
      config[f'{phase}_optimizer'].update(lr=1e-4, weight_decay=0.0)
    config.mesh = dict(data=1, fsdp=-1, tensor=1)
  return config.lock()

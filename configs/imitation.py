r"""Trains a router online: the expert labels what its own rollouts visit.

  python -m vhop_jax.main --config=configs/imitation.py \
      --workdir=runs/imitation

The argument `plain` is DAgger whose rollouts never follow the expert.

The argument `2b` is for Qwen3-VL-Embedding-2B in the folder
models/Qwen3-VL-Embedding-2B, on a slice of a v5p-8 or 8 x H100; what a chip
holds is told, without any, by

  python -m vhop_jax.train.memory --config=configs/imitation.py:2b
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, 'plain' for rollouts of the policy alone, or '2b' for the
      paper's backbone.
  """
  if arg not in (None, 'plain', '2b'):
    raise ValueError(
      f"configs/imitation.py:{arg}: the argument is 'plain', '2b' or none"
    )
  config = ml_collections.ConfigDict()
  config.stage = 'imitation'
  config.seed = 0
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
  # What training starts from, and was made with the same embedder.
  config.router = 'runs/sft/router.safetensors'
  # The gates must see cosines as they are in worlds that the selection was
  # not trained on, so these are others than those of SFT.
  config.worlds = 'runs/worlds/il_*'
  config.dev = 'runs/worlds/dev'
  # Beyond the paper: each training world a second time, as in a mirror.
  config.mirror = True
  # Of the walks below: as many hops more than the world's chains have.
  config.walk_extra_hops = 0

  config.imitation_steps = 260
  config.data = dict(
    batch_size=64,
    family_size=10,
    max_text_tokens=64,
    reword=True,
    # Share of these words that are put together from parts.
    compose_frac=0.5,
    walk_frac=0.5,
    # Of a demonstration, and of a rollout before it is cut short.
    decisions=12,
    turns=dict(wrong_frac=0.35, equal_frac=0.8, deeper_frac=0.25),
    threads=2,
  )
  config.collect = dict(
    temperature=0.5,
    # One of these is drawn for each rollout.
    expert_fracs=(0.0, 0.3, 0.6, 0.9),
    # Rows that stay demonstrations.
    demonstration_frac=0.25,
  )
  if arg == 'plain':
    config.collect.update(expert_fracs=(0.0,), demonstration_frac=0.0)
  config.replay = dict(capacity=40, collect_every=3)
  config.loss = dict(
    equals='ignored',
    noise=0.2,
    false_negative_margin=0.1,
    gate_weight=1.0,
    # Weight of the images to leave, in the loss of the backtrack gate: of the
    # first at a place, and of later ones. To keep a dead end loses all; to
    # leave a gold image costs the decisions until it returns.
    leave_shares=(0.8, 0.5),
    # Beyond the paper: that no image goes on from a state competes too.
    absence_weight=1.0,
    # Nor would any of the others, were the right images withdrawn.
    withdrawn_weight=0.5,
  )
  config.budget = 16
  # How long a rejected image stays so: 'final', 'branch' or 'selection'.
  config.rejection = 'selection'
  config.imitation_optimizer = dict(
    lr=3e-3,
    b1=0.9,
    b2=0.98,
    weight_decay=0.05,
    clip_norm=1.0,
    warmup_steps=20,
    schedule='cosine',
    # Of the learning rate; the gates have 1. Quicker, the selection learns
    # these worlds' dead ends by heart, and the gates learn to trust it.
    part_factors=dict(state=0.07, select=0.07),
  )
  config.evaluate_decisions = 5
  config.best_metric = ''
  config.mesh = dict(data=-1, fsdp=1, tensor=1)
  config.log_every = 10
  config.checkpoint_every = 50
  config.evaluate_every = 130
  if arg == '2b':
    config.embedder = 'models/Qwen3-VL-Embedding-2B'
    config.mirror = False
    config.backbone.update(dtype='bfloat16', remat='full')
    config.data.update(batch_size=32, max_text_tokens=160)
    # The gates have ten times the rate of the adapters.
    config.imitation_optimizer.update(
      lr=1e-3, weight_decay=0.0, part_factors=dict(state=0.1, select=0.1)
    )
    config.mesh = dict(data=1, fsdp=-1, tensor=1)
  return config.lock()

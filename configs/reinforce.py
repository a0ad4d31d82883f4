r"""Trains a router by a reward: did it stop on a right answer, and how soon.

  python -m vhop_jax.main --config=configs/reinforce.py \
      --workdir=runs/reinforce

Its worlds have answers but no chains.

The argument `2b` is for Qwen3-VL-Embedding-2B in the folder
models/Qwen3-VL-Embedding-2B, on a slice of a v5p-8 or 8 x H100; what a chip
holds is told, without any, by

  python -m vhop_jax.train.memory --config=configs/reinforce.py:2b
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, or '2b' for the paper's backbone.
  """
  if arg not in (None, '2b'):
    raise ValueError(
      f"configs/reinforce.py:{arg}: the argument is '2b' or none"
    )
  config = ml_collections.ConfigDict()
  config.stage = 'reinforce'
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
  config.router = 'runs/imitation/router.safetensors'
  config.worlds = 'runs/worlds/rl_*'
  config.dev = 'runs/worlds/dev'
  # Beyond the paper: each training world a second time, as in a mirror.
  config.mirror = True
  # Of the walks below: as many hops more than the world's chains have.
  config.walk_extra_hops = 0

  config.reinforce_steps = 180
  config.data = dict(
    # Queries whose families are the candidates of all.
    batch_size=48,
    family_size=10,
    max_text_tokens=64,
    reword=True,
    # Share of these words that are put together from parts.
    compose_frac=0.5,
    walk_frac=0.0,
    decisions=16,
    turns=dict(wrong_frac=0.0, equal_frac=0.0, deeper_frac=0.0),
    threads=2,
  )
  config.budget = 16
  # How long a rejected image stays so: 'final', 'branch' or 'selection'.
  config.rejection = 'selection'
  config.policy = dict(
    # Of the rollouts and of what is trained. At 1 most rollouts fail by a
    # wrong image, and the gates learn to live with what greedy decoding would
    # not do.
    temperature=0.5,
    # Without them each decision's term is that of [VHOP, table 9].
    gate_complements=True,
  )
  config.collect = dict(
    # Of them these are rolled out so often, and the best groups are kept.
    queries=20,
    rollouts=8,
    groups=16,
    # Less than the paper's 0.02, at which the gates learn not to look twice.
    decision_penalty=0.01,
    # As large as the spread of success that should count half.
    eps=0.1,
    # Divided by its spread, a group that succeeds as a whole would teach
    # short ways several times as much as the reward says.
    normalize=False,
    mask_failed=True,
  )
  # Updates on the same rollouts.
  config.collect_every = 1
  config.loss = dict(
    clip_low=0.2,
    clip_high=0.28,
    aggregation='decision',
    ratio='decision',
    kl_weight=0.0,
  )
  config.reinforce_optimizer = dict(
    lr=1e-3,
    b1=0.9,
    b2=0.98,
    weight_decay=0.0,
    clip_norm=1.0,
    warmup_steps=5,
    schedule='cosine',
    # Of the learning rate; the gates have 1.
    part_factors=dict(state=0.1, select=0.1),
  )
  config.evaluate_decisions = 5
  config.best_metric = ''
  config.mesh = dict(data=-1, fsdp=1, tensor=1)
  config.log_every = 5
  config.checkpoint_every = 25
  config.evaluate_every = 30
  if arg == '2b':
    config.embedder = 'models/Qwen3-VL-Embedding-2B'
    config.mirror = False
    config.backbone.update(dtype='bfloat16', remat='full')
    config.data.update(batch_size=32, max_text_tokens=160)
    config.reinforce_optimizer.update(
      lr=3e-4, part_factors=dict(state=0.1, select=0.1)
    )
    config.mesh = dict(data=1, fsdp=-1, tensor=1)
  return config.lock()

r"""Pretrains the tiny embedding model on endless rendered pairs.

  python -m vhop_jax.main --config=configs/pretrain.py \
      --workdir=runs/pretrain

The argument `longer` trains what that wrote for as long again, on new pairs:

  python -m vhop_jax.main --config=configs/pretrain.py:longer \
      --workdir=runs/pretrain_longer

The argument `wider` goes on from there with more kinds of pictures: small
objects in front and around, more light and camera changes, look-alikes, models
by artists (`make assets`), and more queries that name neither relation nor
colour:

  python -m vhop_jax.main --config=configs/pretrain.py:wider \
      --workdir=runs/pretrain_wider

The argument `finer` goes on from there with different objects in the same
colours and pattern, which were half of what the result mistook, and with more
queries that name neither relation nor colour:

  python -m vhop_jax.main --config=configs/pretrain.py:finer \
      --workdir=runs/pretrain_finer
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, or 'longer', 'wider' or 'finer' to go on from the result of the
      one before.
  """
  if arg not in (None, 'longer', 'wider', 'finer'):
    raise ValueError(
      f"configs/pretrain.py:{arg}: the argument is 'longer', 'wider', 'finer'"
      ' or none'
    )
  config = ml_collections.ConfigDict()
  config.stage = 'pretrain'
  config.seed = 0
  # The parameter file that training starts from; '' starts at random.
  config.embedder = ''
  # Updates of the vision tower alone, of the text encoder on the frozen
  # tower, and of both.
  config.tower_steps = 550
  config.text_steps = 1000
  config.joint_steps = 900

  config.model = ml_collections.ConfigDict()
  config.model.template = 'tiny'
  config.model.tower = dict(
    width_px=96,
    height_px=64,
    patch_px=4,
    channels=(64, 128),
    blocks=(0, 2),
    num_heads=4,
    num_tokens=2,
    output_size=192,
  )
  config.model.decoder = dict(
    vocab_size=320,
    hidden_size=192,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    mlp_size=384,
    rope_theta=1e4,
    mrope_section=(6, 5, 5),
    rms_norm_eps=1e-6,
    remat='none',
    scan_unroll=3,
  )

  config.data = dict(
    resolution=96,
    groups=5,
    window=16,
    repeats=3,
    group_size=16,
    views=4,
    singles=4,
    queries=112,
    captions=16,
    hard_frac=0.5,
    dress_frac=0.0,
    swap_frac=0.4,
    alone_frac=0.33,
    vague_frac=0.08,
    partial_frac=0.08,
    twin_frac=0.0,
    logo_frac=0.0,
    household_frac=0.0,
    front_frac=0.0,
    clutter_frac=0.0,
    strong_frac=0.0,
    max_query_tokens=28,
    max_caption_tokens=28,
  )
  # Renderer processes; None takes one per core. It changes no batch.
  config.workers = ml_collections.config_dict.placeholder(int)

  config.loss = dict(
    temperature=0.05,
    query_weight=1.0,
    object_weight=1.0,
    caption_weight=0.1,
    attribute_weight=0.3,
    # Of the cosine above which a picture is the right one, for all queries.
    absence_weight=0.0,
  )

  optimizer = dict(
    lr=1.5e-3,
    b1=0.9,
    b2=0.98,
    weight_decay=0.02,
    clip_norm=1.0,
    warmup_steps=60,
    schedule='constant',
  )
  config.tower_optimizer = dict(optimizer, schedule='cosine')
  config.text_optimizer = dict(optimizer)
  config.joint_optimizer = dict(optimizer, lr=1e-3, schedule='cosine')
  # A world to measure on, built beforehand; '' measures nothing.
  config.world = 'runs/worlds/dev'
  if arg == 'longer':
    config.seed = 1
    config.embedder = 'runs/pretrain/embedder.safetensors'
    config.tower_steps = config.text_steps = 0
    config.joint_steps = 5000
  if arg in ('wider', 'finer'):
    config.seed = 2
    config.embedder = 'runs/pretrain_longer/embedder.safetensors'
    config.tower_steps = config.text_steps = 0
    config.joint_steps = 3600
    config.joint_optimizer.lr = 7e-4
    config.loss.absence_weight = 0.5
    config.data.vague_frac = 0.2
    config.data.twin_frac = 0.15
    config.data.household_frac = 0.15
    config.data.front_frac = 0.3
    config.data.clutter_frac = 0.2
    config.data.strong_frac = 0.2
    # These pictures take longer to make.
    config.data.repeats = 6
  if arg == 'finer':
    config.seed = 3
    config.embedder = 'runs/pretrain_wider/embedder.safetensors'
    config.joint_steps = 2600
    config.joint_optimizer.lr = 1e-3
    config.data.dress_frac = 0.5
    config.data.vague_frac = 0.35
  config.mesh = dict(data=-1, fsdp=1, tensor=1)
  config.log_every = 20
  config.checkpoint_every = 100
  config.evaluate_every = 200
  return config.lock()

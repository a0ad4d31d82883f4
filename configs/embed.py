r"""Trains an embedding model on pairs of the user's, by adapters.

  python -m vhop_jax.main --config=configs/embed.py --workdir=runs/embed \
      --config.embedder=models/Qwen3-VL-Embedding-2B --config.pairs=pairs.jsonl

What a line of the file has stands in vhop_jax/data/embedding_pairs.py. The
argument `2b` is for Qwen3-VL-Embedding-2B on several accelerators:

  python -m vhop_jax.main --config=configs/embed.py:2b --workdir=runs/embed_2b \
      --config.pairs=pairs.jsonl
  python -m vhop_jax.train.memory --config=configs/embed.py:2b
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, or '2b' for Qwen3-VL-Embedding-2B.
  """
  if arg not in (None, '2b'):
    raise ValueError(f"configs/embed.py:{arg}: the argument is '2b' or none")
  config = ml_collections.ConfigDict()
  config.stage = 'embed'
  config.seed = 0
  # 'tiny', a parameter file of its kind, or a Hugging Face folder of Qwen3-VL.
  config.embedder = 'tiny'
  # Of a folder, else not read.
  config.backbone = dict(
    dtype='float32',
    # 'none', 'dots' or 'full': what is computed anew in the backward pass.
    remat='none',
    # 'matmul', 'xla' or, on NVIDIA GPUs in bfloat16, 'cudnn'.
    attention='matmul',
    # What ends each sequence: 'prompt_end', 'prompt' or 'end'; '' is the
    # model's own.
    tail='',
  )
  # The pairs to train on, and others to measure recall on ('' measures none).
  config.pairs = 'pairs.jsonl'
  config.dev_pairs = ''

  config.embed_steps = 1000
  config.data = dict(
    batch_size=64,
    # Hard negatives of each query, drawn from those of its line.
    negatives=0,
    # Every row is padded to these; a picture beyond is made smaller.
    max_tokens=512,
    max_pixels=196608,
    threads=2,
  )
  # Rows whose activations are in memory at a time; divides the batch.
  config.chunk = 16
  # Rank 0 trains the whole text encoder; not of a folder.
  config.lora = dict(
    rank=32,
    alpha=32.0,
    dropout=0.0,
    modules=('query', 'key', 'value', 'up', 'gate', 'down'),
  )
  config.loss = dict(
    temperature=0.05,
    # A negative this much above the positive is taken for another positive.
    margin=0.1,
    query_query=False,
    document_document=False,
    # Prefixes that are trained to serve alone, all alike; none is the whole
    # embedding.
    widths=(),
    width_weights=(),
  )
  config.embed_optimizer = dict(
    lr=1e-4,
    b1=0.9,
    b2=0.98,
    weight_decay=0.0,
    clip_norm=1.0,
    warmup_steps=20,
    schedule='cosine',
  )
  # 'r1' or 'r10' keeps the parameters that were best on `dev_pairs`.
  config.best_metric = ''
  config.mesh = dict(data=-1, fsdp=1, tensor=1)
  config.log_every = 10
  config.checkpoint_every = 100
  config.evaluate_every = 100
  if arg == '2b':
    config.embedder = 'models/Qwen3-VL-Embedding-2B'
    config.backbone.update(dtype='bfloat16', remat='full')
    config.data.batch_size = 512
    config.chunk = 64
    config.mesh = dict(data=1, fsdp=-1, tensor=1)
  return config.lock()

r"""Measures routers and the baselines on worlds they never saw.

python -m vhop_jax.main --config=configs/evaluate.py --workdir=runs/evaluate

The argument `2b` is for routers that the other configs trained with `2b`.
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings.

  Args:
    arg: None, or '2b' for the paper's backbone.
  """
  if arg not in (None, '2b'):
    raise ValueError(f"configs/evaluate.py:{arg}: the argument is '2b' or none")
  config = ml_collections.ConfigDict()
  config.stage = 'evaluate'
  config.title = 'VHOP-Router on worlds it never saw'
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
  # A router.safetensors of each stage of training; '' leaves the stage out,
  # and without any the baselines are measured alone.
  config.routers = dict(
    sft='runs/sft/router.safetensors', imitation='', reinforce=''
  )
  # Folders of the training runs, for their curves; '' shows none.
  config.training = dict(sft='runs/sft', imitation='', reinforce='')
  config.dev = 'runs/worlds/dev'
  # Of each its name and a pattern of worlds. The report is about the first.
  config.test_sets = (('L4 3-hop', 'runs/worlds/test_w*'),)
  # What results.jsonl says of the run.
  config.experiment = 'precise_3hop'
  config.settings = ml_collections.ConfigDict()
  # Of retrievers without gates, and at most of a router with gates.
  config.decisions = 5
  config.budget = 16
  config.rejection = 'selection'
  # Of a router with gates: chains that its beam keeps, images of the longest.
  config.router_beam = 8
  config.longest = 6
  # Partial paths that best-path search keeps.
  config.beam = 16
  # Pictures in the report.
  config.families = 3
  config.right = 4
  config.wrong = 6
  config.comparisons = 4
  if arg == '2b':
    config.embedder = 'models/Qwen3-VL-Embedding-2B'
    config.backbone.dtype = 'bfloat16'
  return config.lock()

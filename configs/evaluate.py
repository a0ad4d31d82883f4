r"""Measures a router and the baselines on worlds it never saw.

python -m vhop_jax.main --config=configs/evaluate.py --workdir=runs/evaluate
"""

import ml_collections


def get_config(arg=None):
  """Returns the settings; takes no argument."""
  del arg
  config = ml_collections.ConfigDict()
  config.stage = 'evaluate'
  config.title = 'VHOP-Router on worlds it never saw'
  config.seed = 0
  config.embedder = 'tiny'
  # A router.safetensors of a training run; '' measures the baselines alone.
  config.router = 'runs/sft/router.safetensors'
  # A training run's folder, for its curves; '' shows none.
  config.training = 'runs/sft'
  config.dev = 'runs/worlds/dev'
  config.test = (
    'runs/worlds/test_w1',
    'runs/worlds/test_w2',
    'runs/worlds/test_w3',
  )
  # Of retrievers without gates, and at most of a router with gates.
  config.decisions = 5
  config.budget = 16
  # Of a router with gates: chains that its beam keeps, images of the longest.
  config.router_beam = 8
  config.longest = 6
  # Partial paths that best-path search keeps.
  config.beam = 16
  # Pictures in the report.
  config.families = 3
  config.right = 4
  config.wrong = 6
  return config.lock()

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.train import optimizer as optimizer_lib


def make_optimizer(**settings):
  """Returns Adam without memory, whose update is the gradient's sign."""
  return optimizer_lib.make_optimizer(
    lr=1.0,
    b1=0.0,
    b2=0.0,
    weight_decay=0.0,
    warmup_steps=0,
    schedule='constant',
    steps=1,
    **{'clip_norm': 0.0, **settings},
  )


def test_decay_mask_knows_scanned_layers():
  shapes = {
    'norm': {'scale': np.zeros((3, 8))},
    'mlp': {'kernel': np.zeros((3, 8, 8)), 'gain': np.zeros((3, 8))},
    'embed': np.zeros((5, 8)),
    'tau': np.zeros(()),
  }
  axes = {
    'norm': {'scale': ('layers', None)},
    'mlp': {'kernel': ('layers', 'embed', 'mlp'), 'gain': ('layers', None)},
    'embed': ('vocab', 'embed'),
    'tau': (),
  }
  assert optimizer_lib.compute_decay_mask(shapes, axes) == {
    'norm': {'scale': False},
    'mlp': {'kernel': True, 'gain': False},
    'embed': True,
    'tau': False,
  }


def test_cosine_by_hand():
  schedule = optimizer_lib.make_schedule(
    lr=2.0, warmup_steps=4, schedule='cosine', steps=12
  )
  # A line from 0 to 2 over 4 steps, then 1 + cos(pi * (step - 4) / 8).
  wanted = {0: 0.0, 1: 0.5, 4: 2.0, 6: 1 + np.sqrt(0.5), 8: 1.0, 12: 0.0}
  for step, value in wanted.items():
    assert float(schedule(step)) == pytest.approx(value, abs=1e-6)


def test_constant_by_hand():
  schedule = optimizer_lib.make_schedule(
    lr=2.0, warmup_steps=2, schedule='constant', steps=12
  )
  rates = [float(schedule(step)) for step in (0, 1, 2, 11, 12)]
  assert rates == pytest.approx([0.0, 1.0, 2.0, 2.0, 2.0])


@pytest.mark.parametrize(
  ('changes', 'word'),
  [({'schedule': 'linear'}, 'linear'), ({'warmup_steps': 13}, 'warmup_steps')],
)
def test_impossible_schedules_are_usage_errors(changes, word):
  settings = {'lr': 1.0, 'warmup_steps': 0, 'schedule': 'cosine', 'steps': 12}
  with pytest.raises(errors.UsageError, match=word):
    optimizer_lib.make_schedule(**(settings | changes))


def test_a_part_may_learn_more_slowly():
  params = {
    name: {'w': np.zeros((1, 1), np.float32)} for name in ('a', 'b', 'c')
  }
  tx = make_optimizer(
    decay_mask={name: {'w': True} for name in params},
    part_factors={'a': 0.25, 'b': 0.0},
  )
  grads = {name: {'w': np.ones((1, 1), np.float32)} for name in params}
  update, _ = tx.update(grads, tx.init(params), params)
  made = [float(update[name]['w'][0, 0]) for name in params]
  assert made == pytest.approx([-0.25, 0.0, -1.0], rel=1e-4)


def test_a_part_that_the_model_has_not_is_named():
  with pytest.raises(errors.UsageError, match="part_factors='selct'.* a, b"):
    make_optimizer(
      decay_mask={'a': True, 'b': True}, part_factors={'selct': 0.1}
    )


def test_clipped_gradient_has_the_asked_norm():
  # With b1 = b2 = 0 Adam's update is g / (|g| + eps), the same for any norm
  # but for eps: a gradient clipped to 1e-8 halves it, as eps is 1e-8 too.
  params = {'w': np.zeros((1, 1), np.float32)}
  updates = []
  for clip_norm in (0.0, 1e-8):
    tx = make_optimizer(decay_mask={'w': True}, clip_norm=clip_norm)
    grads = {'w': np.full((1, 1), 3.0, np.float32)}
    update, _ = tx.update(grads, tx.init(params), params)
    updates.append(float(update['w'][0, 0]))
  assert updates == pytest.approx([-1.0, -0.5], rel=1e-4)

"""Makes the optimizer from its section of a config."""

from collections.abc import Mapping
from typing import Any

import jax
import optax

from vhop_jax import errors
from vhop_jax.train import state as state_lib
from vhop_jax.typing import Params

# Parameters by these names shift or scale; decay would only weaken them.
_UNDECAYED_NAMES = ('bias', 'scale')


def compute_decay_mask(params: Params, logical_axes: Params) -> Params:
  """Returns a tree of bools, True where weight decay applies.

  Norms, biases and everything of one dimension are left alone. The axis along
  which `nn.scan` stacks its layers does not count as a dimension.

  Args:
    params: tree of arrays or of shapes.
    logical_axes: the same tree with a tuple of axis names for each array.
  """

  def decays(key_path: Any, leaf: Any, axes: tuple[str | None, ...]) -> bool:
    name = state_lib.make_path(key_path)[-1]
    return name not in _UNDECAYED_NAMES and leaf.ndim - axes.count('layers') > 1

  return jax.tree_util.tree_map_with_path(decays, params, logical_axes)


def make_schedule(
  *, lr: float, warmup_steps: int, schedule: str, steps: int
) -> optax.Schedule:
  """Makes the learning rate as a function of the step.

  Args:
    lr: the highest learning rate.
    warmup_steps: updates over which it rises linearly from 0.
    schedule: 'cosine' (falls to 0 at the last step) or 'constant'.
    steps: updates of the whole run.

  Raises:
    UsageError: the schedule is unknown, or the warm-up longer than the run.
  """
  if warmup_steps > steps:
    raise errors.UsageError(
      f'optimizer.warmup_steps={warmup_steps} exceeds steps={steps}: '
      'shorten the warm-up'
    )
  if schedule == 'cosine':
    after = optax.cosine_decay_schedule(lr, max(steps - warmup_steps, 1))
  elif schedule == 'constant':
    after = optax.constant_schedule(lr)
  else:
    raise errors.UsageError(
      f"optimizer.schedule='{schedule}' is unknown: use cosine or constant"
    )
  if not warmup_steps:
    return after
  warmup = optax.linear_schedule(0.0, lr, warmup_steps)
  return optax.join_schedules([warmup, after], [warmup_steps])


def make_optimizer(
  *,
  lr: float,
  b1: float,
  b2: float,
  weight_decay: float,
  clip_norm: float,
  warmup_steps: int,
  schedule: str,
  steps: int,
  decay_mask: Params,
  part_factors: Mapping[str, float] | None = None,
) -> optax.GradientTransformation:
  """Makes AdamW behind a clipped gradient norm.

  Args:
    lr: the highest learning rate.
    b1: decay of the first moment.
    b2: decay of the second moment.
    weight_decay: decoupled from the gradient, times the learning rate.
    clip_norm: largest global gradient norm; 0 leaves the gradient alone.
    warmup_steps: see `make_schedule`.
    schedule: see `make_schedule`.
    steps: updates of the whole run.
    decay_mask: tree of bools over the parameters, None where frozen.
    part_factors: of the learning rate, by the name of a part of the model; the
      others have 1.

  Raises:
    UsageError: the schedule is unknown, the warm-up longer than the run, or the
      model has no part of that name.
  """
  learning_rate = make_schedule(
    lr=lr, warmup_steps=warmup_steps, schedule=schedule, steps=steps
  )
  clip = optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity()
  factors = dict(part_factors or {})
  for name in factors:
    errors.check_choice('optimizer.part_factors', name, tuple(decay_mask))

  def scale(key_path: Any, update: Any) -> Any:
    return factors.get(state_lib.make_path(key_path)[0], 1.0) * update

  return optax.chain(
    clip,
    optax.adamw(
      learning_rate, b1, b2, weight_decay=weight_decay, mask=decay_mask
    ),
    optax.stateless(
      lambda updates, _: jax.tree_util.tree_map_with_path(scale, updates)
    ),
  )

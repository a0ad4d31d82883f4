"""Saves and restores training runs."""

from collections.abc import Iterator, Mapping
import contextlib
import json
from pathlib import Path
from typing import Any

from flax import traverse_util
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vhop_jax import errors
from vhop_jax.train.state import TrainState
from vhop_jax.typing import Params

FOLDER = 'checkpoints'
# Settings, by the last part of their name, that may differ between a run and
# its continuation: none of them changes what is computed.
FREE_SETTINGS = ('log_every', 'checkpoint_every', 'evaluate_every', 'mesh')
_NUM_NAMED = 3


class Checkpoints:
  """Keeps a run's latest and best checkpoint in `workdir/checkpoints`."""

  def __init__(
    self,
    workdir: Path,
    *,
    config: Mapping[str, Any],
    best_metric: str | None,
  ):
    """Opens the folder, which may hold checkpoints already.

    Args:
      workdir: the run's folder.
      config: what the run was asked to do; a continuation must agree with it.
      best_metric: name of the evaluated number by which the best checkpoint
        is kept, higher being better; None keeps the latest alone.
    """
    self._config = json.loads(json.dumps(config))
    self._best_metric = best_metric
    self._folder = workdir.resolve() / FOLDER
    self._last_saved: int | None = None
    policies = [checkpoint_managers.LatestN(1)]
    best_fn = None
    if best_metric is not None:
      best_fn = lambda metrics: metrics[best_metric]  # noqa: E731
      policies.append(
        checkpoint_managers.BestN(
          get_metric_fn=best_fn, n=1, keep_checkpoints_without_metrics=False
        )
      )
    # `max_to_keep` with `best_fn` would drop the latest step, hence policies.
    self._manager = ocp.CheckpointManager(
      self._folder,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
        best_fn=best_fn,
        cleanup_tmp_directories=True,
      ),
    )

  def save(
    self,
    state: TrainState,
    data: Any,
    *,
    metrics: Mapping[str, float] | None,
  ) -> None:
    """Saves in the background; does nothing for a step saved already.

    Args:
      state: what the updates carry along.
      data: position of the batches, as JSON can hold it.
      metrics: numbers of the evaluation at this step, if there was one.
    """
    step = int(state.step)
    if step in (self._last_saved, self._manager.latest_step()):
      return
    self._last_saved = step
    self._manager.save(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(state),
        data=ocp.args.JsonSave({'position': data}),
        config=ocp.args.JsonSave(self._config),
      ),
      metrics=dict(metrics) if metrics and self._best_metric else None,
    )

  def restore_latest(self, state: TrainState) -> tuple[TrainState, Any] | None:
    """Returns the latest state and position of the data, None if none is.

    Args:
      state: arrays, or shapes with shardings, like those that were saved.

    Raises:
      DataError: the checkpoint belongs to a run with another config, or does
        not read.
    """
    step = self._manager.latest_step()
    if step is None:
      return None
    self._check_config(step)
    return self._restore(step, state)

  def restore_best_params(self, state: TrainState) -> Params:
    """Returns the parameters of the best checkpoint, else the latest's."""
    self._manager.wait_until_finished()
    step = self._manager.best_step()
    if step is None:
      step = self._manager.latest_step()
    restored, _ = self._restore(step, state)
    return restored.params

  def close(self) -> None:
    """Waits until all is written."""
    self._manager.wait_until_finished()
    self._manager.close()

  def _check_config(self, step: int) -> None:
    with self._explain_damage(step):
      saved = self._manager.restore(
        step, args=ocp.args.Composite(config=ocp.args.JsonRestore())
      )['config']
    names = find_differences(saved, self._config)
    if names:
      raise errors.DataError(
        f'{self._folder.parent} holds a run with other settings '
        f'({_join_names(names)}): take another workdir, delete this one, or '
        'use the old settings'
      )

  def _restore(self, step: int, state: TrainState) -> tuple[TrainState, Any]:
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
    with self._explain_damage(step):
      restored = self._manager.restore(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardRestore(abstract),
          data=ocp.args.JsonRestore(),
        ),
      )
    return restored['state'], restored['data']['position']

  @contextlib.contextmanager
  def _explain_damage(self, step: int) -> Iterator[None]:
    """Names the checkpoint when Orbax, in whatever way, cannot read it."""
    try:
      yield
    except (ValueError, KeyError, TypeError, OSError) as error:
      first_line = (str(error).strip().splitlines() or [repr(error)])[0]
      raise errors.DataError(
        f'the checkpoint {self._folder / str(step)} does not restore '
        f'({first_line[:200]}): delete that folder to go on from an earlier '
        'one, or take another workdir'
      ) from error


def find_differences(
  saved: Mapping[str, Any], current: Mapping[str, Any]
) -> list[str]:
  """Returns 'name saved -> current' for each setting that differs.

  Args:
    saved: nested settings from a checkpoint.
    current: nested settings of this run.
  """
  old, new = (
    traverse_util.flatten_dict(dict(tree), sep='.') for tree in (saved, current)
  )
  missing = '(none)'
  return [
    f'{name} {old.get(name, missing)!s} -> {new.get(name, missing)!s}'
    for name in sorted(old.keys() | new.keys())
    if old.get(name, missing) != new.get(name, missing)
    and not set(name.split('.')) & set(FREE_SETTINGS)
  ]


def _join_names(names: list[str]) -> str:
  shown = ', '.join(names[:_NUM_NAMED])
  left = len(names) - _NUM_NAMED
  return shown + (f' and {left} more' if left > 0 else '')

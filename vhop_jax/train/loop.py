"""Holds the one training loop, which every stage uses."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import functools
import os
from pathlib import Path
import signal
import threading
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
import ml_collections
import numpy as np
import optax

from vhop_jax import errors
from vhop_jax.train import checkpoint as checkpoint_lib
from vhop_jax.train import metrics as metrics_lib
from vhop_jax.train import optimizer as optimizer_lib
from vhop_jax.train import sharding
from vhop_jax.train import state as state_lib
from vhop_jax.train.state import Stage, TrainState
from vhop_jax.typing import Params


def train_phase(
  phase: str,
  stage: Stage,
  *,
  config: ml_collections.ConfigDict,
  settings: Mapping[str, Any],
  folder: Path,
) -> Params:
  """Trains one of several phases in a workdir of its own, `folder/phase`.

  Args:
    phase: its updates are `config.<phase>_steps` and its optimizer is
      `config.<phase>_optimizer`.
    stage: parameters, loss and data.
    config: of the whole run.
    settings: what is saved as `train`'s `config`.
    folder: of the whole run.
  """
  return train(
    stage,
    steps=config[f'{phase}_steps'],
    seed=config.seed,
    optimizer=config[f'{phase}_optimizer'].to_dict(),
    log_every=config.log_every,
    checkpoint_every=config.checkpoint_every,
    evaluate_every=config.evaluate_every,
    workdir=folder / phase,
    mesh=config.mesh.to_dict(),
    config=settings,
    best_metric=config.get('best_metric') or None,
  )


def train(
  stage: Stage,
  *,
  steps: int,
  seed: int,
  optimizer: Mapping[str, Any],
  log_every: int,
  checkpoint_every: int,
  evaluate_every: int,
  workdir: str | os.PathLike[str],
  mesh: Mapping[str, int],
  config: Mapping[str, Any],
  best_metric: str | None = None,
) -> Params:
  """Trains, or goes on training what an interrupted run left in `workdir`.

  An update draws its randomness from (seed, step) and the data's position is
  part of a checkpoint, so a resumed run is the uninterrupted run.

  Args:
    stage: parameters, loss and data.
    steps: updates of the whole run.
    seed: seeds the parameters and each update.
    optimizer: keyword arguments of `make_optimizer`.
    log_every: updates between two progress lines.
    checkpoint_every: updates between checkpoints; 0 saves at the end alone.
    evaluate_every: updates between calls of `stage.evaluate`, which is also
      called after the last update; 0 never calls it.
    workdir: folder for checkpoints and metrics.jsonl.
    mesh: keyword arguments of `make_mesh`.
    config: everything the run was asked to do, as JSON can hold it. It is
      saved along, and a run is resumed only with the same.
    best_metric: name of an evaluated number, higher being better.

  Returns:
    The parameters after the last update, or with `best_metric` those of the
    best evaluation.

  Raises:
    DataError: the loss is not finite, or `workdir` holds another run.
    Interrupted: SIGTERM or SIGINT arrived; the state is saved.
  """
  workdir = Path(workdir)
  workdir.mkdir(parents=True, exist_ok=True)
  device_mesh = sharding.make_mesh(**mesh)
  state, update = _prepare(
    stage, steps=steps, seed=seed, optimizer=optimizer, mesh=device_mesh
  )
  checkpoints = checkpoint_lib.Checkpoints(
    workdir, config=config, best_metric=best_metric
  )
  with contextlib.closing(checkpoints), _catch_signals() as caught:
    restored = checkpoints.restore_latest(state)
    if restored is not None:
      state, position = restored
      stage.batches.set_state(position)
      _say(f'resuming at step {int(state.step)} of {steps} from {workdir}')
    start_step = int(state.step)
    log = metrics_lib.MetricsFile(workdir, step=start_step)
    scalars = metrics_lib.StepMetrics()
    clock = metrics_lib.Clock(step=start_step, total_steps=steps)
    compiled: set[Any] = set()

    def is_due(every: int) -> bool:
      return every > 0 and (step % every == 0 or step == steps)

    with contextlib.closing(log):
      for step in range(start_step + 1, steps + 1):
        if stage.prepare is not None:
          stage.prepare(state.params)
        host_batch = _get_batch(stage.batches, step)
        batch = sharding.put_batch(host_batch, device_mesh)
        shapes = tuple((k, v.shape, v.dtype) for k, v in batch.items())
        if shapes in compiled:
          state, row = update(state, batch)
          clock.add(len(next(iter(host_batch.values()))))
        else:
          compiled.add(shapes)
          with _announce_compilation(host_batch, device_mesh):
            state, row = jax.block_until_ready(update(state, batch))
          if len(compiled) == 1:  # The speed is that after compilation.
            clock = metrics_lib.Clock(step=step, total_steps=steps)
        scalars.add(step, row)

        if is_due(log_every):
          means = scalars.pop_means()
          per_sec, left_secs = clock.pop(step)
          log.write(step, means)
          _say(
            f'step {step}/{steps}  {per_sec:.4g} examples/s  '
            f'{metrics_lib.format_secs(left_secs)} left  '
            f'{metrics_lib.format_values(means)}'
          )
        evaluated = None
        if stage.evaluate is not None and is_due(evaluate_every):
          scalars.check_finite()
          evaluated = stage.evaluate(state.params)
        if evaluated is not None:
          evaluated = {k: float(v) for k, v in evaluated.items()}
          if best_metric and best_metric not in evaluated:
            raise errors.UsageError(
              f'best_metric={best_metric!r} is not evaluated: use one of '
              f'{", ".join(evaluated)}'
            )
          log.write(step, evaluated)
          _say(
            f'step {step}/{steps}  evaluated: '
            f'{metrics_lib.format_values(evaluated)}'
          )
        if (
          is_due(checkpoint_every)
          or step == steps
          or caught
          or (evaluated is not None and best_metric)
        ):
          scalars.check_finite()
          checkpoints.save(state, stage.batches.get_state(), metrics=evaluated)
        if caught and step < steps:
          raise errors.Interrupted(
            f'{caught[0]} at step {step} of {steps}, which is saved in '
            f'{workdir}: run the same command to go on'
          )
    if best_metric:
      return checkpoints.restore_best_params(state)
  return state.params


def _prepare(
  stage: Stage,
  *,
  steps: int,
  seed: int,
  optimizer: Mapping[str, Any],
  mesh: Mesh,
) -> tuple[TrainState, Callable[..., tuple[TrainState, dict[str, Any]]]]:
  """Makes the first state, placed on the mesh, and the compiled update."""
  rng_init, rng_steps = jax.random.split(jax.random.key(seed))
  boxed = stage.init(rng_init)
  axes = sharding.compute_logical_axes(boxed)
  params = nn.meta.unbox(boxed)
  mask = state_lib.compute_trainable_mask(params, stage.trainable)
  trained = state_lib.select_trainable(params, mask)
  num_params = state_lib.count_params(params)
  num_trained = state_lib.count_params(trained)
  if not num_trained:
    raise errors.UsageError('no parameter is trainable: free some of them')
  tx = optimizer_lib.make_optimizer(
    steps=steps,
    decay_mask=state_lib.select_trainable(
      optimizer_lib.compute_decay_mask(params, axes), mask
    ),
    **optimizer,
  )

  param_shardings = sharding.make_param_shardings(params, axes, mesh)
  whole: Any = sharding.replicated(mesh)
  # Moments lie where their parameters do.
  trained_shardings = state_lib.select_trainable(param_shardings, mask)
  opt_shardings = optax.tree.map_params(
    tx,
    lambda _, placed: placed,
    jax.eval_shape(tx.init, trained),
    trained_shardings,
    transform_non_params=lambda _: whole,
  )
  shardings = TrainState(
    step=whole, params=trained_shardings, opt_state=opt_shardings, rng=whole
  )

  # The frozen parameters stay outside of what an update takes and gives: they
  # are not copied, and who else holds them may go on to.
  def init(trained: Params) -> TrainState:
    return TrainState(
      step=jnp.zeros((), jnp.int32),
      params=trained,
      opt_state=tx.init(trained),
      rng=jax.random.key_data(rng_steps),
    )

  @functools.partial(
    jax.jit, donate_argnums=0, out_shardings=(shardings, whole)
  )
  def update_trained(
    state: TrainState, frozen: Params, batch: state_lib.Batch
  ) -> tuple[TrainState, dict[str, Any]]:
    rng = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)

    def compute_loss(trained: Params) -> tuple[Any, dict[str, Any]]:
      params = state_lib.merge_trainable(trained, frozen)
      return stage.loss(params, batch, rng, state.step)

    (loss, named), grads = jax.value_and_grad(compute_loss, has_aux=True)(
      state.params
    )
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    next_state = state.replace(
      step=state.step + 1,
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
    )
    scalars = {'loss': loss, **named, 'grad_norm': optax.tree.norm(grads)}
    return next_state, scalars

  def update(
    state: TrainState, batch: state_lib.Batch
  ) -> tuple[TrainState, dict[str, Any]]:
    frozen = state_lib.select_frozen(state.params, mask)
    trained = state_lib.select_trainable(state.params, mask)
    state, scalars = update_trained(
      state.replace(params=trained), frozen, batch
    )
    params = state_lib.merge_trainable(state.params, frozen)
    return state.replace(params=params), scalars

  placed = jax.device_put(params, param_shardings)
  state = jax.jit(init, out_shardings=shardings)(
    state_lib.select_trainable(placed, mask)
  )
  state = state.replace(params=state_lib.merge_trainable(state.params, placed))
  _say(
    f'{num_params:,} parameters, {num_trained:,} trained, on '
    f'{mesh.size} device(s) {dict(mesh.shape)}'
  )
  return state, update


def _get_batch(batches: state_lib.Batches, step: int) -> dict[str, Any]:
  try:
    return next(batches)
  except StopIteration:
    raise errors.DataError(
      f'the data ended before step {step}: repeat it, or lower steps'
    ) from None


@contextlib.contextmanager
def _announce_compilation(
  batch: Mapping[str, Any], mesh: Mesh
) -> Iterator[None]:
  """Says why nothing seems to happen for a while."""
  shapes = {name: list(np.shape(array)) for name, array in batch.items()}
  _say(f'compiling the update for batches of {shapes} ...')
  if mesh.size > 1 and (names := sharding.find_replicated(batch, mesh)):
    _say(f'each device holds all of {names}: its first axis does not divide')
  start_secs = time.monotonic()
  yield
  _say(f'compiled in {time.monotonic() - start_secs:.1f} s')


@contextlib.contextmanager
def _catch_signals() -> Iterator[list[str]]:
  """Notes SIGTERM and SIGINT in the list that it hands out.

  The second signal of a kind does what it would do without this.
  """
  caught: list[str] = []
  if threading.current_thread() is not threading.main_thread():
    yield caught  # Only the main thread may set handlers.
    return
  previous: dict[int, Any] = {}

  def note(number: int, frame: Any) -> None:
    del frame
    caught.append(f'stopped by {signal.Signals(number).name}')
    signal.signal(number, previous[number])

  for number in (int(signal.SIGTERM), int(signal.SIGINT)):
    previous[number] = signal.signal(number, note)
  try:
    yield caught
  finally:
    for number, handler in previous.items():
      signal.signal(number, handler)


def _say(line: str) -> None:
  print(line, flush=True)

import os
from pathlib import Path
import signal
import subprocess
import sys

import grain
import jax
import numpy as np
import pytest

from tests.train import toy
from vhop_jax import errors
from vhop_jax.train import loop, metrics, sharding
from vhop_jax.train import state as state_lib

TOY = Path(toy.__file__)
ROOT = TOY.parents[2]


def assert_trees_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_first_update_is_adamw_by_hand(tmp_path):
  # Adam's first update is lr * g/|g| up to eps, so every parameter of nonzero
  # gradient moves by lr; decay takes lr * weight_decay * w from the kernel of
  # two dimensions and from nothing else.
  lr, decay = 0.05, 0.5
  optimizer = toy.SETTINGS['optimizer'] | {
    'lr': lr,
    'weight_decay': decay,
    'warmup_steps': 0,
    'schedule': 'constant',
    'clip_norm': 0.0,
  }
  rng_init, _ = jax.random.split(jax.random.key(toy.SETTINGS['seed']))
  before = jax.device_get(toy.init(rng_init))
  after = toy.train(tmp_path, steps=1, optimizer=optimizer)
  old = before['first']['kernel'].value
  moved = np.asarray(after['first']['kernel']) - old * (1 - lr * decay)
  np.testing.assert_allclose(np.abs(moved), lr, rtol=1e-3)
  moved = after['last']['kernel'] - before['last']['kernel'].value
  np.testing.assert_allclose(np.abs(moved), lr, rtol=1e-3)


@pytest.mark.parametrize('fail_after', [5, 8, 11])
def test_resumed_is_uninterrupted_bit_for_bit(tmp_path, fail_after):
  whole = toy.train(tmp_path / 'whole')
  with pytest.raises(RuntimeError, match='fell over'):
    toy.train(
      tmp_path / 'parts', toy.make_stage(toy.Batches(stop_at=fail_after))
    )
  resumed = toy.train(tmp_path / 'parts')
  assert_trees_equal(resumed, whole)
  rows = [metrics.read_rows(tmp_path / name) for name in ('whole', 'parts')]
  assert rows[0] == rows[1]
  assert len(rows[0]) == 6


def test_finished_run_is_not_repeated(tmp_path):
  first = toy.train(tmp_path)
  again = toy.train(tmp_path, toy.make_stage(toy.Batches(stop_at=12)))
  assert_trees_equal(first, again)


@pytest.mark.parametrize(
  'mesh',
  [
    {'data': 8, 'fsdp': 1, 'tensor': 1},
    {'data': 2, 'fsdp': 2, 'tensor': 2},
    {'data': 1, 'fsdp': -1, 'tensor': 4},
  ],
)
def test_one_device_is_eight(tmp_path, mesh):
  one = toy.train(tmp_path / 'one')
  eight = toy.train(tmp_path / 'eight', mesh=mesh)
  kernel = eight['first']['kernel']
  assert len(kernel.sharding.device_set) == 8
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
    one,
    eight,
  )


def test_run_goes_on_with_another_mesh(tmp_path):
  whole = toy.train(tmp_path / 'whole')
  with pytest.raises(RuntimeError):
    toy.train(tmp_path / 'parts', toy.make_stage(toy.Batches(stop_at=5)))
  resumed = toy.train(
    tmp_path / 'parts', mesh={'data': 2, 'fsdp': 2, 'tensor': 2}
  )
  assert len(resumed['first']['kernel'].sharding.device_set) == 8
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
    whole,
    resumed,
  )


def test_frozen_parameters_stay_and_have_no_state(tmp_path):
  stage = toy.make_stage(trainable=lambda path: path[0] == 'last')
  rng_init, _ = jax.random.split(jax.random.key(toy.SETTINGS['seed']))
  before = toy.init(rng_init)
  after = toy.train(tmp_path, stage)
  for name in ('kernel', 'bias'):
    np.testing.assert_array_equal(
      after['first'][name], before['first'][name].value
    )
  moved = after['last']['kernel'] - before['last']['kernel'].value
  assert np.abs(moved).min() > 0

  state, _ = loop._prepare(
    stage,
    steps=1,
    seed=0,
    optimizer=toy.SETTINGS['optimizer'] | {'warmup_steps': 0},
    mesh=sharding.make_mesh(data=1, fsdp=1, tensor=1),
  )
  # Two moments of the one trained array, and counters.
  shapes = [x.shape for x in jax.tree.leaves(state.opt_state) if x.ndim]
  assert shapes == [after['last']['kernel'].shape] * 2


def test_all_frozen_is_a_usage_error(tmp_path):
  with pytest.raises(errors.UsageError, match='trainable'):
    toy.train(tmp_path, toy.make_stage(trainable=lambda path: False))


def test_overfits_one_batch(tmp_path):
  class OneBatch(toy.Batches):
    def __next__(self):
      self.index = 0
      return super().__next__()

  def loss(params, batch, rng, step):
    # Without dropout a batch of 16 rows is fitted exactly.
    return toy.loss(params, batch, rng, step, dropout=0.0)

  optimizer = toy.SETTINGS['optimizer'] | {'weight_decay': 0.0}
  toy.train(
    tmp_path,
    loop.Stage(init=toy.init, loss=loss, batches=OneBatch()),
    steps=400,
    log_every=50,
    checkpoint_every=0,
    optimizer=optimizer,
  )
  rows = metrics.read_rows(tmp_path)
  assert rows[0]['loss'] > 1
  assert rows[-1]['loss'] < 1e-3


def test_other_settings_are_refused_by_name(tmp_path):
  toy.train(tmp_path)
  with pytest.raises(errors.DataError, match=r'seed 3 -> 4') as info:
    toy.train(tmp_path, seed=4, log_every=5)
  assert 'log_every' not in str(info.value)
  assert '\n' not in str(info.value)


def test_free_settings_may_change(tmp_path):
  toy.train(tmp_path)
  toy.train(tmp_path, log_every=1, checkpoint_every=2, evaluate_every=1)


def test_damaged_checkpoint_is_named(tmp_path):
  toy.train(tmp_path)
  for path in (tmp_path / 'checkpoints' / '12' / 'state').rglob('*'):
    if path.is_file():
      path.write_bytes(path.read_bytes()[:3])
  with pytest.raises(errors.DataError, match=r'checkpoints/12') as info:
    toy.train(tmp_path)
  assert '\n' not in str(info.value)


def test_loss_that_is_not_finite_stops_the_run(tmp_path):
  class Poisoned(toy.Batches):
    def __next__(self):
      batch = super().__next__()
      if self.index == 7:
        batch['y'][2] = np.nan
      return batch

  with pytest.raises(errors.DataError, match='nan at step 7'):
    toy.train(tmp_path, toy.make_stage(Poisoned()), log_every=12)
  saved = sorted(p.name for p in (tmp_path / 'checkpoints').iterdir())
  assert saved == ['4']


def test_every_update_and_seed_draws_anew(tmp_path):
  def loss(params, batch, rng, step):
    error, _ = toy.loss(params, batch, rng, step)
    return error, {'draw': jax.random.uniform(rng), 'at': step * 1.0}

  draws = set()
  for seed in (1, 2):
    toy.train(
      tmp_path / str(seed),
      loop.Stage(init=toy.init, loss=loss, batches=toy.Batches()),
      seed=seed,
      log_every=1,
    )
    rows = metrics.read_rows(tmp_path / str(seed))
    draws |= {row['draw'] for row in rows}
    # The loss sees the number of updates done before it.
    assert [row['at'] for row in rows] == list(range(12))
  assert len(draws) == 24


def test_end_of_data_is_explained(tmp_path):
  class Short(toy.Batches):
    def __next__(self):
      if self.index == 5:
        raise StopIteration
      return super().__next__()

  with pytest.raises(errors.DataError, match='ended before step 6'):
    toy.train(tmp_path, toy.make_stage(Short()))


def test_best_evaluation_is_kept_and_returned(tmp_path):
  seen = []
  # The second evaluation is the best, the fourth the last.
  scores = iter([0.1, 0.9, 0.3, 0.2])

  def evaluate(params):
    seen.append(jax.device_get(params))
    return {'score': next(scores)}

  best = toy.train(
    tmp_path,
    toy.make_stage(evaluate=evaluate),
    evaluate_every=3,
    best_metric='score',
  )
  assert len(seen) == 4
  assert_trees_equal(jax.device_get(best), seen[1])
  saved = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert saved == {6, 12}
  rows = metrics.read_rows(tmp_path)
  assert {'step': 6, 'score': 0.9} in rows


def test_best_metric_must_be_evaluated(tmp_path):
  stage = toy.make_stage(evaluate=lambda params: {'recall': 0.5})
  with pytest.raises(errors.UsageError, match='recall'):
    toy.train(tmp_path, stage, evaluate_every=3, best_metric='score')


def test_no_state_is_saved_for_evaluations_without_best(tmp_path):
  # Evaluating more often must not cost checkpoints.
  stage = toy.make_stage(
    toy.Batches(stop_at=7), evaluate=lambda params: {'recall': 0.5}
  )
  with pytest.raises(RuntimeError):
    toy.train(tmp_path, stage, evaluate_every=3)
  saved = [p.name for p in (tmp_path / 'checkpoints').iterdir()]
  assert saved == ['4']


def test_progress_is_printed(tmp_path, capsys):
  toy.train(tmp_path)
  lines = capsys.readouterr().out.splitlines()
  compiling = [i for i, line in enumerate(lines) if 'compiling' in line]
  steps = [i for i, line in enumerate(lines) if line.startswith('step ')]
  assert len(compiling) == 1
  assert compiling[0] < steps[0]
  assert len(steps) == 6
  for word in ('step 4/12', 'examples/s', 'left', 'loss ', 'mean_y '):
    assert word in lines[steps[1]]


def test_grain_iterator_resumes(tmp_path):
  def make_batches(stop_at=None):
    rows = np.random.default_rng(0).normal(size=(50, toy.WIDTH))

    def make_example(row):
      x = np.float32(row)
      return {'x': x, 'y': np.float32(x.sum())}

    dataset = (
      grain.MapDataset.source(rows)
      .seed(5)
      .shuffle()
      .repeat()
      .map(make_example)
      .batch(toy.BATCH)
      .to_iter_dataset(grain.ReadOptions(num_threads=2))
    )
    iterator = iter(dataset)
    if stop_at is None:
      return iterator

    class Failing:
      get_state, set_state = iterator.get_state, iterator.set_state
      count = 0

      def __next__(self):
        self.count += 1
        if self.count > stop_at:
          raise RuntimeError('the machine fell over')
        return next(iterator)

    return Failing()

  whole = toy.train(tmp_path / 'whole', toy.make_stage(make_batches()))
  with pytest.raises(RuntimeError):
    toy.train(tmp_path / 'parts', toy.make_stage(make_batches(stop_at=10)))
  resumed = toy.train(tmp_path / 'parts', toy.make_stage(make_batches()))
  assert_trees_equal(resumed, whole)


def _start(workdir, *, sleep_secs, steps):
  # One device each, to start quickly.
  environment = os.environ | {'XLA_FLAGS': '', 'PYTHONPATH': str(ROOT)}
  return subprocess.Popen(
    [sys.executable, TOY, workdir, str(sleep_secs), str(steps), '2'],
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _wait_for_step(process, step):
  for line in process.stdout:
    if line.startswith(f'step {step}/'):
      return
  pytest.fail(f'no step {step}: {process.stderr.read()}')


def test_killed_run_goes_on(tmp_path, capsys):
  process = _start(tmp_path / 'killed', sleep_secs=0.1, steps=14)
  _wait_for_step(process, 6)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL
  changes = {'steps': 14, 'checkpoint_every': 2}
  killed = toy.train(tmp_path / 'killed', **changes)
  assert 'resuming at step' in capsys.readouterr().out
  whole = toy.train(tmp_path / 'whole', **changes)
  assert_trees_equal(killed, whole)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_stops(tmp_path, number):
  process = _start(tmp_path, sleep_secs=0.1, steps=1000)
  _wait_for_step(process, 4)
  process.send_signal(number)
  out, err = process.communicate()
  assert process.returncode == errors.INTERRUPTED_EXIT_CODE
  assert len(err.strip().splitlines()) == 1, err
  assert number.name in err
  steps = [int(p.name) for p in (tmp_path / 'checkpoints').iterdir()]
  assert f'step {steps[0]} of 1000, which is saved' in err


def test_paths_are_names():
  paths = []
  state_lib.compute_trainable_mask(
    {'a': {'b': np.zeros(1)}, 'c': np.zeros(1)},
    lambda path: paths.append(path) or True,
  )
  assert paths == [('a', 'b'), ('c',)]

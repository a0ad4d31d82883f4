import os

import pytest

from vhop_jax.worlds import render_pool

# What workers run must be found by name in another process, so these tests
# send expressions to `eval`.
CRASH_ONCE = (
  "__import__('os').path.exists({path!r}) or"
  " (open({path!r}, 'w').close(), __import__('os')._exit(1))"
)


def test_results_come_in_order_from_renewed_workers(monkeypatch):
  monkeypatch.setattr(render_pool, 'PIECES_PER_GENERATION', 3)
  with render_pool.RenderPool(workers=1) as pool:
    pieces = ["__import__('os').getpid()"] * 5
    pids = list(pool.map(eval, pieces))
    assert len(set(pids)) == 2
    assert os.getpid() not in pids


def test_work_of_a_crashed_worker_is_done_again(tmp_path):
  crash = CRASH_ONCE.format(path=str(tmp_path / 'crashed'))
  with render_pool.RenderPool(workers=2) as pool:
    results = list(pool.map(eval, ['1', crash, '3', '4']))
  assert results == [1, True, 3, 4]


def test_piece_that_always_crashes_is_given_up():
  with render_pool.RenderPool(workers=1) as pool:
    with pytest.raises(RuntimeError, match='died 3 times'):
      list(pool.map(eval, ["__import__('os')._exit(1)"]))


def test_no_workers_means_this_process():
  with render_pool.RenderPool(workers=0) as pool:
    assert list(pool.map(abs, [-1, 2])) == [1, 2]


def test_error_of_a_worker_is_passed_on():
  with render_pool.RenderPool(workers=1) as pool:
    with pytest.raises(ZeroDivisionError):
      list(pool.map(eval, ['1 / 0']))

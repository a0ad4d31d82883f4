"""Shares small worlds between the tests of `vhop_jax.worlds`."""

import pytest

from vhop_jax.worlds import builder, render_pool
from vhop_jax.worlds import world as world_lib


@pytest.fixture(scope='session')
def pool():
  with render_pool.RenderPool(workers=0) as pool:
    yield pool


@pytest.fixture(scope='session')
def spec():
  return world_lib.Spec(level=4, families=4, seed=3, resolution=48)


@pytest.fixture(scope='session')
def world(spec, pool):
  """A world of the highest level, without pixels."""
  return builder.make_world(spec, pool)


@pytest.fixture(scope='session')
def folder(spec, pool, tmp_path_factory):
  """The same world on disk; tests that change it take a copy."""
  out = tmp_path_factory.mktemp('worlds') / 'w'
  builder.build_world(spec, out, pool=pool, progress=False)
  return out

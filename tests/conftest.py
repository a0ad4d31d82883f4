"""Sets the conditions under which every test runs; shares what is slow."""

import os
import tempfile

# XLA reads its flags when jax is first imported.
_FLAGS = (
  # Eight devices, so that sharding is tested on any machine.
  '--xla_force_host_platform_device_count=8',
  # Compiles in half the time; what it makes is slower.
  '--xla_cpu_use_fusion_emitters=false',
)
for _flag in _FLAGS:
  if _flag not in os.environ.get('XLA_FLAGS', ''):
    os.environ['XLA_FLAGS'] = (
      os.environ.get('XLA_FLAGS', '') + ' ' + _flag
    ).strip()
os.environ['JAX_PLATFORMS'] = 'cpu'

# Tests jit the same functions again and again; compiled once a session, they
# take a quarter of the time. Each worker has a folder of its own, because
# JAX's writes are not atomic.
_CACHE = tempfile.TemporaryDirectory(prefix='vhop_jax_tests_')
os.environ['JAX_COMPILATION_CACHE_DIR'] = _CACHE.name
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.1'
os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'

from absl import flags
import jax
import pytest

# A rank mismatch that broadcasts by accident hides a wrong axis.
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Grain reads absl's flags, which nobody parses under pytest.
if not flags.FLAGS.is_parsed():
  flags.FLAGS(['pytest'])


@pytest.fixture(scope='module')
def quick_compile():
  """Compiles what a module's tests jit without optimisation."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


# What is imported below is slow to load, and many tests do without it.


@pytest.fixture(scope='session')
def pool():
  from vhop_jax.worlds import render_pool

  with render_pool.RenderPool(workers=0) as pool:
    yield pool


@pytest.fixture(scope='session')
def spec():
  from vhop_jax.worlds import world as world_lib

  return world_lib.Spec(level=4, families=4, seed=3, resolution=48)


@pytest.fixture(scope='session')
def world(spec, pool):
  """Returns a world of the highest level, without pixels."""
  from vhop_jax.worlds import builder

  return builder.make_world(spec, pool)


@pytest.fixture(scope='session')
def folder(spec, pool, tmp_path_factory):
  """Returns the same world on disk; tests that change it take a copy."""
  from vhop_jax.worlds import builder

  out = tmp_path_factory.mktemp('worlds') / 'w'
  builder.build_world(spec, out, pool=pool, progress=False)
  return out


@pytest.fixture(scope='session')
def other_folder(pool, tmp_path_factory):
  """Returns a smaller world on disk of another seed."""
  from vhop_jax.worlds import builder
  from vhop_jax.worlds import world as world_lib

  out = tmp_path_factory.mktemp('worlds') / 'other'
  spec = world_lib.Spec(level=4, families=2, seed=4, resolution=48)
  builder.build_world(spec, out, pool=pool, progress=False)
  return out


@pytest.fixture(scope='session')
def maker():
  """Returns the layout of the tiny models' sequences."""
  from tests.models import micro
  from vhop_jax.models import pretrained

  return pretrained.make_maker(micro.SETTINGS)


@pytest.fixture(scope='session')
def embedder():
  """Returns a random embedding model of very small size."""
  from tests.models import micro

  return micro.make_embedder()


@pytest.fixture(scope='session')
def embedder_file(embedder, tmp_path_factory):
  """Returns a file that holds the embedding model."""
  from vhop_jax.models import parameter_file

  path = tmp_path_factory.mktemp('embedder') / 'embedder.safetensors'
  parameter_file.save_params(
    path, embedder.params, {'model': embedder.settings}
  )
  return path


@pytest.fixture(scope='session')
def router(embedder):
  """Returns a router whose two sides and head all differ."""
  from tests.models import micro

  return micro.make_router(embedder)


@pytest.fixture(scope='session')
def open_router(router):
  """Returns the router with gates that are often open."""
  from tests.models import micro

  return micro.open_gates(router)

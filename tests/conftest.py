"""Sets the conditions under which every test runs."""

import os
import tempfile

# Eight devices, so that sharding is tested on any machine. XLA reads the flag
# when jax is first imported.
_DEVICES_FLAG = '--xla_force_host_platform_device_count=8'
if _DEVICES_FLAG not in os.environ.get('XLA_FLAGS', ''):
  os.environ['XLA_FLAGS'] = (
    os.environ.get('XLA_FLAGS', '') + ' ' + _DEVICES_FLAG
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

# A rank mismatch that broadcasts by accident hides a wrong axis.
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Grain reads absl's flags, which nobody parses under pytest.
if not flags.FLAGS.is_parsed():
  flags.FLAGS(['pytest'])

"""Sets the conditions under which every test runs."""

import os

# Eight devices, so that sharding is tested on any machine. XLA reads the flag
# when jax is first imported.
_DEVICES_FLAG = '--xla_force_host_platform_device_count=8'
if _DEVICES_FLAG not in os.environ.get('XLA_FLAGS', ''):
  os.environ['XLA_FLAGS'] = (
    os.environ.get('XLA_FLAGS', '') + ' ' + _DEVICES_FLAG
  ).strip()
os.environ['JAX_PLATFORMS'] = 'cpu'

from absl import flags
import jax

# A rank mismatch that broadcasts by accident hides a wrong axis.
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Grain reads absl's flags, which nobody parses under pytest.
if not flags.FLAGS.is_parsed():
  flags.FLAGS(['pytest'])

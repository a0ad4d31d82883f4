"""Trains or evaluates what a config describes, overrides applied.

python -m vhop_jax.main --config=configs/sft.py:ARG --config.x.y=1 --workdir=DIR
"""

from collections.abc import Sequence
import importlib
import sys

from absl import flags
import ml_collections
from ml_collections import config_flags

from vhop_jax import errors

# Imported when chosen. Each module has `run(config, workdir)`.
_STAGES = {
  'pretrain': 'vhop_jax.train.pretrain',
  'embed': 'vhop_jax.train.embed',
  'sft': 'vhop_jax.train.sft',
  'imitation': 'vhop_jax.train.imitation',
  'reinforce': 'vhop_jax.train.reinforce',
  'evaluate': 'vhop_jax.evaluate.main',
  'experiment': 'vhop_jax.experiment',
}


def parse(argv: Sequence[str]) -> tuple[ml_collections.ConfigDict, str]:
  """Returns the config, overrides applied, and the workdir.

  Raises:
    UsageError: a flag or setting is unknown, of the wrong type or missing.
  """
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', flag_values=values, sys_argv=list(argv)
  )
  flags.DEFINE_string('workdir', None, 'the folder', flag_values=values)
  try:
    extra = values(list(argv))[1:]
    config = values.config
    # A file that did not load says so when it is first used.
    stage = config and config.stage
  except (AttributeError, KeyError) as error:
    text = f'the config has no setting {error.args[0]} (see its file)'
    raise errors.UsageError(text) from error
  except flags.Error as error:
    # What a config file raises comes with a traceback; its end says it all.
    reason = str(error).strip().splitlines()[-1]
    raise errors.UsageError(f'in the command: {reason}') from error
  except (OSError, ImportError, SyntaxError) as error:
    reason = str(error).splitlines()[-1].strip()
    raise errors.UsageError(f'--config does not load: {reason}') from error
  if extra:
    raise errors.UsageError(f'{extra[0]!r} is no flag: write --name=value')
  if config is None or values.workdir is None:
    raise errors.UsageError('--config=FILE.py and --workdir=DIR are needed')
  if stage not in _STAGES:
    raise errors.UsageError(f'config.stage={stage!r}: use {[*_STAGES]}')
  return config, values.workdir


def main(argv: Sequence[str]) -> int:
  """Runs one stage and returns the exit code."""
  if {'-h', '--help'} & set(argv):
    print(__doc__)
    return 0
  flags.FLAGS(list(argv[:1]))  # Grain's worker processes read absl's flags.

  def run() -> None:
    config, workdir = parse(argv)
    importlib.import_module(_STAGES[config.stage]).run(config, workdir)

  return errors.run_entry_point(run)


if __name__ == '__main__':
  sys.exit(main(sys.argv))

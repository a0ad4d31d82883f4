"""Runs stages and `vhop` by their command line."""

import runpy

import pytest

from vhop_jax import cli
from vhop_jax import main as main_lib


def run_vhop(capsys, *arguments):
  """Runs `vhop` and returns the exit code, stdout and stderr."""
  with pytest.raises(SystemExit) as stop:
    cli.main([str(argument) for argument in arguments])
  out, err = capsys.readouterr()
  return stop.value.code, out, err


def run_stage(name, workdir, values):
  """Runs `configs/<name>.py` with overrides; returns the exit code.

  Args:
    name: of the config file, maybe with its argument: 'sft:paper'.
    workdir: of the run.
    values: overrides.
  """
  name, _, argument = name.partition(':')
  flags = [f'--config.{key}={value}' for key, value in values.items()]
  return main_lib.main(
    [
      'main',
      f'--config=configs/{name}.py' + (argument and f':{argument}'),
      f'--workdir={workdir}',
      *flags,
    ]
  )


def assert_one_line_error(capsys, words):
  """Checks that an error was printed as one line that has these words."""
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 1
  assert lines[0].startswith('error: ')
  assert words in lines[0]


def load_config(name, argument, values):
  """Returns a config with overrides, unlocked.

  Args:
    name: of the config file.
    argument: of the config, or None.
    values: overrides by dotted name.
  """
  path = f'configs/{name}.py'
  config = runpy.run_path(path)['get_config'](argument).unlock()
  for key, value in values.items():
    config.update_from_flattened_dict({key: value})
  return config

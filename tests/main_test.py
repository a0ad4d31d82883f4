import sys
import types

import pytest

from vhop_jax import errors
from vhop_jax import main as main_lib

CONFIG = """
from ml_collections import config_dict

def get_config(arg=None):
  config = config_dict.ConfigDict({
    'stage': 'toy', 'arg': arg or '', 'optimizer': {'lr': 1.0, 'n': 3},
  })
  return config.lock()
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
  """Yields (run the program, the calls of the stage)."""
  path = tmp_path / 'toy.py'
  path.write_text(CONFIG)
  calls = []
  module = types.ModuleType('toy_stage')
  module.run = lambda config, workdir: calls.append((config, workdir))
  monkeypatch.setitem(sys.modules, 'toy_stage', module)
  monkeypatch.setattr(main_lib, '_STAGES', {'toy': 'toy_stage'})

  def run(*args, config=str(path), arg=''):
    argv = ['main', f'--config={config}{arg}', '--workdir=somewhere', *args]
    return main_lib.main(argv)

  return run, calls


def test_overrides_reach_the_stage(program):
  run, calls = program
  assert run('--config.optimizer.lr=0.5', arg=':small') == 0
  ((config, workdir),) = calls
  assert workdir == 'somewhere'
  assert config.arg == 'small'
  assert config.optimizer.to_dict() == {'lr': 0.5, 'n': 3}


@pytest.mark.parametrize(
  ('args', 'words'),
  [
    (['--config.optimizr.lr=1'], ['optimizr', 'optimizer']),
    (['--config.optimizer.lrr=1'], ['lrr', 'lr']),
    (['--config.optimizer.lr=abc'], ['--config.optimizer.lr=abc']),
    (['--config.optimizer.n=1.5'], ['--config.optimizer.n=1.5']),
    (['--config.optimizer=3'], ['--config.optimizer=3']),
    (['--config.stage=nothing'], ['nothing', 'toy']),
    (['--confg=x'], ['confg']),
    (['more'], ['more']),
  ],
)
def test_bad_settings_are_one_line(program, capsys, args, words):
  run, calls = program
  assert run(*args) == errors.UsageError.exit_code
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 1
  for word in ['error: ', *words]:
    assert word in lines[0]
  assert not calls


def test_missing_config_file_is_named(program, capsys):
  run, _ = program
  assert run(config='nowhere/x.py') == 2
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 1
  assert 'nowhere/x.py' in lines[0]


@pytest.mark.parametrize('argv', [['main'], ['main', '--workdir=x']])
def test_missing_flags_are_named(argv, capsys):
  assert main_lib.main(argv) == 2
  assert '--config=FILE.py' in capsys.readouterr().err


def test_error_of_the_stage_is_one_line(program, capsys, monkeypatch):
  run, _ = program

  def fail(config, workdir):
    raise errors.DataError('no world there')

  monkeypatch.setattr(sys.modules['toy_stage'], 'run', fail)
  assert run() == errors.DataError.exit_code
  assert capsys.readouterr().err == 'error: no world there\n'


def test_help_shows_the_command(capsys):
  assert main_lib.main(['main', '--help']) == 0
  assert '--config=configs/' in capsys.readouterr().out

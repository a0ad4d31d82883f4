"""Tests that an experiment runs all stages, goes on, and is reported."""

import json
import shutil

import pytest

from tests import command
from vhop_jax import cli

pytestmark = pytest.mark.usefixtures('quick_compile')

STAGES = ('sft', 'imitation', 'reinforce')


@pytest.fixture(scope='module')
def worlds(folder, other_folder, tmp_path_factory):
  """Returns a folder of worlds with the names that configs give them."""
  out = tmp_path_factory.mktemp('worlds')
  for name, source in (
    ('sft_000', other_folder),
    ('il_000', other_folder),
    ('rl_000', other_folder),
    ('dev', folder),
    ('test_w1', folder),
  ):
    shutil.copytree(source, out / name)
  return out


def run(workdir, worlds, embedder_file, **changes):
  values = {
    'embedder': embedder_file,
    'worlds': worlds,
    'sft.warmup_steps': 1,
    'sft.joint_steps': 0,
    'imitation.imitation_steps': 1,
    'reinforce.reinforce_steps': 1,
    'reinforce.collect.queries': 3,
    'reinforce.collect.groups': 2,
    'reinforce.collect.rollouts': 2,
    'imitation.data.decisions': 5,
    'reinforce.data.decisions': 5,
    'evaluate.router_beam': 2,
    'evaluate.longest': 4,
    'evaluate.beam': 2,
    'evaluate.families': 1,
    'evaluate.right': 1,
    'evaluate.wrong': 1,
    'evaluate.comparisons': 1,
    **{f'{stage}.data.batch_size': 4 for stage in STAGES},
    **{f'{stage}.budget': 5 for stage in STAGES},
    **{f'{stage}.evaluate_every': 0 for stage in STAGES},
    **{f'{stage}.mesh.data': 1 for stage in STAGES},
    'evaluate.budget': 5,
    'sft.warmup_optimizer.warmup_steps': 0,
    'imitation.imitation_optimizer.warmup_steps': 0,
    'reinforce.reinforce_optimizer.warmup_steps': 0,
    **changes,
  }
  return command.run_stage('experiment:quickstart', workdir, values)


def test_experiment_trains_measures_and_skips_what_is_done(
  worlds, embedder_file, tmp_path, capsys
):
  workdir = tmp_path / 'run'
  assert run(workdir, worlds, embedder_file) == 0
  made = [
    json.loads(line)
    for line in (workdir / 'results.jsonl').read_text().splitlines()
  ]
  assert [
    (row['stage'], row['decoding']) for row in made if row['policy'] == 'Router'
  ] == [
    ('sft', 'five steps'),
    *(
      (stage, decoding)
      for stage in STAGES[1:]
      for decoding in ('gates', 'gates, stop at hops', 'beam')
    ),
  ]
  assert made[-1]['settings'] == {
    'composed': True,
    'decision_penalty': 0.01,
    'demonstrations': False,
    'follows_expert': True,
    'gate_input': 'evidence',
    'rejection': 'selection',
    'view': 'stack',
    'warmup': True,
  }
  files = [workdir / stage / 'router.safetensors' for stage in STAGES]
  times = [file.stat().st_mtime_ns for file in files]

  capsys.readouterr()
  assert run(workdir, worlds, embedder_file) == 0
  assert capsys.readouterr().out.count('is there already') == 3
  assert [file.stat().st_mtime_ns for file in files] == times

  with pytest.raises(SystemExit) as stop:
    cli.main(['report', str(workdir), f'--out={tmp_path / "report"}'])
  assert stop.value.code == 0
  text = (tmp_path / 'report' / 'report.md').read_text()
  assert 'Router, RL, gates' in text
  assert 'paper: other data, another backbone' in text


@pytest.mark.parametrize(
  ('changes', 'code', 'words'),
  [
    ({'stages': "('sft', 'dpo')"}, 2, "'dpo'"),
    ({'test_sets': "(('L9', 'l9_test_w*'),)"}, 1, "--split='l9_test_w*'"),
    ({'reuse': '/no', 'reuse_stages': "('sft',)"}, 1, '/no/sft/router'),
  ],
)
def test_bad_settings_are_one_line(
  worlds, embedder_file, tmp_path, capsys, changes, code, words
):
  assert run(tmp_path, worlds, embedder_file, **changes) == code
  command.assert_one_line_error(capsys, words)

"""Tests the evaluation from its command line to its files."""

import json

import pytest

from tests import command
from vhop_jax.models import pretrained

pytestmark = pytest.mark.usefixtures('quick_compile')


@pytest.fixture(scope='module')
def program(embedder_file, router, folder, other_folder, tmp_path_factory):
  """Returns a function that evaluates a random router."""
  router_file = tmp_path_factory.mktemp('router') / 'router.safetensors'
  pretrained.save_router(router_file, router, training={})

  def run(workdir, **changes):
    values = {
      'embedder': embedder_file,
      'routers.sft': router_file,
      'training.sft': '',
      'dev': folder,
      'test_sets': f"(('L4 3-hop', '{other_folder}'),)",
      'decisions': 4,
      'budget': 9,
      'router_beam': 2,
      'longest': 4,
      'beam': 2,
      'families': 1,
      'right': 1,
      'wrong': 2,
      **changes,
    }
    return command.run_stage('evaluate', workdir, values)

  return run


def test_every_row_is_measured_and_reported(program, tmp_path, capsys):
  assert program(tmp_path) == 0
  metrics = json.loads((tmp_path / 'metrics.json').read_text())
  rows = [row['name'] for row in metrics['rows']]
  assert rows == [
    'Single-shot',
    'Greedy',
    'History',
    'Best-path search',
    'SFT router',
  ]
  for row in metrics['rows']:
    for value in row['metrics'].values():
      assert 0 <= value['low'] <= value['mean'] <= value['high'] <= 1
  lines = (tmp_path / 'results.jsonl').read_text().splitlines()
  made = [json.loads(line) for line in lines]
  assert [(row['stage'], row['policy']) for row in made][-1] == (
    'sft',
    'Router',
  )
  assert {row['test_set'] for row in made} == {'L4 3-hop'}
  page = (tmp_path / 'report.html').read_text()
  assert (tmp_path / 'report.md').exists()
  assert all(name in page for name in rows)
  printed = capsys.readouterr().out
  assert all(name in printed for name in rows)
  assert f'the report: {tmp_path / "report.html"}' in printed


def test_router_with_gates_has_rows_of_its_own(program, open_router, tmp_path):
  router_file = tmp_path / 'open.safetensors'
  pretrained.save_router(router_file, open_router, training={})
  assert program(tmp_path / 'out', **{'routers.sft': router_file}) == 0
  metrics = json.loads((tmp_path / 'out' / 'metrics.json').read_text())
  assert [
    row['name'] for row in metrics['rows'] if 'success' in row['metrics']
  ] == [
    'SFT router',
    'SFT router, told the hops',
    'SFT router, beam',
  ]


def test_without_a_router_the_baselines_are_measured(program, tmp_path):
  assert program(tmp_path, **{'routers.sft': ''}) == 0
  metrics = json.loads((tmp_path / 'metrics.json').read_text())
  assert 'SFT router' not in [row['name'] for row in metrics['rows']]


def test_run_goes_on_after_the_test_sets_it_has(
  program, router, folder, other_folder, tmp_path, capsys
):
  file = tmp_path / 'router.safetensors'
  pretrained.save_router(file, router, training={})
  sets = f"(('L4 3-hop', '{other_folder}'), ('more', '{folder}'))"
  values = {'test_sets': sets, 'routers.sft': file}
  out = tmp_path / 'out'

  def run(**changes):
    assert program(out, **{**values, **changes}) == 0
    printed = capsys.readouterr().out
    lines = (out / 'results.jsonl').read_text().splitlines()
    return 'more: measured before' in printed, lines, printed

  before, first, printed = run()
  assert not before
  assert {json.loads(line)['test_set'] for line in first} == {
    'L4 3-hop',
    'more',
  }
  before, again, printed_again = run()
  assert before
  assert sorted(again) == sorted(first)
  # The tables at the end are the same, too.
  assert (
    printed_again[printed_again.index('\nmore\n') :].splitlines()[:9]
    == (printed[printed.index('\nmore\n') :].splitlines()[:9])
  )
  # Another router is measured anew.
  pretrained.save_router(file, router, training={'other': 1})
  assert not run()[0]


@pytest.mark.parametrize(
  ('changes', 'code', 'words'),
  [
    ({'routers.sft': 'no.safetensors'}, 1, 'no.safetensors is missing'),
    ({'embedder': 'tiny'}, 1, 'router.safetensors'),
    ({'dev': '/nowhere'}, 1, 'no world in /nowhere'),
    ({'decisions': 99}, 2, '99 decisions are too many'),
    ({'beem': 3}, 2, 'beem'),
    ({'routers.dpo': 'x'}, 2, 'dpo'),
    ({'test_sets': "(('L4', '/no/test_w*'),)"}, 1, "--split='test_w*'"),
    ({'test_sets': '()'}, 2, 'test_sets is empty'),
  ],
)
def test_bad_input_is_one_line(program, tmp_path, capsys, changes, code, words):
  assert program(tmp_path, **changes) == code
  command.assert_one_line_error(capsys, words)

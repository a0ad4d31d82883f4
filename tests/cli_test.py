from PIL import Image
import pytest

from vhop_jax import cli
from vhop_jax.models import pretrained
from vhop_jax.worlds import builder, verify


def run(capsys, *arguments):
  """Runs `vhop` and returns the exit code, stdout and stderr."""
  with pytest.raises(SystemExit) as stop:
    cli.main(arguments)
  out, err = capsys.readouterr()
  return stop.value.code, out, err


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  out = tmp_path_factory.mktemp('cli') / 'w'
  with pytest.raises(SystemExit) as stop:
    cli.main(['worlds', 'build', *SMALL, f'--out={out}'])
  assert stop.value.code == 0
  return out


SMALL = ('--families=2', '--seed=7', '--resolution=48', '--workers=0')


def test_built_world_is_verified_and_shown(capsys, folder):
  code, out, _ = run(capsys, 'worlds', 'verify', str(folder))
  assert code == 0
  assert 'all rules hold' in out
  code, out, _ = run(capsys, 'worlds', 'view', str(folder))
  assert code == 0
  assert out.strip() == str(folder / 'view' / 'index.html')


def test_building_twice_is_skipped(capsys, folder):
  code, out, _ = run(capsys, 'worlds', 'build', *SMALL, f'--out={folder}')
  assert code == 0
  assert 'skipped' in out


def test_world_without_chains_is_verified_and_shown(capsys, tmp_path):
  folder = tmp_path / 'w'
  arguments = ('worlds', 'build', *SMALL, '--no-with-chains', f'--out={folder}')
  assert run(capsys, *arguments)[0] == 0
  code, out, _ = run(capsys, 'worlds', 'verify', str(folder))
  assert code == 0
  assert '(answers only, no chains), all rules hold' in out
  assert run(capsys, 'worlds', 'view', str(folder))[0] == 0


@pytest.mark.parametrize(
  ('arguments', 'names'),
  [
    (
      [],
      [
        *(f'sft_{i:03d}' for i in range(10)),
        *(f'il_{i:03d}' for i in range(6)),
        *(f'rl_{i:03d}' for i in range(10)),
        'dev',
        'test_w1',
        'test_w2',
        'test_w3',
      ],
    ),
    (['--names=paper_sft'], ['paper_sft']),
    (
      ['--names', 'hop5_dev', 'vague_dev,dev'],
      ['hop5_dev', 'vague_dev', 'dev'],
    ),
  ],
)
def test_splits_are_built_by_name(
  capsys, monkeypatch, tmp_path, arguments, names
):
  built = []

  def build_world(spec, out, *, pool):
    built.append((spec.name, out))
    return builder.BuildResult(out, False, 0, 0, 0, 0.0)

  monkeypatch.setattr(builder, 'build_world', build_world)
  code, _, _ = run(
    capsys,
    'worlds',
    'build-splits',
    f'--out={tmp_path}',
    '--workers=0',
    *arguments,
  )
  assert code == 0
  assert built == [(name, tmp_path / name) for name in names]


def test_help_on_splits_names_the_variants(capsys):
  code, out, _ = run(capsys, 'worlds', 'build-splits', '--help')
  assert code == 0
  for word in ('sft_000..009', 'paper_sft', 'vague_hop2_', 'l1_', 'hop5_'):
    assert word in out


def test_breaches_are_listed_and_fail(capsys, folder, monkeypatch):
  breach = verify.Breach('answers', '1_leftof', 'is wrong')
  monkeypatch.setattr(verify, 'verify_folder', lambda folder: [breach])
  code, out, err = run(capsys, 'worlds', 'verify', str(folder))
  assert code == 1
  assert out == 'answers [1_leftof]: is wrong\n'
  assert err.startswith('error: ')


def test_worlds_that_share_objects_fail(capsys, folder):
  code, _, _ = run(capsys, 'worlds', 'disjoint', str(folder), str(folder))
  assert code == 0  # The same folder named twice is one world.
  code, _, err = run(capsys, 'worlds', 'disjoint', str(folder))
  assert code == 2
  assert 'two worlds' in err


@pytest.mark.parametrize(
  ('arguments', 'code', 'hint'),
  [
    (['worlds', 'build', '--level=L9', '--out=x'], 2, 'L1, L2, L3, L4'),
    (['worlds', 'build', '--families=0', '--out=x'], 2, 'families=0'),
    (['worlds', 'build', '--families=two', '--out=x'], 2, '--families'),
    (['worlds', 'build-splits', '--names=tset', '--out=x'], 2, 'sft_000..009'),
    (['worlds', 'build', '--prompt=rude', '--out=x'], 2, 'precise or vague'),
    (['worlds', 'build', '--familes=2', '--out=x'], 2, '--familes'),
    (['worlds', 'build'], 2, '--out'),
    (['worlds', 'build', '--workers=-1', '--out=x'], 2, 'workers'),
    (['worlds', 'biuld'], 2, 'biuld'),
    (['worlds'], 2, 'build'),
    (['wordls'], 2, 'worlds build'),
    (['worlds', 'verify', '/no/such/world'], 1, 'no world'),
    (['worlds', 'view', '/no/such/world'], 1, 'no world'),
  ],
)
def test_bad_input_is_one_line(capsys, arguments, code, hint):
  found, out, err = run(capsys, *arguments)
  assert found == code
  assert out == ''
  assert err.startswith('error: ')
  assert err.count('\n') == 1
  assert hint in err


@pytest.mark.parametrize('arguments', [['--help'], ['worlds', '--help']])
def test_help_names_the_commands(capsys, arguments):
  code, out, _ = run(capsys, *arguments)
  assert code == 0
  assert 'build' in out
  assert 'verify' in out


def test_route_answers_a_query_and_draws_it(
  capsys, folder, embedder_file, open_router, tmp_path
):
  router_file = tmp_path / 'router.safetensors'
  pretrained.save_router(router_file, open_router, training={})
  command = (
    'route', str(folder), f'--router={router_file}',
    f'--embedder={embedder_file}', '--budget=6', f'--out={tmp_path}/x/r.png',
  )  # fmt: skip
  code, out, _ = run(capsys, *command)
  assert code == 0
  assert 'query 0_' in out
  assert ' 1 select 000' in out
  assert '; valid: 000' in out
  with Image.open(tmp_path / 'x' / 'r.png') as picture:
    assert picture.width > 300
  code, _, err = run(capsys, *command, '--query=9_x')
  assert code == 2
  assert "no query '9_x'" in err

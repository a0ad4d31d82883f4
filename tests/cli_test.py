from PIL import Image
import pytest

from tests.command import run_vhop as run
from vhop_jax import cli
from vhop_jax.models import pretrained
from vhop_jax.worlds import builder, verify
from vhop_jax.worlds import world as world_lib


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


def test_world_of_another_layout_is_built_and_verified(capsys, tmp_path):
  folder = tmp_path / 'w'
  code, _, err = run(
    capsys,
    'worlds',
    'build',
    *SMALL,
    '--relations=depth',
    '--foreground',
    '--clutter=2',
    '--variation=strong',
    f'--out={folder}',
  )
  assert code == 0, err
  spec = world_lib.load_world(folder).spec
  assert spec.key.endswith('-depth-foreground-clutter2-strong')
  code, out, _ = run(capsys, 'worlds', 'verify', str(folder))
  assert code == 0, out


def test_world_without_chains_is_verified_and_shown(capsys, tmp_path):
  folder = tmp_path / 'w'
  arguments = ('worlds', 'build', *SMALL, '--no-with-chains', f'--out={folder}')
  assert run(capsys, *arguments)[0] == 0
  code, out, _ = run(capsys, 'worlds', 'verify', str(folder))
  assert code == 0
  assert '(answers only, no chains), all rules hold' in out
  assert run(capsys, 'worlds', 'view', str(folder))[0] == 0


@pytest.fixture
def built(monkeypatch):
  """Returns what would have been built: name, folder, whether replaced."""
  calls = []

  def build_world(spec, out, *, overwrite, pool):
    calls.append((spec.name, out, overwrite))
    return builder.BuildResult(out, False, 455, 98, 2, 0.0)

  monkeypatch.setattr(builder, 'build_world', build_world)
  return calls


@pytest.mark.parametrize(
  ('split', 'names'),
  [
    ('paper_sft', ['paper_sft']),
    ('hop5_dev, vague_dev dev', ['hop5_dev', 'vague_dev', 'dev']),
    (
      'main',
      [
        *(f'sft_{i:03d}' for i in range(30)),
        *(f'il_{i:03d}' for i in range(6)),
        *(f'rl_{i:03d}' for i in range(10)),
        'dev',
        'test_w1',
        'test_w2',
        'test_w3',
      ],
    ),
  ],
)
def test_splits_are_built_by_name(capsys, built, tmp_path, split, names):
  flags = (f'--split={split}', f'--out={tmp_path}', '--workers=0')
  code, out, _ = run(capsys, 'worlds', 'build', *flags, '--overwrite')
  assert code == 0
  assert sorted(built) == sorted(
    (name, tmp_path / name, True) for name in names
  )
  # A line each while they are built, then the table.
  assert out.count('(2 dropped by the verifier)') == len(names)
  table = out[out.index('\nworld  ') :]
  assert [line.split()[0] for line in table.split('\n')[3:-2]] == [
    name for name, *_ in built
  ]


def test_world_of_flags_lies_in_the_folder_itself(capsys, built, tmp_path):
  flags = ('--level=L2', '--wording=rephrased', '--workers=0')
  code, out, _ = run(capsys, 'worlds', 'build', *flags, f'--out={tmp_path}')
  assert code == 0
  name = 'L2-precise-3hop-procedural-seed0-rephrased'
  assert built == [(name, tmp_path, False)]
  assert 'paper' not in out


def test_help_on_building_names_the_variants(capsys):
  code, out, _ = run(capsys, 'worlds', 'build', '--help')
  assert code == 0
  for word in ('sft_000..029', 'paper_sft', 'vague_hop2_', 'l1_', 'hop5_'):
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
    (['worlds', 'build', '--wording=rude', '--out=x'], 2, 'rephrased'),
    (['worlds', 'build', '--split=tset', '--out=x'], 2, 'sft_000..029'),
    (['worlds', 'build', '--split=dev', '--hops=2', '--out=x'], 2, '--hops'),
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

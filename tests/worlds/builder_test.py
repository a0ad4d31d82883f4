import dataclasses
import json

import pytest

import vhop_jax
from vhop_jax import errors
from vhop_jax.worlds import builder, disjoint, render_pool, verify
from vhop_jax.worlds import world as world_lib

SPEC = world_lib.Spec(level=4, families=2, seed=11, resolution=48)


def build(spec, out, **values):
  with render_pool.RenderPool(workers=0) as pool:
    return builder.build_world(spec, out, pool=pool, progress=False, **values)


def read_header(folder):
  return json.loads((folder / world_lib.HEADER_FILE).read_text())


@pytest.mark.parametrize('hops', [2, 3, 5])
@pytest.mark.parametrize('prompt', ['precise', 'vague'])
@pytest.mark.parametrize('level', [1, 2, 3, 4])
def test_every_kind_of_world_keeps_every_rule(pool, level, prompt, hops):
  spec = world_lib.Spec(level, 3, 1, hops=hops, prompt=prompt)
  world = builder.make_world(spec, pool)
  assert [str(breach) for breach in verify.verify_world(world)] == []
  assert len(world.queries) == 6


def test_same_spec_gives_the_same_world(world, spec, pool):
  assert builder.make_world(spec, pool) == world


@pytest.mark.parametrize('prompt', ['precise', 'vague'])
def test_world_without_chains_is_its_twin_in_all_else(tmp_path, prompt):
  twin = dataclasses.replace(SPEC, prompt=prompt, name='twin')
  spec = dataclasses.replace(twin, with_chains=False)
  build(twin, tmp_path / 'twin')
  build(spec, tmp_path / 'w')
  full = world_lib.load_world(tmp_path / 'twin')
  found = world_lib.load_world(tmp_path / 'w')
  assert all(query.chains for query in full.queries)
  assert found == world_lib.World(
    spec,
    full.images,
    tuple(dataclasses.replace(query, chains=()) for query in full.queries),
  )
  headers = [read_header(tmp_path / name) for name in ('twin', 'w')]
  prints = [header['fingerprint'] for header in headers]
  assert prints[0]['pixels'] == prints[1]['pixels']
  assert prints[0]['content'] != prints[1]['content']
  assert verify.verify_folder(tmp_path / 'w') == []
  assert verify.restore_chains(found) == full


def test_world_without_chains_is_made_the_same_in_memory(world, spec, pool):
  made = builder.make_world(dataclasses.replace(spec, with_chains=False), pool)
  assert {query.chains for query in made.queries} == {()}
  assert verify.restore_chains(made) == world


def test_refused_queries_do_not_depend_on_chains(tmp_path, monkeypatch):
  make_queries = builder._make_queries

  def make_wrong(spec, family, images):
    first, second = make_queries(spec, family, images)
    chains = (first.chains[0][::-1],)
    return [dataclasses.replace(first, chains=chains), second]

  monkeypatch.setattr(builder, '_make_queries', make_wrong)
  spec = dataclasses.replace(SPEC, with_chains=False)
  assert build(spec, tmp_path / 'w').dropped == 2


def test_size_of_images_changes_no_scene(world, spec, pool):
  larger = dataclasses.replace(spec, resolution=96)
  assert builder.make_world(larger, pool).images == world.images


def test_family_looks_the_same_in_a_larger_world(world, spec, pool):
  def scenes(world):
    return sorted(
      world_lib.dump_json(image.scene)
      for image in world.images
      if image.family == 1
    )

  larger = dataclasses.replace(spec, families=9, name='')
  assert scenes(builder.make_world(larger, pool)) == scenes(world)


def test_worlds_of_two_seeds_share_nothing(folder, spec, tmp_path):
  other = dataclasses.replace(spec, seed=spec.seed + 1, name='')
  rephrased = dataclasses.replace(spec, wording='rephrased', name='')
  build(other, tmp_path / 'w')
  build(rephrased, tmp_path / 'r')
  folders = [folder, tmp_path / 'w', tmp_path / 'r']
  assert disjoint.compare_worlds(folders).breaches == ()
  build(spec, tmp_path / 'again')
  breaches = disjoint.compare_worlds([folder, tmp_path / 'again']).breaches
  kinds = {breach.message.split()[2] for breach in breaches}
  assert kinds == {'uid', 'object', 'scene', 'background'}


def test_build_reports_what_it_wrote(tmp_path):
  result = build(SPEC, tmp_path / 'w')
  world = world_lib.load_world(tmp_path / 'w')
  assert (result.built, result.images, result.queries, result.dropped) == (
    True,
    len(world.images),
    len(world.queries),
    0,
  )
  assert verify.verify_folder(tmp_path / 'w') == []
  assert read_header(tmp_path / 'w')['versions']['renderer'] != ['']
  assert [path.name for path in tmp_path.iterdir()] == ['w']


def test_world_that_is_there_is_not_built_again(folder, spec):
  before = read_header(folder)
  result = build(dataclasses.replace(spec, name='nickname'), folder)
  assert not result.built
  assert result.images == before['sizes']['images']


@pytest.mark.parametrize(
  'change',
  [
    {'seed': 12},
    {'families': 3},
    {'resolution': 60},
    {'with_chains': False},
  ],
)
def test_other_world_is_replaced_only_when_told(tmp_path, change):
  build(SPEC, tmp_path / 'w')
  other = dataclasses.replace(SPEC, name='', **change)
  with pytest.raises(errors.UsageError, match='another world.*--overwrite'):
    build(other, tmp_path / 'w')
  assert world_lib.load_world(tmp_path / 'w').spec == SPEC
  build(other, tmp_path / 'w', overwrite=True)
  assert world_lib.load_world(tmp_path / 'w').spec == other


def test_folder_of_other_files_is_never_replaced(tmp_path):
  (tmp_path / 'thesis.tex').write_text('mine')
  for overwrite in (False, True):
    with pytest.raises(errors.UsageError, match='other files'):
      build(SPEC, tmp_path, overwrite=overwrite)
  with pytest.raises(errors.UsageError, match='other files'):
    build(SPEC, tmp_path / 'thesis.tex')
  assert (tmp_path / 'thesis.tex').read_text() == 'mine'


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.UsageError, match='cannot write'):
    build(SPEC, tmp_path / 'file' / 'w')


def test_unknown_asset_pack_is_a_usage_error(tmp_path):
  spec = dataclasses.replace(SPEC, pack='antiques')
  with pytest.raises(errors.UsageError, match='antiques.*procedural'):
    build(spec, tmp_path / 'w')


@pytest.mark.parametrize('step', ['find_refused_queries', 'format_id'])
def test_interrupted_build_leaves_nothing(tmp_path, monkeypatch, step):
  def interrupt(*unused):
    raise KeyboardInterrupt

  module = verify if step == 'find_refused_queries' else world_lib
  with monkeypatch.context() as patch:
    patch.setattr(module, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
      build(SPEC, tmp_path / 'w')
  assert list(tmp_path.iterdir()) == []

  build(SPEC, tmp_path / 'w')
  other = dataclasses.replace(SPEC, seed=12, name='')
  with monkeypatch.context() as patch:
    patch.setattr(module, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
      build(other, tmp_path / 'w', overwrite=True)
  assert world_lib.load_world(tmp_path / 'w').spec == SPEC


def test_leftovers_of_a_killed_build_are_cleared_away(tmp_path):
  # No process has this number: it is above the kernel's limit.
  stale = tmp_path / '.w.building-99999999'
  stale.mkdir()
  other = tmp_path / '.w2.building-99999999'
  other.mkdir()
  build(SPEC, tmp_path / 'w')
  assert not stale.exists()
  assert other.exists()


def test_refused_queries_are_left_out_and_named(tmp_path, monkeypatch):
  breach = verify.Breach('unique-chain', '1_leftof', 'has 2 valid chains')
  monkeypatch.setattr(
    verify, 'find_refused_queries', lambda world: {'1_leftof': breach}
  )
  result = build(SPEC, tmp_path / 'w')
  assert (result.queries, result.dropped) == (3, 1)
  world = world_lib.load_world(tmp_path / 'w')
  assert '1_leftof' not in [query.id for query in world.queries]
  assert '1_leftof' in read_header(tmp_path / 'w')['dropped']


def test_procedural_world_owes_nobody_a_credit(tmp_path):
  build(SPEC, tmp_path / 'w')
  assert not (tmp_path / 'w' / builder.ATTRIBUTION_FILE).exists()
  assert read_header(tmp_path / 'w')['versions']['packs'] == {
    'procedural': vhop_jax.__version__
  }

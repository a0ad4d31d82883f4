import dataclasses
import importlib.util
import json

import numpy as np
import pytest

from tests.worlds.assets import colours, model_files
from vhop_jax import errors
from vhop_jax.worlds import (
  builder,
  geometry,
  render,
  render_pool,
  verify,
)
from vhop_jax.worlds import world as world_lib
from vhop_jax.worlds.assets import Part, meshes


@pytest.fixture
def name(tmp_path):
  pytest.importorskip('trimesh')
  folder = tmp_path / 'mine'
  folder.mkdir()
  return model_files.write_pack(folder)


def sample(name, type, **values):
  return geometry.get_pack(name).sample_object(
    np.random.default_rng(0), uid='0', type=type, **values
  )


def test_types_are_the_names_of_the_catalogue(name):
  pack = geometry.get_pack(name)
  assert pack.types == ('crate', 'lamp')
  assert pack.name == name
  assert sample(name, 'lamp').pack == name


def test_catalogue_says_which_axis_points_up(name):
  # The lamp is 2 long and 1 wide; its cone is at the upper end.
  obj = dataclasses.replace(
    sample(name, 'lamp'), shape=(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
  )
  mesh = geometry.get_pack(name).mesh(obj)
  extents = np.ptp(mesh.positions, axis=0)
  np.testing.assert_allclose(extents, [0.5, 1, 0.5], atol=0.01)
  upper = mesh.positions[:, 1] > 0.75
  radius = np.hypot(mesh.positions[:, 0], mesh.positions[:, 2])
  assert radius[~upper].max() > 0.2 and radius[upper].max() < 0.2


@pytest.mark.parametrize(('turn', 'wide'), [(0, 0), (90, 2)])
def test_catalogue_turns_a_model(name, tmp_path, turn, wide):
  rows = [{'file': 'crate.obj', 'name': 'crate', 'turn': turn}]
  folder = tmp_path / 'mine'
  (folder / 'catalogue.json').write_text(json.dumps(rows))
  pack = meshes.load_pack(name)
  mesh = pack._load('crate.obj')
  assert np.ptp(mesh.positions, axis=0).argmax() == wide


def test_catalogue_names_the_coloured_materials(name, tmp_path):
  rows = [
    {
      'file': 'crate.obj',
      'name': 'crate',
      'colour': ['lid'],
      'second_colour': [],
    }
  ]
  folder = tmp_path / 'mine'
  (folder / 'catalogue.json').write_text(json.dumps(rows))
  mesh = meshes.load_pack(name)._load('crate.obj')
  body = mesh.positions[mesh.part == Part.BODY]
  assert set(mesh.part) == {Part.BODY, Part.OWN}
  np.testing.assert_allclose(body[:, 1], body[:, 1].max())


def test_changed_file_changes_the_version(name, tmp_path):
  before = meshes.load_pack(name).version
  path = tmp_path / 'mine' / 'crate.obj'
  path.write_text(path.read_text().replace('v 3 5 1', 'v 3 5 1.1'))
  assert meshes.load_pack(name).version != before


@pytest.mark.parametrize(
  ('rows', 'message'),
  [
    ([], 'not a list of models'),
    ({'file': 'crate.obj'}, 'not a list of models'),
    ([3], 'entry 0 is not an object'),
    ([{'file': 'crate.obj'}], "entry 0 has no 'name'"),
    ([{'file': 'lost.obj', 'name': 'x'}], 'lost.obj cannot be read'),
    ([{'file': 'crate.obj', 'name': 3}], "'name' cannot be 3"),
    ([{'file': 'crate.obj', 'name': 'x', 'up': 'w'}], "choose 'y' or 'z'"),
    ([{'file': 'crate.obj', 'name': 'x', 'hue': 1}], "unknown key 'hue'"),
    ([{'file': 'crate.obj', 'name': 'x'}] * 2, 'twice'),
  ],
)
def test_wrong_catalogue_is_refused(name, tmp_path, rows, message):
  (tmp_path / 'mine' / 'catalogue.json').write_text(json.dumps(rows))
  with pytest.raises(errors.UsageError, match=message):
    meshes.load_pack(name)


def test_unknown_material_names_model_and_choices(name, tmp_path):
  rows = [{'file': 'crate.obj', 'name': 'crate', 'colour': ['steel']}]
  (tmp_path / 'mine' / 'catalogue.json').write_text(json.dumps(rows))
  with pytest.raises(errors.DataError, match='crate.obj.*steel.*lid, wood'):
    meshes.load_pack(name)._load('crate.obj')


def test_missing_folder_and_missing_trimesh_are_told(tmp_path, monkeypatch):
  with pytest.raises(errors.UsageError, match='catalogue.json cannot be read'):
    meshes.load_pack(f'meshes:{tmp_path}/lost')
  (tmp_path / 'catalogue.json').write_text('[')
  with pytest.raises(errors.UsageError, match='is not JSON'):
    meshes.load_pack(f'meshes:{tmp_path}')
  (tmp_path / 'catalogue.json').write_text('[{"file": "a", "name": "b"}]')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
  with pytest.raises(errors.UsageError, match='trimesh'):
    meshes.load_pack(f'meshes:{tmp_path}')


@pytest.mark.parametrize('type', ['crate', 'lamp'])
def test_object_shows_its_colours(name, type):
  # Cyan and orange are left out: their shades are near to other names.
  scene = colours.make_portrait(
    dataclasses.replace(sample(name, type), pattern='plain')
  )
  with render.Renderer(96, 64) as renderer:
    for colour in ('red', 'yellow', 'green', 'blue', 'purple', 'black'):
      assert colours.measure_colour(renderer, scene, colour) == colour
    first = colours.find_pixels(renderer, scene, 'colour')
    second = colours.find_pixels(renderer, scene, 'second_colour')
  assert first.sum() > second.sum() > 0
  # Only pixels on the border of the two show both.
  assert (first & second).sum() < 0.2 * second.sum()


def test_world_of_own_models_keeps_every_rule(name, tmp_path):
  spec = world_lib.Spec(level=4, families=2, seed=5, resolution=48, pack=name)
  out = tmp_path / 'world'
  with render_pool.RenderPool(workers=0) as pool:
    builder.build_world(spec, out, pool=pool, progress=False)
  assert verify.verify_folder(out) == []
  header = json.loads((out / world_lib.HEADER_FILE).read_text())
  assert header['versions']['packs'] == {name: geometry.get_pack(name).version}
  text = (out / builder.ATTRIBUTION_FILE).read_text()
  assert '"crate" (crate.obj) by A. Maker, licence not stated' in text
  assert '"lamp" (lamp.glb) by an unnamed author, CC0 1.0' in text
  # Without the models one can say nothing about the world.
  (tmp_path / 'mine' / meshes.CATALOGUE_FILE).unlink()
  geometry.get_pack.cache_clear()
  with pytest.raises(errors.UsageError, match='catalogue.json cannot be read'):
    verify.verify_folder(out)

import csv
import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from tests.worlds.assets import colours, model_pack_test
from vhop_jax import errors
from vhop_jax.worlds import geometry, render
from vhop_jax.worlds.assets import household, model_pack
from vhop_jax.worlds.objects import COLOURS

TABLE = pathlib.Path(household.__file__).with_name('household.csv')


def make_index(**values):
  about = {'title': 'Mug', 'author': 'Al', 'licence': 'CC0 1.0'}
  return {
    'source': 'test 1',
    'table': household.compute_table_version(),
    'models': {'Scopia/mug': about},
    **values,
  }


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """An assets folder with one prepared model, a mug."""
  monkeypatch.setenv(household.FOLDER_VARIABLE, str(tmp_path))
  monkeypatch.setattr(household, 'read_table', lambda: {'Scopia/mug': 'mug'})
  folder = tmp_path / household.NAME
  folder.mkdir()
  (folder / household.INDEX_FILE).write_text(json.dumps(make_index()))
  model_pack.save_mesh(
    model_pack_test.make_mesh(),
    str(folder / household.make_file_name('Scopia/mug')),
  )
  return folder


def test_every_model_has_a_name_or_a_reason():
  rows = list(csv.DictReader(TABLE.read_text().splitlines()))
  assert len({row['model'] for row in rows}) == len(rows) == 820
  for row in rows:
    assert bool(row['type']) != bool(row['reason']), row
    assert row['model'].partition('/')[0] in {*household.LICENCES, 'Reallusion'}
    assert re.fullmatch('([a-z]+( [a-z]+){0,2})?', row['type']), row


def test_enough_models_of_enough_names_are_kept():
  table = household.read_table()
  assert len(table) >= 150
  assert len(set(table.values())) >= 60
  assert table['Scopia/toaster'] == 'toaster'
  assert not any(name.startswith('Reallusion') for name in table)


def test_names_are_none_of_a_colour():
  words = {
    word for name in household.read_table().values() for word in name.split()
  }
  assert not words & set(COLOURS)


def test_prepared_models_are_read(folder):
  pack = household.load_pack()
  assert pack.types == ('mug',)
  assert pack.version.startswith('test 1, table ')
  obj = pack.sample_object(np.random.default_rng(0), uid='0')
  assert obj.pack == 'household'
  assert len(pack.mesh(obj).positions) == 4
  assert '"Mug" (Scopia/mug) by Al, CC0 1.0' in pack.attribute([obj])


def test_missing_models_name_the_command(tmp_path, monkeypatch):
  monkeypatch.setenv(household.FOLDER_VARIABLE, str(tmp_path))
  with pytest.raises(errors.UsageError, match=f'{tmp_path}.*`make assets`'):
    household.load_pack()


def test_models_of_another_table_are_refused(folder):
  index = make_index(table='0000')
  (folder / household.INDEX_FILE).write_text(json.dumps(index))
  with pytest.raises(errors.UsageError, match='another version'):
    household.load_pack()


def test_missing_file_of_a_model_is_named(folder):
  (folder / household.make_file_name('Scopia/mug')).write_bytes(b'x')
  with pytest.raises(errors.DataError, match='Scopia--mug.npz'):
    household.load_pack().sample_object(np.random.default_rng(0), uid='0')


def test_folder_is_in_the_checkout_unless_it_is_named(monkeypatch):
  monkeypatch.delenv(household.FOLDER_VARIABLE, raising=False)
  checkout = pathlib.Path(__file__).parents[3]
  assert household.get_folder() == checkout / 'assets'


@pytest.mark.parametrize(
  'type', ['armchair', 'toaster', 'fridge', 'basketball', 'crate', 'sofa']
)
def test_real_model_shows_the_named_colour(type):
  try:
    pack = geometry.get_pack(household.NAME)
  except errors.UsageError as error:
    pytest.skip(str(error))
  obj = pack.sample_object(np.random.default_rng(1), uid='0', type=type)
  obj = dataclasses.replace(obj, pattern='plain', second_colour='black')
  scene = colours.make_portrait(obj)
  with render.Renderer(96, 64) as renderer:
    assert colours.find_pixels(renderer, scene).sum() > 100
    for colour in ('red', 'yellow', 'green', 'blue', 'purple', 'white'):
      assert colours.measure_colour(renderer, scene, colour) == colour

import dataclasses

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds.assets import Mesh, Part, Skin, model_pack
from vhop_jax.worlds.objects import COLOURS, PATTERNS


def make_mesh(size=1.0, *, trim=False):
  """A tetrahedron as a model; `size` tells it from others."""
  positions = np.array([[0, 0, 0], [1, 0, 0], [0, size, 0], [0, 0, 1]])
  part = np.full(4, Part.BODY, np.uint8)
  if trim:
    part[-1] = Part.TRIM
  return Mesh(
    positions=positions.astype(np.float32) - np.float32([0.5, 0, 0.5]),
    normals=np.full((4, 3), 1 / np.sqrt(3), np.float32),
    part=part,
    faces=np.array([[0, 1, 2], [0, 2, 3]], np.uint32),
    skin=Skin(
      uv=np.zeros((4, 3), np.float32),
      base=np.ones((4, 3), np.float32),
      textures=np.zeros((1, 2, 2, 4), np.uint8),
    ),
  )


MESHES = {
  'a/chair': make_mesh(0.9),
  'a/chair2': make_mesh(0.8),
  'b/chair': make_mesh(0.7),
  'lamp': make_mesh(0.6, trim=True),
}


def make_pack():
  entries = [
    model_pack.Entry(name, name[-5:].strip('/2a'), name.title(), author, terms)
    for name, author, terms in (
      ('lamp', '', ''),
      ('b/chair', 'Bo', 'CC0 1.0'),
      ('a/chair', 'Al', 'CC BY 3.0'),
    )
  ]
  entries.append(
    model_pack.Entry('a/chair2', 'chair', 'A/Chair', 'Al', 'CC BY 3.0')
  )
  return model_pack.ModelPack('test', '1', entries, MESHES.__getitem__)


def sample(seed=0, **values):
  return make_pack().sample_object(
    np.random.default_rng(seed), uid='0', **values
  )


def test_models_of_one_name_are_variants_of_a_type():
  pack = make_pack()
  assert pack.types == ('chair', 'lamp')
  chosen = [pack.get_entry(sample(seed, type='chair')).id for seed in range(40)]
  assert set(chosen) == {'a/chair', 'a/chair2', 'b/chair'}


def test_small_change_of_the_shape_keeps_the_model():
  pack = make_pack()
  obj = sample(1, type='chair')
  for change in (-0.15, 0.15):
    shape = list(obj.shape)
    shape[2] += change
    moved = dataclasses.replace(obj, shape=tuple(shape))
    assert pack.get_entry(moved) == pack.get_entry(obj)


def test_sampling_reaches_everything_and_is_determined():
  pack, rng = make_pack(), np.random.default_rng(0)
  objects = [pack.sample_object(rng, uid='0') for _ in range(600)]
  assert {obj.type for obj in objects} == {'chair', 'lamp'}
  assert {obj.colour for obj in objects} == set(COLOURS)
  assert {obj.pack for obj in objects} == {'test'}
  chairs = {obj.pattern for obj in objects if obj.type == 'chair'}
  assert chairs == set(PATTERNS)
  # The lamp shows the second colour by a material of its own.
  assert {o.pattern for o in objects if o.type == 'lamp'} == {'plain'}
  again = np.random.default_rng(0)
  assert [pack.sample_object(again, uid='0') for _ in range(600)] == objects


def test_fixed_colour_leaves_the_rest_alone():
  free = sample(4)
  colour = next(name for name in COLOURS if name != free.colour)
  fixed = sample(4, colour=colour)
  assert fixed.shape == free.shape and fixed.type == free.type
  assert fixed.colour == colour


def test_proportions_differ_by_the_shape():
  pack = make_pack()
  obj = sample(2, type='lamp')
  small, large = (
    pack.mesh(dataclasses.replace(obj, shape=(*obj.shape[:4], y, 0.5)))
    for y in (0.0, 1.0)
  )
  # The height of the lamp is 0.6 of its width, times or over 1.2.
  heights = [np.ptp(mesh.positions[:, 1]) for mesh in (small, large)]
  obj_width = 1.2 ** (2 * obj.shape[3] - 1)
  sizes = [np.array([obj_width, 0.6 * f, 1.0]) for f in (1 / 1.2, 1.2)]
  np.testing.assert_allclose(
    heights, [s[1] / s.max() for s in sizes], rtol=1e-5
  )
  for mesh in (small, large):
    assert np.ptp(mesh.positions, axis=0).max() == pytest.approx(1)
    np.testing.assert_allclose(
      np.linalg.norm(mesh.normals, axis=1), 1, atol=1e-6
    )
  # What is stretched upwards faces the sides more.
  assert (large.normals[:, 1] < small.normals[:, 1]).all()


def test_attribution_names_what_is_used_and_no_more():
  pack = make_pack()
  objects = [sample(seed, type='chair') for seed in range(40)]
  used = [o for o in objects if pack.get_entry(o).id != 'b/chair']
  text = pack.attribute(used)
  assert '"A/Chair" (a/chair) by Al, CC BY 3.0\n' in text
  assert text.count('a/chair2') == 1
  assert 'b/chair' not in text and 'lamp' not in text
  assert 'unnamed author, licence not stated' in pack.attribute(
    [sample(0, type='lamp')]
  )


def test_unknown_wishes_are_refused():
  with pytest.raises(errors.UsageError, match="'unicorn'.*chair, lamp"):
    sample(0, type='unicorn')
  with pytest.raises(errors.UsageError, match="colour='beige'"):
    sample(0, colour='beige')
  lost = dataclasses.replace(sample(0), type='unicorn')
  with pytest.raises(errors.UsageError, match="object 0 .*'unicorn'"):
    make_pack().mesh(lost)


def test_file_of_a_mesh_gives_it_back(tmp_path):
  mesh = make_mesh(0.4, trim=True)
  model_pack.save_mesh(mesh, str(tmp_path / 'm.npz'))
  again = model_pack.load_mesh(str(tmp_path / 'm.npz'))
  for field in ('positions', 'normals', 'part', 'faces'):
    np.testing.assert_array_equal(getattr(again, field), getattr(mesh, field))
  for field in ('uv', 'base', 'textures'):
    np.testing.assert_array_equal(
      getattr(again.skin, field), getattr(mesh.skin, field)
    )

import importlib.util

import numpy as np
import pytest

from tests.worlds.assets import model_files
from vhop_jax import errors
from vhop_jax.worlds.assets import model as model_lib


@pytest.fixture
def crate(tmp_path):
  pytest.importorskip('trimesh')
  return model_lib.read_model(model_files.write_crate(tmp_path))


def find(model, name):
  [index] = [i for i, m in enumerate(model.materials) if m.name == name]
  return index


def test_model_stands_on_the_ground_in_the_middle(crate):
  # The box is 2 x 1 x 1, so half as high and deep as wide.
  low, high = crate.corners.min(axis=(0, 1)), crate.corners.max(axis=(0, 1))
  np.testing.assert_allclose(low, [-0.5, 0, -0.25], atol=1e-9)
  np.testing.assert_allclose(high, [0.5, 0.5, 0.25], atol=1e-9)


def test_materials_keep_colour_and_texture(crate):
  assert {m.name for m in crate.materials} == {'wood', 'lid'}
  wood = crate.materials[find(crate, 'wood')]
  lid = crate.materials[find(crate, 'lid')]
  np.testing.assert_allclose(lid.colour, [1, 0, 0])
  assert lid.texture is None
  # The grey of a textured material is no tint.
  np.testing.assert_allclose(wood.colour, [1, 1, 1])
  np.testing.assert_array_equal(wood.texture[..., :3], model_files.make_wood())
  assert (wood.texture[..., 3] == 255).all()


def test_each_triangle_has_its_material(crate):
  is_lid = crate.material == find(crate, 'lid')
  assert is_lid.sum() == 2 and (~is_lid).sum() == 10
  np.testing.assert_allclose(crate.corners[is_lid][..., 1], 0.5)


def test_upper_row_of_the_texture_is_at_the_upper_edge(crate):
  # `vt` counts upwards, and the front's upper corners have v = 1.
  front = np.isclose(crate.corners[..., 2], 0.25).all(axis=1)
  np.testing.assert_allclose(
    crate.uv[front][..., 1], crate.corners[front][..., 1] * 2
  )


def test_turn_brings_a_model_upright(tmp_path):
  pytest.importorskip('trimesh')
  # x goes up: the crate stands on its end.
  turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
  model = model_lib.read_model(model_files.write_crate(tmp_path), turn)
  extents = np.ptp(model.corners.reshape(-1, 3), axis=0)
  np.testing.assert_allclose(extents, [0.5, 1, 0.5])


def test_glb_keeps_colours_and_places(tmp_path):
  pytest.importorskip('trimesh')
  model = model_lib.read_model(model_files.write_lamp(tmp_path))
  shade = find(model, 'shade')
  np.testing.assert_allclose(model.materials[shade].colour, [1, 1, 0])
  # The whole is 2 long along z; the shade begins at 1.4.
  pole = model.corners[model.material == find(model, 'pole')]
  assert np.ptp(pole[..., 2]) == pytest.approx(0.7)
  assert np.ptp(model.corners[model.material == shade][..., 2]) == (
    pytest.approx(0.3)
  )


def test_file_that_is_no_model_is_named(tmp_path):
  pytest.importorskip('trimesh')
  path = tmp_path / 'broken.glb'
  path.write_bytes(b'nothing')
  with pytest.raises(errors.DataError, match='broken.glb cannot be read'):
    model_lib.read_model(path)


def test_model_that_shows_nothing_is_named(tmp_path):
  pytest.importorskip('trimesh')
  path = tmp_path / 'empty.obj'
  path.write_text('mtllib m.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nusemtl a\nf 1 2 3')
  (tmp_path / 'm.mtl').write_text('newmtl a\nKd 1 1 1\nd 0.0\n')
  with pytest.raises(errors.DataError, match='empty.obj has no visible'):
    model_lib.read_model(path)


def test_missing_trimesh_names_the_extra(tmp_path, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
  with pytest.raises(errors.UsageError, match=r"'vhop_jax\[assets\]'"):
    model_lib.read_model(tmp_path / 'any.obj')


def make_prism(sides, *, flipped=()):
  """Makes the mantle of a prism; some of its triangles are wound backwards."""
  angle = 2 * np.pi * np.arange(sides + 1) / sides
  ring = np.stack([np.sin(angle), 0 * angle, np.cos(angle)], axis=1)
  up = np.array([0, 1, 0])
  triangles = []
  for a, b in zip(ring[:-1], ring[1:], strict=True):
    triangles += [[a, b, b + up], [a, b + up, a + up]]
  corners = np.array(triangles)
  corners[list(flipped)] = corners[list(flipped)][:, ::-1]
  return corners


def test_edges_stay_sharp():
  # The sides of a square prism meet at 90 degrees.
  corners = make_prism(4)
  normals = model_lib.compute_normals(corners)
  middle = corners.reshape(-1, 6, 3).mean(axis=1) * [1, 0, 1]
  middle /= np.linalg.norm(middle, axis=1, keepdims=True)
  np.testing.assert_allclose(
    normals.reshape(4, 6, 3),
    np.broadcast_to(middle[:, None], (4, 6, 3)),
    atol=1e-6,
  )


@pytest.mark.parametrize('flipped', [(), (3, 10, 11)])
def test_round_surfaces_are_smooth(flipped):
  corners = make_prism(24, flipped=flipped)
  normals = model_lib.compute_normals(corners)
  radial = corners * [1, 0, 1]
  signs = np.ones(len(corners))
  signs[list(flipped)] = -1
  # A corner touches one triangle of one side and two of the other, so that its
  # normal leans by 15 / 6 degrees from the radius: cos = 0.999.
  cosines = (normals * radial).sum(axis=-1) * signs[:, None]
  assert cosines.min() > 0.998

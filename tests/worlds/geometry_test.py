import dataclasses

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import geometry
from vhop_jax.worlds.assets import Mesh, Part, Skin
from vhop_jax.worlds.assets.procedural import PROCEDURAL


def make_tower(bands=100, *, lid=True):
  """A square tower of height 1 and width 0.2 around the y axis."""
  corners = np.array([[-0.1, -0.1], [0.1, -0.1], [0.1, 0.1], [-0.1, 0.1]])
  positions, faces = [], []
  for y in np.linspace(0, 1, bands + 1):
    positions += [[x, y, z] for x, z in corners]
  for band in range(bands):
    for side in range(4):
      a, b = 4 * band + side, 4 * band + (side + 1) % 4
      faces += [[a, a + 4, b], [b, a + 4, b + 4]]
  top = 4 * bands
  faces += [[0, 1, 2], [0, 2, 3]]
  if lid:
    faces += [[top, top + 2, top + 1], [top, top + 3, top + 2]]
  positions = np.array(positions, np.float32)
  return Mesh(
    positions=positions,
    normals=np.ones_like(positions),
    part=np.full(len(positions), Part.BODY, np.uint8),
    faces=np.array(faces, np.uint32),
  )


def test_second_colour_of_two_tone_is_a_third_of_what_is_seen():
  # At a pitch of 0.4 one sees cos(0.4) times the mean |cos| of eight turns,
  # (1 + sqrt 2) / 4, times two pairs of sides 0.2 wide: 0.2224, and the lid,
  # 0.04 sin(0.4) = 0.0156. A share of 0.32 is 0.0762, of which the lid gives
  # 0.0156, so the sides give 0.0606 / 0.2224 of their height: 0.272.
  made = geometry.make_geometry(make_tower())
  assert made.two_tone_y == pytest.approx(1 - 0.272, abs=0.015)


def test_table_top_keeps_one_colour():
  # Nearly all one sees of a slab of height 0.05 is its level top: that stays,
  # and the sides are set off.
  mesh = make_tower()
  flat = mesh.positions * np.float32([5, 0.05, 5])
  made = geometry.make_geometry(dataclasses.replace(mesh, positions=flat))
  assert made.two_tone_y < 0
  assert 0.03 < -made.two_tone_y < 0.05


def test_open_mesh_is_noticed():
  assert geometry.make_geometry(make_tower()).closed
  assert not geometry.make_geometry(make_tower(lid=False)).closed


def test_mesh_inside_out_is_noticed():
  mesh = make_tower()
  inside_out = dataclasses.replace(mesh, faces=mesh.faces[:, ::-1])
  assert not geometry.make_geometry(inside_out).closed


def test_body_box_leaves_other_parts_out():
  mesh = make_tower()
  part = np.where(mesh.positions[:, 1] > 0.5, Part.TRIM, Part.BODY)
  made = geometry.make_geometry(
    dataclasses.replace(mesh, part=part.astype(np.uint8))
  )
  np.testing.assert_allclose(made.body_low, [-0.1, 0, -0.1])
  np.testing.assert_allclose(made.body_size, [0.2, 0.5, 0.2], atol=1e-6)


def test_buffers_hold_the_mesh():
  mesh = make_tower(bands=1)
  made = geometry.make_geometry(mesh)
  vertices = np.frombuffer(made.vertices, np.float32).reshape(-1, 7)
  np.testing.assert_array_equal(vertices[:, :3], mesh.positions)
  np.testing.assert_array_equal(vertices[:, 3:6], mesh.normals)
  indices = np.frombuffer(made.indices, np.uint32)
  np.testing.assert_array_equal(indices, mesh.faces.ravel())
  assert made.num_indices == len(indices)
  assert made.base_radius == pytest.approx(0.1 * np.sqrt(2))


def test_buffers_hold_the_skin_too():
  mesh = make_tower(bands=1)
  rng = np.random.default_rng(0)
  skin = Skin(
    uv=rng.random((8, 3), np.float32),
    base=rng.random((8, 3), np.float32),
    textures=np.zeros((2, 4, 4, 4), np.uint8),
  )
  made = geometry.make_geometry(dataclasses.replace(mesh, skin=skin))
  vertices = np.frombuffer(made.vertices, np.float32).reshape(8, 13)
  np.testing.assert_array_equal(vertices[:, :3], mesh.positions)
  np.testing.assert_array_equal(vertices[:, 7:10], skin.uv)
  np.testing.assert_array_equal(vertices[:, 10:], skin.base)
  assert made.textures is skin.textures
  # The faces of such models may be wound the wrong way round.
  assert not made.closed


def test_packs_are_found_by_name():
  assert geometry.get_pack('procedural') is PROCEDURAL
  with pytest.raises(
    errors.UsageError, match="'lost'.*procedural, household, meshes:FOLDER"
  ):
    geometry.get_pack('lost')
  with pytest.raises(errors.UsageError, match='catalogue.json'):
    geometry.get_pack('meshes:nowhere')


def test_unknown_pack_is_an_error_of_the_user():
  obj = PROCEDURAL.sample_object(np.random.default_rng(0), uid='a')
  with pytest.raises(errors.DataError, match="pack 'lost'"):
    geometry.load_geometry(dataclasses.replace(obj, pack='lost'))

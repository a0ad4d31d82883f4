import dataclasses

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds.assets import Part, recolour
from vhop_jax.worlds.assets.model import Material, Model


def make_box(low, high):
  """Makes the twelve triangles of a box [12, 3, 3]."""
  corner = np.array(
    [[(low, high)[k >> axis & 1][axis] for axis in range(3)] for k in range(8)]
  )
  quads = [(0, 4, 6, 2), (1, 3, 7, 5), (0, 1, 5, 4), (2, 6, 7, 3)]
  quads += [(0, 2, 3, 1), (4, 5, 7, 6)]
  return np.array(
    [corner[[q[0], q[i], q[i + 1]]] for q in quads for i in (1, 2)], float
  )


def make_tower(heights, **materials):
  """Stacks boxes of width 0.3, one of each material, from the ground up."""
  pieces, low = [], 0.0
  for height in heights:
    pieces.append(make_box((-0.15, low, -0.15), (0.15, low + height, 0.15)))
    low += height
  corners = np.concatenate(pieces)
  # Each triangle shows all of the texture's width, at its own height.
  uv = np.stack([corners[..., 0] / 0.3 + 0.5, corners[..., 1]], axis=-1)
  return Model(
    corners=corners,
    uv=uv,
    material=np.repeat(np.arange(len(heights)), 12),
    materials=tuple(
      Material(name, np.asarray(colour, float), texture)
      for name, (colour, texture) in materials.items()
    ),
  )


RED, GREY, BLUE = (
  ((0.8, 0.1, 0.1), None),
  ((0.5, 0.5, 0.5), None),
  ((0.1, 0.1, 0.8), None),
)


def get_parts(mesh):
  """Returns the part of the vertices at each height, from below."""
  order = np.argsort(mesh.positions[:, 1], kind='stable')
  return [Part(mesh.part[order[i]]) for i in (0, -1)]


def test_what_is_seen_most_takes_the_colour():
  model = make_tower([0.7, 0.25, 0.05], big=GREY, middle=RED, small=BLUE)
  mesh = recolour.make_mesh(model)
  height = mesh.positions[:, 1]
  assert set(mesh.part[height < 0.6]) == {Part.BODY}
  assert set(mesh.part[(height > 0.71) & (height < 0.94)]) <= {Part.TRIM}
  # The small one is as the artist made it: 0.1 is 0.01002 in linear RGB.
  small = mesh.part == Part.OWN
  assert small.any() and (height[small] > 0.949).all()
  np.testing.assert_allclose(mesh.skin.base[small][:, 0], 0.01002, atol=1e-4)
  np.testing.assert_allclose(mesh.skin.base[small][:, 2], 0.60383, atol=1e-3)
  assert (mesh.skin.uv[:, 2] == -1).all()


def test_hidden_surface_does_not_count():
  # The inner box has more area in all, by its many copies.
  outer = make_box((-0.3, 0, -0.3), (0.3, 0.6, 0.3))
  inner = make_box((-0.2, 0.1, -0.2), (0.2, 0.5, 0.2))
  corners = np.concatenate([inner] * 6 + [outer])
  model = Model(
    corners=corners,
    uv=np.zeros((*corners.shape[:2], 2)),
    material=np.repeat([0, 1], [72, 12]),
    materials=tuple(
      Material(name, np.array(colour), None)
      for name, (colour, _) in (('inner', RED), ('outer', BLUE))
    ),
  )
  mesh = recolour.make_mesh(model)
  assert mesh.part[np.abs(mesh.positions).max(axis=1).argmax()] == Part.BODY
  assert Part.OWN in mesh.part


def test_several_materials_make_up_the_colour_where_one_is_too_little():
  # Each of three is a third: one alone would not dominate what is seen.
  model = make_tower([0.34, 0.33, 0.33], a=RED, b=GREY, c=BLUE)
  mesh = recolour.make_mesh(model)
  body = np.mean(mesh.part == Part.BODY)
  assert body > 0.6


def test_nearly_equal_colours_are_one():
  nearly = ((0.51, 0.5, 0.5), None)
  model = make_tower([0.8, 0.12, 0.08], big=RED, a=GREY, b=nearly)
  mesh = recolour.make_mesh(model)
  assert set(mesh.part) == {Part.BODY, Part.TRIM}


def test_named_materials_are_obeyed():
  model = make_tower([0.6, 0.3, 0.1], big=GREY, middle=RED, small=BLUE)
  mesh = recolour.make_mesh(model, ['small'], ['middle'])
  assert get_parts(mesh) == [Part.OWN, Part.BODY]
  assert Part.TRIM in mesh.part
  alone = recolour.make_mesh(model, ['big'], [])
  assert Part.TRIM not in alone.part
  with pytest.raises(errors.DataError, match="'tiny'.*big, middle, small"):
    recolour.make_mesh(model, ['tiny'])


def make_texture():
  """Makes a texture [8, 8, 4] whose lower half is dark."""
  texture = np.full((8, 8, 4), 255, np.uint8)
  texture[4:, :, :3] = 40
  return texture


def look_up(mesh, v):
  """Returns what the shader multiplies the colour by, at a height."""
  texture = mesh.skin.textures[0].astype(float) / 255
  texel = texture[int(v * len(texture)), len(texture) // 2, :3]
  return mesh.skin.base[0] * texel**2


def test_texture_is_readable_around_the_named_colour():
  model = make_tower([1.0], cloth=((1, 1, 1), make_texture()))
  mesh = recolour.make_mesh(model)
  assert set(mesh.part) == {Part.BODY}
  dark, light = look_up(mesh, 0.25), look_up(mesh, 0.75)
  np.testing.assert_allclose(np.ptp(dark), 0, atol=1e-6)
  # 40 is 0.0212 in linear RGB, which is cut off at 0.3; then the mean of the
  # roots over both halves, and the lid, which is light, is brought to 1.
  assert 0.3 <= dark[0] < 0.6
  roots = np.sqrt([dark[0], light[0]])
  assert roots.mean() == pytest.approx(1, abs=0.06)


def test_own_texture_keeps_its_colours():
  texture = make_texture()
  texture[..., :3] = (255, 128, 0)
  model = make_tower([0.75, 0.25], big=RED, label=((1, 1, 1), texture))
  mesh = recolour.make_mesh(model, ['big'], [])
  own = mesh.part == Part.OWN
  assert (mesh.skin.uv[own][:, 2] == 0).all()
  texel = mesh.skin.textures[0, 0, 0, :3] / 255
  # 128 in sRGB is 0.2159 in linear RGB.
  np.testing.assert_allclose(
    mesh.skin.base[own][0] * texel**2, [1, 0.2159, 0], atol=4e-3
  )


def test_holes_in_a_texture_are_kept_and_rows_turned():
  texture = make_texture()
  texture[:4, :, 3] = 0  # The upper half.
  model = make_tower([1.0], net=((1, 1, 1), texture))
  alpha = recolour.make_mesh(model).skin.textures[0, :, 0, 3]
  assert alpha[0] == 255 and alpha[-1] == 0


def test_lighter_material_of_one_colour_stays_lighter():
  light, dark = ((0.8, 0.8, 0.8), None), ((0.3, 0.3, 0.3), None)
  model = make_tower([0.5, 0.5], low=light, high=dark)
  mesh = recolour.make_mesh(model, ['low', 'high'], [])
  base = mesh.skin.base[:, 0]
  low, high = (
    base[mesh.positions[:, 1].argmin()],
    base[mesh.positions[:, 1].argmax()],
  )
  assert low > 1 > high
  np.testing.assert_allclose((np.sqrt(low) + np.sqrt(high)) / 2, 1, atol=0.03)


def test_corners_are_joined_only_where_all_is_the_same():
  mesh = recolour.make_mesh(make_tower([1.0], only=RED))
  # A box has eight corners with three normals each.
  assert len(mesh.positions) == 24
  assert mesh.faces.shape == (12, 3)
  np.testing.assert_allclose(np.linalg.norm(mesh.normals, axis=1), 1, atol=1e-5)
  assert mesh.skin.textures.shape[0] == 0
  assert dataclasses.replace(mesh, skin=None).skin is None

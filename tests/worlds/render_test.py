import dataclasses
import hashlib
import json
import math
import subprocess
import sys

import moderngl
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import arrange, geometry, render
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets import Part, Skin
from vhop_jax.worlds.assets.procedural import PROCEDURAL

WIDTH, HEIGHT = 96, 64

RENDER_ONE = """
import hashlib, json, sys
from vhop_jax.worlds import render, scene
one = scene.Scene.from_json(json.load(sys.stdin))
with render.Renderer(96, 64) as renderer:
  print(hashlib.sha256(renderer.render(one).tobytes()).hexdigest())
"""


@pytest.fixture(scope='module')
def renderer():
  with render.Renderer(WIDTH, HEIGHT) as renderer:
    yield renderer


def sample(seed, types=(None, None)):
  rng = np.random.default_rng(seed)
  objects = [
    PROCEDURAL.sample_object(rng, uid=str(i), type=name)
    for i, name in enumerate(types)
  ]
  return arrange.sample_scene(rng, objects)


def repaint(scene, index, colour):
  """Gives one object both its colours anew."""
  placements = list(scene.placements)
  placements[index] = dataclasses.replace(
    placements[index],
    object=dataclasses.replace(
      placements[index].object,
      colour=colour,
      second_colour=colour,
      pattern='plain',
    ),
  )
  return dataclasses.replace(scene, placements=tuple(placements))


def compute_silhouette(renderer, scene, index):
  """Finds the pixels of an object: those that change with its colour."""
  black, white = (
    renderer.render(repaint(scene, index, colour)).astype(int)
    for colour in ('black', 'white')
  )
  return np.abs(white - black).max(axis=-1)


def make_plain_scene(**light):
  """A ball-like object on a plain grey ground under a plain sky."""
  scene = sample(0, ('globe',))
  grey = dataclasses.replace(
    scene.background.ground,
    texture='plain',
    colour=(0.6, 0.6, 0.6),
    second_colour=(0.6, 0.6, 0.6),
  )
  camera = scene_lib.Camera((0.0, 2.5, 4.0), 0.0, 0.5, 0.7)
  placement = dataclasses.replace(scene.placements[0], x=0.0, z=0.0, scale=1.0)
  return scene_lib.Scene(
    placements=(placement,),
    camera=camera,
    light=dataclasses.replace(scene.light, **light),
    background=dataclasses.replace(
      scene.background, ground=grey, wall=grey, wall_distance=0.0
    ),
  )


@pytest.mark.parametrize('resolution,size', [(96, (96, 64)), (224, (224, 149))])
def test_size(resolution, size):
  assert render.size_from_resolution(resolution) == size
  with render.Renderer(*size) as renderer:
    pixels = renderer.render(sample(0))
  assert pixels.shape == (size[1], size[0], 3)
  assert pixels.dtype == np.uint8
  assert pixels.flags.c_contiguous


def test_each_object_is_drawn_where_it_is_projected(renderer):
  for seed in range(12):
    scene = sample(seed)
    boxes = scene_lib.project(scene, WIDTH / HEIGHT)
    for index, box in enumerate(boxes):
      rows, columns = np.nonzero(compute_silhouette(renderer, scene, index) > 8)
      x0, y0, x1, y1 = np.array(box) * (WIDTH, HEIGHT, WIDTH, HEIGHT)
      # Pixels that the object touches, and no others.
      assert columns.min() >= math.floor(x0) - 1e-6
      assert columns.max() + 1 <= math.ceil(x1) + 1e-6
      assert rows.min() >= math.floor(y0) - 1e-6
      assert rows.max() + 1 <= math.ceil(y1) + 1e-6
      assert columns.max() + 1 - columns.min() > 0.3 * (x1 - x0)


def test_left_object_is_left_in_the_pixels(renderer):
  for seed in range(12):
    scene = sample(seed)
    left, right = (
      np.nonzero(compute_silhouette(renderer, scene, index) > 8)[1]
      for index in (0, 1)
    )
    assert left.mean() < right.mean()
    assert left.max() <= right.min()


def test_same_bytes_again_after_json_and_in_another_process(renderer):
  scene = sample(1)
  pixels = renderer.render(scene)
  renderer.render(sample(2, (None,)))
  np.testing.assert_array_equal(renderer.render(scene), pixels)
  text = json.dumps(scene.to_json())
  again = scene_lib.Scene.from_json(json.loads(text))
  np.testing.assert_array_equal(renderer.render(again), pixels)
  result = subprocess.run(
    [sys.executable, '-c', RENDER_ONE],
    input=text,
    capture_output=True,
    text=True,
    check=True,
  )
  assert result.stdout.strip() == hashlib.sha256(pixels).hexdigest()


def test_single_object_leaves_nothing_of_the_scene_before(renderer):
  alone = sample(3, (None,))
  renderer.render(sample(4))
  after = renderer.render(alone)
  with render.Renderer(WIDTH, HEIGHT) as fresh:
    np.testing.assert_array_equal(fresh.render(alone), after)


def test_shadow_falls_away_from_the_light(renderer):
  images = [
    renderer.render(
      make_plain_scene(azimuth=azimuth, elevation=0.7, colour=(1.0, 1.0, 1.0))
    ).astype(int)[..., 1]
    for azimuth in (math.pi / 2, -math.pi / 2)
  ]
  silhouette = compute_silhouette(renderer, make_plain_scene(), 0) > 0
  difference = np.where(silhouette, 0, images[0] - images[1])
  lit_from_right = np.nonzero(difference < -15)[1]
  lit_from_left = np.nonzero(difference > 15)[1]
  assert len(lit_from_right) > 20 and len(lit_from_left) > 20
  middle = np.nonzero(silhouette)[1].mean()
  assert lit_from_right.mean() < middle - 5
  assert lit_from_left.mean() > middle + 5


def test_lit_side_is_the_side_of_the_light(renderer):
  scene = repaint(
    make_plain_scene(azimuth=math.pi / 2, elevation=0.7), 0, 'red'
  )
  pixels = renderer.render(scene)[..., 0].astype(int)
  mask = compute_silhouette(renderer, scene, 0) > 60
  columns = np.nonzero(mask)[1]
  middle = columns.mean()
  right = pixels[mask][columns > middle + 3].mean()
  left = pixels[mask][columns < middle - 3].mean()
  assert right > left + 15


def test_extras_and_raised_objects_are_drawn_where_they_are_projected(renderer):
  scene = make_plain_scene()
  ball = scene.placements[0]
  things = [
    dataclasses.replace(ball, x=x, z=z, y=y, scale=0.4)
    for x, z, y in ((-0.9, 0.3, 0.0), (0.9, 0.3, 0.0), (0.9, -0.4, 0.7))
  ]
  full = dataclasses.replace(
    scene,
    extras=tuple(
      scene_lib.Extra(role, thing)
      for role, thing in zip(scene_lib.ROLES, things, strict=True)
    ),
  )
  pixels = renderer.render(full).astype(int)
  for i, thing in enumerate(things):
    rest = full.extras[:i] + full.extras[i + 1 :]
    without = renderer.render(dataclasses.replace(full, extras=rest))
    x0, y0, x1, y1 = np.array(
      scene_lib.project_placement(scene.camera, thing, WIDTH / HEIGHT)
    ) * (WIDTH, HEIGHT, WIDTH, HEIGHT)
    row, column = round((y0 + y1) / 2), round((x0 + x1) / 2)
    changed = np.abs(pixels - without).max(axis=-1)
    middle = changed[row - 1 : row + 2, column - 1 : column + 2]
    assert np.median(middle) > 15
    # Above it no more changes than the grain of the shadows.
    assert changed[: math.floor(y0)].max(initial=0) < 10
  # A scene with fewer things after that shows none of them.
  with render.Renderer(WIDTH, HEIGHT) as fresh:
    np.testing.assert_array_equal(renderer.render(scene), fresh.render(scene))


def test_what_stands_on_the_ground_darkens_it_and_what_is_raised_does_not(
  renderer,
):
  light = {'azimuth': 0.0, 'elevation': 1.2, 'ambient': 0.9}
  scene = make_plain_scene(**light)
  ball = scene.placements[0]
  beside = dataclasses.replace(ball, x=0.9, scale=0.4)

  def measure(extra):
    full = dataclasses.replace(scene, extras=(extra,))
    # Just before where the thing touches the ground.
    at = np.array([[0.9, 0.0, 0.14]])
    x, y, _, _ = scene_lib.compute_box(scene.camera, at, WIDTH / HEIGHT)
    change = renderer.render(full).astype(int) - renderer.render(scene)
    return change[int(y * HEIGHT), int(x * WIDTH), 1]

  on_ground = measure(scene_lib.Extra(scene_lib.CLUTTER, beside))
  raised = dataclasses.replace(beside, y=3.0)
  in_the_air = measure(scene_lib.Extra(scene_lib.CLUTTER, raised))
  assert on_ground < in_the_air - 10
  assert abs(in_the_air) < 10


def test_ground_fills_the_picture_of_a_camera_that_is_turned_and_sees_wide(
  renderer,
):
  scene = make_plain_scene()
  for yaw in (-0.8, 0.8):
    camera = scene_lib.Camera((0.0, 2.5, 3.0), yaw, 0.8, 1.2)
    pixels = renderer.render(dataclasses.replace(scene, camera=camera))
    assert pixels[-1].max(axis=-1).min() > 60


def test_edges_are_smooth(renderer, monkeypatch):
  def count_partly_covered(renderer):
    change = compute_silhouette(renderer, make_plain_scene(), 0)
    return int(((change > 5) & (change < 0.3 * change.max())).sum())

  smooth = count_partly_covered(renderer)
  monkeypatch.setattr(render, '_SAMPLES', 0)
  with render.Renderer(WIDTH, HEIGHT) as rough:
    assert smooth > count_partly_covered(rough) + 15


@pytest.mark.parametrize(
  'colour,hue',
  [('red', (1, 0, 0)), ('green', (0, 1, 0)), ('blue', (0, 0, 1))],
)
def test_named_colour_looks_as_named(renderer, colour, hue):
  scene = repaint(make_plain_scene(), 0, colour)
  mask = compute_silhouette(renderer, scene, 0) > 90
  mean = renderer.render(scene)[mask].mean(axis=0)
  assert mean.argmax() == np.argmax(hue)
  assert mean.max() > 2 * np.median(mean)


def test_white_is_white_and_black_has_form(renderer):
  white, black = (
    renderer.render(
      repaint(make_plain_scene(colour=(1.0, 1.0, 1.0)), 0, colour)
    ).astype(int)
    for colour in ('white', 'black')
  )
  mask = compute_silhouette(renderer, make_plain_scene(), 0) > 90
  assert np.median(white[mask]) > 190
  assert np.ptp(np.median(white[mask], axis=0)) < 6
  assert np.median(black[mask]) < 80
  assert np.ptp(black[mask]) > 40  # Highlight and rim.


def test_second_colour_never_dominates(renderer):
  # A red body with a green pattern: most of what is drawn stays red.
  for pattern in ('two_tone', 'striped', 'checked', 'dotted'):
    shares = []
    for seed in range(8):
      scene = sample(seed, ('barrel',))
      obj = dataclasses.replace(
        scene.placements[0].object,
        colour='red',
        second_colour='green',
        pattern=pattern,
      )
      placement = dataclasses.replace(scene.placements[0], object=obj)
      scene = dataclasses.replace(scene, placements=(placement,))
      mask = compute_silhouette(renderer, scene, 0) > 90
      pixels = renderer.render(scene)[mask].astype(int)
      shares.append(np.mean(pixels[:, 1] > pixels[:, 0]))
    assert 0.08 < np.mean(shares) < 0.48, pattern


def test_mesh_larger_than_the_buffers(renderer, monkeypatch):
  scene = sample(5)
  expected = renderer.render(scene)
  monkeypatch.setattr(render, '_BUFFER_BYTES', 64)
  with render.Renderer(WIDTH, HEIGHT) as small:
    np.testing.assert_array_equal(small.render(scene), expected)


class SkinnedPack:
  """Paints a barrel with a texture of its own."""

  name = 'skinned'
  version = '1'
  types = ('barrel',)

  def __init__(self, part, texel):
    self.part = part
    self.textures = np.full((1, 2, 2, 4), texel, np.uint8)

  def sample_object(self, rng, **values):
    obj = PROCEDURAL.sample_object(rng, **values)
    return dataclasses.replace(obj, pack=self.name)

  def mesh(self, obj):
    mesh = PROCEDURAL.mesh(obj)
    uv = np.zeros_like(mesh.positions)
    uv[:, :2] = mesh.positions[:, :2]
    return dataclasses.replace(
      mesh,
      part=np.full_like(mesh.part, self.part),
      skin=Skin(uv, np.ones_like(mesh.positions), self.textures),
    )

  def attribute(self, objects):
    return ''


@pytest.fixture
def make_skinned(monkeypatch):
  """Makes the scene of a single barrel with a skin."""

  def make(part, texel):
    geometry.load_geometry.cache_clear()
    geometry.get_pack.cache_clear()
    monkeypatch.setitem(geometry.PACKS, 'skinned', SkinnedPack(part, texel))
    scene = sample(6, ('barrel',))
    [placement] = scene.placements
    obj = dataclasses.replace(placement.object, pack='skinned')
    return dataclasses.replace(
      scene, placements=(dataclasses.replace(placement, object=obj),)
    )

  yield make
  geometry.load_geometry.cache_clear()
  geometry.get_pack.cache_clear()


def test_own_texture_is_shown_whatever_the_colour(renderer, make_skinned):
  scene = make_skinned(Part.OWN, (255, 60, 0, 255))
  assert compute_silhouette(renderer, scene, 0).max() == 0
  mask = compute_silhouette(renderer, sample(6, ('barrel',)), 0) > 60
  red, green, blue = renderer.render(scene)[mask].mean(axis=0)
  # The root of the linear value is 60 / 255: 0.055, which is 65 in sRGB.
  assert red > 130 and green < 100 and blue < 60


def test_texture_shades_the_named_colour(renderer, make_skinned):
  pictures = [
    renderer.render(
      repaint(make_skinned(Part.BODY, (level,) * 3 + (255,)), 0, 'green')
    ).astype(int)
    for level in (255, 128)
  ]
  mask = compute_silhouette(renderer, sample(6, ('barrel',)), 0) > 60
  light, dark = (picture[mask].mean(axis=0) for picture in pictures)
  assert light.argmax() == dark.argmax() == 1
  assert light[1] > 1.4 * dark[1]


def test_holes_of_a_texture_show_what_is_behind(renderer, make_skinned):
  scene = make_skinned(Part.BODY, (255, 255, 255, 0))
  assert compute_silhouette(renderer, scene, 0).max() == 0


def test_skin_leaves_nothing_behind(renderer, make_skinned):
  plain = sample(7)
  expected = renderer.render(plain)
  skinned = make_skinned(Part.BODY, (99, 99, 99, 255))
  first = renderer.render(skinned)
  np.testing.assert_array_equal(renderer.render(plain), expected)
  np.testing.assert_array_equal(renderer.render(skinned), first)


def test_closed_renderer_says_so():
  renderer = render.Renderer(WIDTH, HEIGHT)
  renderer.close()
  renderer.close()
  with pytest.raises(ValueError, match='closed'):
    renderer.render(sample(0))


def test_missing_driver_names_the_packages(monkeypatch):
  def fail(**_):
    raise Exception('libEGL.so\nnot loaded')

  monkeypatch.setattr(moderngl, 'create_context', fail)
  with pytest.raises(errors.DataError) as caught:
    render.Renderer(WIDTH, HEIGHT)
  message = str(caught.value)
  assert '\n' not in message
  for package in ('libegl1', 'libegl-mesa0', 'libgl1-mesa-dri'):
    assert package in message


def test_printed_objects_are_drawn_in_a_moment():
  # Mesa's anisotropic filter once walked for ever over the labels of these.
  program = (
    'from vhop_jax.worlds import render_pool, splits\n'
    "spec = splits.choose_splits('l6_test_w1', resolution=96)['l6_test_w1']\n"
    'render_pool.make_families((spec, 43, 44, True))\n'
  )
  # A second or two; the limit only ends what would not.
  subprocess.run([sys.executable, '-c', program], check=True, timeout=120)

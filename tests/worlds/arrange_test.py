"""Tests where objects stand, from numbers alone."""

import math

import numpy as np
import pytest

from vhop_jax.worlds import arrange, visibility
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets.procedural import PROCEDURAL
from vhop_jax.worlds.assets.stands import STANDS


def sample(seed, count=2, **style):
  rng = np.random.default_rng(seed)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(count)]
  return arrange.sample_scene(rng, objects, arrange.Style(**style))


def sample_many(count, **style):
  return [sample(seed, **style) for seed in range(count)]


def compute_ground(scene):
  """Returns how far right and how far away the objects stand [n, 2]."""
  yaw = scene.camera.yaw
  axes = [[math.cos(yaw), -math.sin(yaw)], [-math.sin(yaw), -math.cos(yaw)]]
  points = np.array([(p.x, p.z) for p in scene.placements])
  return points @ np.array(axes).T


@pytest.mark.parametrize('seed', range(60))
def test_objects_are_in_the_frame_apart_and_large(seed):
  count = 1 if seed % 5 == 0 else 2
  boxes = np.array(scene_lib.project(sample(seed, count)))
  assert boxes.shape == (count, 4)
  assert (boxes[:, :2] > 0).all() and (boxes[:, 2:] < 1).all()
  if count == 2:
    assert boxes[1, 0] - boxes[0, 2] > 0.005
  wide, tall = (boxes[:, 2:] - boxes[:, :2]).T
  # A flat or lying thing is large by its width.
  assert np.maximum(tall, wide).min() > 0.25
  assert tall.max() < 0.8


def test_outline_that_places_is_the_mesh_that_is_drawn():
  # The few points that placement projects span nearly the box of all points.
  for seed in range(20):
    scene = sample(seed)
    for placement, box in zip(
      scene.placements, scene_lib.project(scene), strict=True
    ):
      geometry = scene_lib.load_geometry(placement.object)
      points = scene_lib.place_points(placement, geometry.extremes)
      outline = scene_lib.compute_box(scene.camera, points)
      np.testing.assert_allclose(outline, box, atol=0.03)


def test_views_of_an_object_differ():
  rng = np.random.default_rng(0)
  obj = PROCEDURAL.sample_object(rng, uid='a')
  scenes = [arrange.sample_scene(rng, [obj]) for _ in range(40)]
  turns = [scene.placements[0].yaw for scene in scenes]
  # Every eighth of the full turn occurs.
  assert set(np.floor(np.array(turns) / (math.pi / 4)).astype(int)) == set(
    range(8)
  )
  assert np.ptp([scene.camera.pitch for scene in scenes]) > 0.3
  assert np.ptp([scene.light.azimuth for scene in scenes]) > 1.5
  boxes = np.array([scene_lib.project(scene)[0] for scene in scenes])
  assert np.ptp(boxes[:, 0]) > 0.3


def test_three_objects_are_refused():
  with pytest.raises(ValueError, match='one or two objects, not 3'):
    sample(0, count=3)


def test_side_by_side_objects_are_neither_hidden_nor_one_above_the_other():
  for variation in ('standard', 'strong'):
    for scene in sample_many(40, variation=variation):
      nearness = visibility.draw_nearness(scene.camera, scene.placements)
      assert not any(
        visibility.compute_hidden_frac(nearness, i) for i in (0, 1)
      )
      boxes = np.array(scene_lib.project(scene)) * (1.5, 1, 1.5, 1)
      right, down = np.diff((boxes[:, :2] + boxes[:, 2:]) / 2, axis=0)[0]
      assert right > abs(down)


@pytest.mark.parametrize('variation', ['standard', 'strong'])
def test_first_of_depth_is_nearer_and_before_the_second(variation):
  sides = []
  for scene in sample_many(25, relations='depth', variation=variation):
    (right_1, away_1), (right_2, away_2) = compute_ground(scene)
    # On the ground the line between them lies within 31 degrees of the view.
    assert 0 < abs(right_1 - right_2) < 0.6 * (away_2 - away_1)
    sides.append(right_1 > right_2)
    first, second = scene_lib.project(scene)
    assert first[3] > second[3]  # Lower in the picture.
    assert min(first[2], second[2]) > max(first[0], second[0])
    assert not scene.extras
  assert 5 < sum(sides) < 20  # To either side alike.


@pytest.mark.parametrize('variation', ['standard', 'strong'])
def test_first_of_height_stands_on_a_stand_above_the_second(variation):
  materials = set()
  for scene in sample_many(25, relations='height', variation=variation):
    upper, lower = scene.placements
    [stand] = scene.extras
    assert (stand.role, stand.placement.object.pack) == ('support', STANDS.name)
    materials.add(stand.placement.object.type)
    heights = [
      scene_lib.place_points(
        thing, scene_lib.load_geometry(thing.object).positions
      )[:, 1]
      for thing in (upper, lower, stand.placement)
    ]
    assert heights[0].min() == pytest.approx(heights[2].max(), abs=1e-4)
    assert heights[1].max() < heights[0].min() - 0.05
    assert heights[1].min() == heights[2].min() == 0
    assert (upper.x, upper.z) == (lower.x, lower.z)
    first, second = scene_lib.project(scene)
    assert first[1] + first[3] < second[1] + second[3]
  assert len(materials) > 2


@pytest.mark.parametrize('relations', ['depth', 'height'])
def test_little_of_either_object_is_hidden(relations):
  shares = []
  for scene in sample_many(25, relations=relations, variation='strong'):
    nearness = visibility.draw_nearness(scene.camera, scene.list_things())
    shares += [visibility.compute_hidden_frac(nearness, i) for i in (0, 1)]
  assert 0.02 < max(shares) <= arrange.MAX_HIDDEN_FRAC


@pytest.mark.parametrize('relations', ['sides', 'depth', 'height'])
def test_strong_variation_keeps_the_objects_in_the_frame(relations):
  for scene in sample_many(25, relations=relations, variation='strong'):
    boxes = np.array(scene_lib.project(scene))
    assert boxes.min() > 0 and boxes.max() < 1


def test_strong_variation_varies_more():
  plain, strong = (
    sample_many(60, variation=variation) for variation in ('standard', 'strong')
  )
  for part, name, factor in (
    ('camera', 'yaw', 1.3),
    ('camera', 'pitch', 1.3),
    ('camera', 'fov', 1.5),
    ('light', 'elevation', 1.3),
    ('light', 'ambient', 1.7),
  ):
    spread = [
      np.ptp([getattr(getattr(scene, part), name) for scene in scenes])
      for scenes in (plain, strong)
    ]
    assert spread[1] > factor * spread[0], name
  warmth = [
    np.ptp([s.light.colour[0] - s.light.colour[2] for s in scenes])
    for scenes in (plain, strong)
  ]
  assert warmth[1] > 2 * warmth[0]
  assert max(s.light.softness for s in strong) <= 0.03
  for scene in strong:
    assert scene.background.wall_distance > 0
    textures = {scene.background.ground.texture, scene.background.wall.texture}
    assert not textures & {'plain', 'gradient'}


def test_room_is_left_in_front():
  for seed in range(20):
    boxes = scene_lib.project(sample(seed, has_foreground=True))
    assert max(box[3] for box in boxes) < 0.86

import json
import math

import numpy as np
import pytest

from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets.procedural import PROCEDURAL


def sample(seed, count=2):
  rng = np.random.default_rng(seed)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(count)]
  return scene_lib.sample_scene(rng, objects)


def test_box_of_a_point_by_hand():
  # 5 in front of the eye, 1 to the right and 1 up; half the view's height is
  # 5 tan 45 deg = 5 there. So it is 1/10 of the height above the middle, and
  # 1/15 of the width right of it.
  camera = scene_lib.Camera((0.0, 0.0, 5.0), 0.0, 0.0, math.pi / 2)
  box = scene_lib.compute_box(camera, np.array([[1.0, 1.0, 0.0]]), aspect=1.5)
  np.testing.assert_allclose(box, [0.5 + 1 / 15, 0.4] * 2)


def test_camera_turns_left_and_down():
  # A quarter turn to the left looks along -x; then -z is at its right.
  camera = scene_lib.Camera((0.0, 0.0, 0.0), math.pi / 2, 0.0, 1.0)
  np.testing.assert_allclose(
    camera.compute_axes(), [[0, 0, -1], [0, 1, 0], [-1, 0, 0]], atol=1e-12
  )
  pitch = math.radians(30)
  forward = scene_lib.Camera((0.0, 0.0, 0.0), 0.0, pitch, 1.0).compute_axes()[2]
  np.testing.assert_allclose(forward, [0, -0.5, -math.sqrt(3) / 2])


def test_object_turns_counter_clockwise_seen_from_above():
  obj = PROCEDURAL.sample_object(np.random.default_rng(0), uid='a')
  placement = scene_lib.Placement(obj, 10.0, 20.0, math.pi / 2, 2.0)
  # To the right becomes away from the viewer, twice as long, then shifted.
  np.testing.assert_allclose(
    scene_lib.place_points(placement, np.array([[1.0, 3.0, 0.0]])),
    [[10, 6, 18]],
  )


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
  scenes = [scene_lib.sample_scene(rng, [obj]) for _ in range(40)]
  turns = [scene.placements[0].yaw for scene in scenes]
  # Every eighth of the full turn occurs.
  assert set(np.floor(np.array(turns) / (math.pi / 4)).astype(int)) == set(
    range(8)
  )
  assert np.ptp([scene.camera.pitch for scene in scenes]) > 0.3
  assert np.ptp([scene.light.azimuth for scene in scenes]) > 1.5
  boxes = np.array([scene_lib.project(scene)[0] for scene in scenes])
  assert np.ptp(boxes[:, 0]) > 0.3


def test_json_keeps_every_byte():
  scene = sample(3)
  text = json.dumps(scene.to_json())
  again = scene_lib.Scene.from_json(json.loads(text))
  assert again == scene
  assert json.dumps(again.to_json()) == text


def test_numbers_have_six_digits():
  def walk(value):
    if isinstance(value, dict):
      value = list(value.values())
    if isinstance(value, list):
      for entry in value:
        yield from walk(entry)
    elif isinstance(value, float):
      yield value

  values = sample(4).to_json()
  for placement in values['placements']:
    del placement['object']
  numbers = list(walk(values))
  assert len(numbers) > 40
  assert all(type(x) is float and round(x, 6) == x for x in numbers)


def test_same_generator_gives_the_same_scene():
  assert sample(5) == sample(5)
  assert sample(5) != sample(6)


def test_three_objects_are_refused():
  with pytest.raises(ValueError, match='one or two objects, not 3'):
    sample(0, count=3)

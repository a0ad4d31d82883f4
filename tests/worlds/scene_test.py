import dataclasses
import json
import math

import numpy as np

from vhop_jax.worlds import arrange
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets.procedural import PROCEDURAL


def sample(seed, count=2):
  rng = np.random.default_rng(seed)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(count)]
  return arrange.sample_scene(rng, objects)


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


def test_raised_object_stands_higher():
  obj = PROCEDURAL.sample_object(np.random.default_rng(0), uid='a')
  placement = scene_lib.Placement(obj, 0.0, 0.0, 0.0, 2.0, 5.0)
  np.testing.assert_allclose(
    scene_lib.place_points(placement, np.array([[1.0, 3.0, 0.0]])), [[2, 11, 0]]
  )


def test_plain_scene_says_nothing_of_heights_and_extras():
  # So that the text, and the fingerprint, of a plain world stays what it was.
  values = sample(3).to_json()
  assert set(values) == {'placements', 'camera', 'light', 'background'}
  assert set(values['placements'][0]) == {'object', 'x', 'z', 'yaw', 'scale'}


def test_json_keeps_heights_and_extras():
  scene = sample(3)
  raised = dataclasses.replace(scene.placements[0], y=0.5)
  scene = dataclasses.replace(
    scene,
    placements=(raised, scene.placements[1]),
    extras=(scene_lib.Extra(scene_lib.CLUTTER, scene.placements[1]),),
  )
  again = scene_lib.Scene.from_json(json.loads(json.dumps(scene.to_json())))
  assert again == scene
  assert again.list_things() == [*scene.placements, scene.placements[1]]

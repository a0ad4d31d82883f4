"""Tests what stands in a picture beside the linked objects."""

import types

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import arrange, extras, visibility
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets.procedural import PROCEDURAL


def sample(seed, count=2, *, foreground=False, clutter=0, **style):
  rng, things_rng, places_rng = np.random.default_rng(seed).spawn(3)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(count)]
  return extras.sample_scene(
    rng,
    objects,
    arrange.Style(has_foreground=foreground, has_clutter=clutter > 0, **style),
    places_rng,
    extras.sample_objects(
      things_rng,
      PROCEDURAL,
      uid='x',
      foreign_to=objects,
      foreground=foreground,
      clutter=clutter,
    ),
  )


def measure(scene):
  """Returns the boxes of all things in heights of the picture [n, 4]."""
  return np.array(
    [
      scene_lib.project_placement(scene.camera, thing)
      for thing in scene.list_things()
    ]
  ) * (1.5, 1, 1.5, 1)


def compute_hidden(scene, thing, others=None):
  nearness = visibility.draw_nearness(scene.camera, scene.list_things())
  return visibility.compute_hidden_frac(nearness, thing, others)


def test_without_extras_the_scene_is_the_plain_one():
  rng = np.random.default_rng(7)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(2)]
  state = rng.bit_generator.state
  plain = arrange.sample_scene(rng, objects)
  rng.bit_generator.state = state
  full = extras.sample_scene(
    rng, objects, arrange.Style(), np.random.default_rng(0), []
  )
  assert full == plain


@pytest.mark.parametrize('relations', ['sides', 'depth', 'height'])
def test_foreground_is_small_low_in_the_picture_and_hides_little(relations):
  places = []
  for seed in range(12):
    count = 1 + (seed % 4 > 0)
    scene = sample(seed, count, foreground=True, relations=relations)
    assert [e.role for e in scene.extras][-1] == 'foreground'
    boxes = measure(scene)
    sizes = (boxes[:, 2:] - boxes[:, :2]).sum(axis=1)
    assert sizes[-1] < 0.55 * sizes[:count].min()
    assert 0.84 < boxes[-1, 3] < 1
    assert 0 < boxes[-1, 0] and boxes[-1, 2] < 1.5
    places.append(boxes[-1, 0])
    last = len(boxes) - 1
    for thing in range(count):
      assert compute_hidden(scene, thing, [last]) <= 0.15
    assert compute_hidden(scene, last) < 0.05
  assert np.ptp(places) > 0.7


@pytest.mark.parametrize('relations', ['sides', 'depth', 'height'])
def test_clutter_is_smaller_whole_and_stands_free(relations):
  for seed in range(6):
    count = 1 + (seed % 3 > 0)
    scene = sample(seed, count, clutter=4, relations=relations)
    assert [e.role for e in scene.extras][-4:] == ['clutter'] * 4
    boxes = measure(scene)
    sizes = (boxes[:, 2:] - boxes[:, :2]).sum(axis=1)
    assert sizes[-4:].max() < 0.55 * sizes[:count].min()
    assert boxes.min() > 0 and (boxes[:, 2:].max(axis=0) < (1.5, 1)).all()
    for thing in range(count):
      assert compute_hidden(scene, thing) < 0.3
    things = scene.list_things()
    for thing in range(len(things) - 4, len(things)):
      assert compute_hidden(scene, thing) < 0.5
      gaps = [
        np.hypot(things[thing].x - other.x, things[thing].z - other.z)
        for other in things
        if other is not things[thing]
      ]
      assert min(gaps) > 0.1


def test_wall_stands_behind_everything():
  for seed in range(8):
    scene = sample(seed, clutter=3, variation='strong')
    for thing in scene.list_things():
      points = scene_lib.place_points(
        thing, scene_lib.load_geometry(thing.object).positions
      )
      assert points[:, 2].min() > -scene.background.wall_distance - 0.02


def test_extras_are_of_other_types_and_have_their_own_names():
  linked = [
    PROCEDURAL.sample_object(np.random.default_rng(0), uid='a', type=name)
    for name in PROCEDURAL.types[:-1]
  ]
  made = extras.sample_objects(
    np.random.default_rng(0),
    PROCEDURAL,
    uid='w/f0/a1',
    foreign_to=linked,
    foreground=True,
    clutter=2,
  )
  assert [role for role, _ in made] == ['foreground', 'clutter', 'clutter']
  assert {obj.type for _, obj in made} == {PROCEDURAL.types[-1]}
  uids = {obj.uid for _, obj in made}
  assert len(uids) == 3
  assert all(uid.startswith('w/f0/a1/') for uid in uids)


def test_pack_without_another_type_is_refused():
  obj = PROCEDURAL.sample_object(np.random.default_rng(0), uid='a')
  pack = types.SimpleNamespace(name='small', types=(obj.type,))
  with pytest.raises(errors.UsageError, match="'small' has too few types"):
    extras.sample_objects(
      np.random.default_rng(0),
      pack,
      uid='x',
      foreign_to=[obj],
      foreground=True,
      clutter=0,
    )

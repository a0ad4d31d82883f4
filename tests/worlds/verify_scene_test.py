"""Builds worlds of each kind, then moves things about: each must be noticed."""

import dataclasses
import types

import numpy as np
import pytest

from vhop_jax.worlds import builder, verify, verify_scene
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds import world as world_lib


@pytest.fixture(scope='module')
def make(pool):
  """Returns a function that makes a small world, once for each spec."""
  made = {}

  def make(**values):
    spec = world_lib.Spec(**{'level': 4, 'families': 3, 'seed': 8} | values)
    if spec not in made:
      made[spec] = builder.make_world(spec, pool)
    return made[spec]

  return make


def find_position(world, count=2):
  """Returns the position of the first image of so many linked objects."""
  return next(
    i for i, image in enumerate(world.images) if len(image.objects) == count
  )


def change(world, position, change_scene=None, **values):
  """Returns what rules are broken when one image is changed."""
  image = world.images[position]
  if change_scene is not None:
    scene = change_scene(scene_lib.Scene.from_json(image.scene))
    values['scene'] = scene.to_json()
  images = list(world.images)
  images[position] = dataclasses.replace(image, **values)
  breaches = verify.verify_world(
    dataclasses.replace(world, images=tuple(images))
  )
  return {breach.rule for breach in breaches if breach.where == image.id}


def move(index, **values):
  """Returns a function that changes a linked object's placement."""

  def apply(scene):
    placements = list(scene.placements)
    placements[index] = dataclasses.replace(placements[index], **values)
    return dataclasses.replace(scene, placements=tuple(placements))

  return apply


def move_extra(**values):
  """Returns a function that changes the last extra's placement."""

  def apply(scene):
    last = scene.extras[-1]
    placement = dataclasses.replace(last.placement, **values)
    extra = dataclasses.replace(last, placement=placement)
    return dataclasses.replace(scene, extras=(*scene.extras[:-1], extra))

  return apply


def get_scene(world, position):
  return scene_lib.Scene.from_json(world.images[position].scene)


@pytest.mark.parametrize('prompt', ['precise', 'vague'])
@pytest.mark.parametrize(
  'values',
  [
    {'relations': 'depth'},
    {'relations': 'height'},
    {'foreground': True},
    {'relations': 'depth', 'foreground': True, 'variation': 'strong'},
    {'relations': 'height', 'clutter': 2, 'families': 2},
    {'clutter': 4, 'foreground': True, 'variation': 'strong', 'families': 1},
  ],
)
def test_built_worlds_keep_every_rule(make, values, prompt):
  world = make(**values, prompt=prompt)
  assert verify.verify_world(world) == []
  first = verify.RELATIONS[world.spec.relations][0]
  assert f'0_{first}' in {query.id for query in world.queries}


@pytest.mark.parametrize('relations', ['sides', 'depth', 'height'])
def test_record_in_the_other_order_is_noticed(make, relations):
  world = make(relations=relations)
  position = find_position(world)
  objects = world.images[position].objects[::-1]
  assert 'order' in change(world, position, objects=objects)


@pytest.mark.parametrize('relations', ['sides', 'depth', 'height'])
def test_order_of_the_placements_does_not_matter(make, relations):
  world = make(relations=relations)

  def turn_round(scene):
    return dataclasses.replace(scene, placements=scene.placements[::-1])

  assert change(world, find_position(world), turn_round) == set()


def test_objects_that_stand_otherwise_than_the_spec_says_are_noticed(make):
  for kind, other in (
    ('sides', 'depth'),
    ('depth', 'height'),
    ('height', 'depth'),
  ):
    world = make(relations=kind)
    spec = dataclasses.replace(world.spec, relations=other)
    breaches = verify.verify_world(dataclasses.replace(world, spec=spec))
    pairs = [i.id for i in world.images if len(i.objects) == 2]
    seen = {b.where for b in breaches if b.rule in ('order', 'apart')}
    assert seen >= set(pairs), kind


def test_one_above_the_other_is_not_beside_it(make):
  world = make()
  position = find_position(world)
  left, right = get_scene(world, position).placements
  x, z = (left.x + right.x) / 2, (left.z + right.z) / 2
  shift = {'x': x + 0.1 * (right.x - left.x), 'z': z}
  assert 'apart' in change(world, position, move(1, y=1.5, **shift))


def test_nearer_object_beside_the_other_is_not_in_front(make):
  world = make(relations='depth')
  position = find_position(world)
  camera = get_scene(world, position).camera
  front = get_scene(world, position).placements[0]
  right = camera.compute_axes()[0]
  moved = {'x': front.x + 1.6 * right[0], 'z': front.z + 1.6 * right[2]}
  other = {'x': front.x - 1.6 * right[0], 'z': front.z - 1.6 * right[2]}
  for values in (moved, other):
    assert 'apart' in change(world, position, move(0, **values))


def test_object_on_top_stands_on_something_straight_above(make):
  world = make(relations='height')
  position = find_position(world)
  upper = get_scene(world, position).placements[0]
  higher = move(0, y=upper.y + 0.1)
  assert change(world, position, higher) == {'extras'}
  lower = move(0, y=upper.y - 0.1)
  assert change(world, position, lower) & {'extras', 'order'}
  right = get_scene(world, position).camera.compute_axes()[0]
  aside = move(0, x=upper.x + right[0], z=upper.z + right[2])
  assert 'apart' in change(world, position, aside)
  gone = change(
    world, position, lambda scene: dataclasses.replace(scene, extras=())
  )
  assert gone == {'extras'}


def test_object_hidden_behind_the_other_is_noticed(make):
  world = make(relations='depth')
  position = find_position(world)
  scene = get_scene(world, position)
  front, back = scene.placements
  eye = np.array(scene.camera.eye)
  # Half way from the one behind to the eye, and as large as before.
  middle = 0.6 * np.array([back.x, 0, back.z]) + 0.4 * eye
  hidden = move(0, x=middle[0], z=middle[2], scale=1.5 * front.scale)
  assert 'hidden' in change(world, position, hidden)


def test_object_out_of_the_frame_is_noticed(make):
  world = make()

  def zoom(scene):
    camera = dataclasses.replace(scene.camera, fov=0.6 * scene.camera.fov)
    return dataclasses.replace(scene, camera=camera)

  for count in (1, 2):
    assert 'frame' in change(world, find_position(world, count), zoom)


@pytest.mark.parametrize('count', [1, 2])
def test_each_image_has_the_extras_of_the_spec(make, count):
  world = make(foreground=True, clutter=2)
  position = find_position(world, count)

  def drop(scene):
    return dataclasses.replace(scene, extras=scene.extras[:-1])

  def rename(scene):
    extras = [
      dataclasses.replace(extra, role='clutter') for extra in scene.extras
    ]
    return dataclasses.replace(scene, extras=tuple(extras))

  assert change(world, position, drop) == {'extras'}
  assert change(world, position, rename) == {'extras'}
  # What no link is about is nobody's object.
  spec = dataclasses.replace(world.spec, foreground=False, clutter=0)
  breaches = verify.verify_world(dataclasses.replace(world, spec=spec))
  assert {b.where for b in breaches} == {image.id for image in world.images}


def test_extra_is_in_no_other_image(make):
  world = make(foreground=True)
  position = find_position(world)
  image, other = world.images[position], world.images[position + 1]
  extra = get_scene(world, position + 1).extras[0].placement.object
  again = change(world, position, move_extra(object=extra))
  # The second of the two images is where it is noticed.
  breaches = verify.verify_world(
    dataclasses.replace(
      world,
      images=tuple(
        dataclasses.replace(
          i, scene=move_extra(object=extra)(get_scene(world, p)).to_json()
        )
        if p == position
        else i
        for p, i in enumerate(world.images)
      ),
    )
  )
  assert ('extras', other.id) in {(b.rule, b.where) for b in breaches}
  assert again <= {'extras', 'hidden'}
  # Nor is it a linked object, or a double of one.
  linked = image.objects[0]
  assert 'extras' in change(world, position, move_extra(object=linked))
  double = dataclasses.replace(linked, uid='double')
  assert 'objects' in change(world, position, move_extra(object=double))


def test_extra_of_a_familys_type_is_noticed(make):
  world = make(foreground=True)
  position = find_position(world)
  linked = world.images[position].objects[0]
  alike = dataclasses.replace(
    linked, uid='alike', shape=tuple(1 - v for v in linked.shape)
  )
  assert 'extras' in change(world, position, move_extra(object=alike))


def test_extra_is_small_apart_and_seen(make):
  world = make(clutter=2)
  position = find_position(world)
  scene = get_scene(world, position)
  extra = scene.extras[-1].placement
  large = move_extra(scale=2.5 * extra.scale)
  assert 'extras' in change(world, position, large)
  linked = scene.placements[0]
  eye = np.array(scene.camera.eye)
  behind = np.array([linked.x, 0.2, linked.z])
  behind += 0.5 * (behind - eye)
  hidden = move_extra(x=behind[0], z=behind[2])
  assert 'extras' in change(world, position, hidden)


def test_foreground_stands_in_front(make):
  world = make(foreground=True)
  position = find_position(world)
  scene = get_scene(world, position)
  towards = scene.camera.compute_axes()[2] * (1, 0, 1)
  extra = scene.extras[-1].placement
  far = {'x': extra.x + 6 * towards[0], 'z': extra.z + 6 * towards[2]}
  assert 'extras' in change(world, position, move_extra(**far))


def test_large_thing_in_front_hides_too_much(make):
  world = make(foreground=True)
  position = find_position(world)
  scene = get_scene(world, position)
  linked, extra = scene.placements[0], scene.extras[-1].placement
  eye = np.array(scene.camera.eye)
  before = 0.6 * np.array([linked.x, 0, linked.z]) + 0.4 * eye
  wide = move_extra(x=before[0], z=before[2], scale=6 * extra.scale)
  assert 'hidden' in change(world, position, wide)


def test_scene_that_cannot_be_read_is_named(make):
  world = make(foreground=True)
  position = find_position(world)
  scene = dict(world.images[position].scene)
  for broken in (
    {**scene, 'extras': [{'role': 'clutter'}]},
    {key: value for key, value in scene.items() if key != 'light'},
  ):
    assert change(world, position, scene=broken) == {'order'}


@pytest.mark.parametrize(
  ('order', 'rules'), [((0, 1), []), ((1, 0), ['order'])]
)
def test_middle_of_an_object_decides_what_is_left(order, rules):
  # x0, y0, x1, y1: a wide object that reaches out beyond a narrow one on both
  # sides, its middle at 0.3; that of the narrow one is at 0.4.
  boxes = np.array([(0.0, 0.8, 0.6, 0.9), (0.35, 0.75, 0.45, 0.95)])
  view = types.SimpleNamespace(boxes=boxes)
  assert [rule for rule, _ in verify_scene._check_sides(view, *order)] == rules

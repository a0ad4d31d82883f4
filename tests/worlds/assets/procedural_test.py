"""Tests the types of the procedural pack, each by its own mesh."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.worlds.assets.mesh_checks import (
  compute_flipped_frac,
  compute_visible_fracs,
)
from vhop_jax.errors import UsageError
from vhop_jax.worlds.assets import Mesh, Part
from vhop_jax.worlds.assets.procedural import (
  PROCEDURAL,
  SECOND_COLOURS,
  TYPES,
)
from vhop_jax.worlds.objects import (
  COLOURS,
  GEOMETRY_PARAMETERS,
  PATTERN_PARAMETERS,
  PATTERNS,
  SHAPE_PARAMETERS,
  Object,
)

_MIDDLE = (0.5,) * SHAPE_PARAMETERS


def make_object(type_name: str, shape: tuple[float, ...] = _MIDDLE) -> Object:
  """Makes a plain object of a type."""
  return Object('0', type_name, 'red', 'white', 'plain', shape)


def make_meshes(type_name: str) -> list[Mesh]:
  """Makes a type's meshes with every corner of the geometry's parameters."""
  return [
    PROCEDURAL.mesh(
      make_object(type_name, (0.5,) * PATTERN_PARAMETERS + corner)
    )
    for corner in itertools.product((0.0, 1.0), repeat=GEOMETRY_PARAMETERS)
  ]


def test_there_are_many_types():
  assert len(PROCEDURAL.types) >= 40
  assert PROCEDURAL.types == tuple(TYPES)


@pytest.mark.parametrize('type_name', TYPES)
def test_mesh_is_sound(type_name):
  for mesh in make_meshes(type_name):
    assert mesh.positions.dtype == mesh.normals.dtype == np.float32
    assert (mesh.part.dtype, mesh.faces.dtype) == (np.uint8, np.uint32)
    assert mesh.positions.shape == mesh.normals.shape
    assert mesh.part.shape == mesh.positions.shape[:1]
    assert np.isfinite(mesh.positions).all()
    # Stands on the ground, centred, of largest extent 1.
    low, high = mesh.positions.min(0), mesh.positions.max(0)
    assert low[1] == pytest.approx(0, abs=1e-6)
    assert low[[0, 2]] == pytest.approx(-high[[0, 2]], abs=1e-6)
    assert (high - low).max() == pytest.approx(1, abs=1e-6)
    lengths = np.linalg.norm(mesh.normals, axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    assert mesh.faces.max() < len(mesh.positions)
    assert len(mesh.faces) <= 2500
    assert set(np.unique(mesh.part)) <= set(Part)


@pytest.mark.parametrize('type_name', TYPES)
def test_normals_agree_with_faces(type_name):
  mesh = PROCEDURAL.mesh(make_object(type_name))
  flipped = compute_flipped_frac(mesh.positions, mesh.normals, mesh.faces)
  # Tight bends of a thick tube fold a little.
  assert flipped < 0.005


@pytest.mark.parametrize('type_name', TYPES)
def test_body_dominates_what_is_seen(type_name):
  meshes = make_meshes(type_name)
  fracs = [compute_visible_fracs(meshes[i]) for i in (0, 10, 15)]
  body, trim = np.array(fracs)[:, [Part.BODY, Part.TRIM]].T
  assert body.mean() > 0.58
  assert body.min() > 0.54
  # A pattern paints up to a third of the body, so that 2/3 of it against 1/3
  # and the trim leaves the named colour ahead if trim < body / 3.
  assert trim.mean() < 0.34 * body.mean()


@pytest.mark.parametrize('type_name', TYPES)
@pytest.mark.parametrize('parameter', range(GEOMETRY_PARAMETERS))
def test_each_parameter_changes_the_mesh(type_name, parameter):
  index = PATTERN_PARAMETERS + parameter
  low, high = (
    PROCEDURAL.mesh(
      make_object(type_name, (*_MIDDLE[:index], value, *_MIDDLE[index + 1 :]))
    ).positions
    for value in (0.0, 1.0)
  )
  # Another number of pieces, or vertices elsewhere by more than a pixel at
  # 96 pixels, where an object measures about 40.
  assert len(low) != len(high) or np.abs(low - high).max() > 0.025


@pytest.mark.parametrize('type_name', TYPES)
def test_only_type_and_geometry_matter_for_the_mesh(type_name):
  obj = make_object(type_name)
  mesh = PROCEDURAL.mesh(obj)
  painted = dataclasses.replace(
    obj,
    uid='1',
    colour='blue',
    pattern='striped',
    shape=(0.1, 0.9, *obj.shape[PATTERN_PARAMETERS:]),
  )
  again = PROCEDURAL.mesh(painted)
  for field in dataclasses.fields(Mesh):
    np.testing.assert_array_equal(
      getattr(mesh, field.name), getattr(again, field.name)
    )


def test_types_have_different_meshes():
  # Compares how much of each cell of a coarse grid the vertices' hulls fill.
  seen = {}
  for name in TYPES:
    mesh = PROCEDURAL.mesh(make_object(name))
    cells = np.floor(mesh.positions * 6).astype(int)
    key = frozenset(map(tuple, cells.tolist()))
    assert key not in seen, f'{name} fills the same space as {seen[key]}'
    seen[key] = name


def test_sampling_is_determined_by_the_generator():
  first, second = (
    [
      PROCEDURAL.sample_object(rng, uid=str(i))
      for rng in [np.random.default_rng(3)]
      for i in range(5)
    ]
    for _ in range(2)
  )
  assert first == second
  assert len({obj.shape for obj in first}) == 5


def test_sampling_reaches_everything():
  rng = np.random.default_rng(0)
  objects = [PROCEDURAL.sample_object(rng, uid='0') for _ in range(2000)]
  assert {obj.type for obj in objects} == set(TYPES)
  assert {obj.colour for obj in objects} == set(COLOURS)
  assert {obj.second_colour for obj in objects} == set(COLOURS)
  assert {obj.pattern for obj in objects} == set(PATTERNS)
  for obj in objects:
    assert obj.second_colour in SECOND_COLOURS[obj.colour]
    assert len(obj.shape) == SHAPE_PARAMETERS
    assert min(obj.shape) >= 0 and max(obj.shape) <= 1


def test_fixing_type_and_colour_leaves_the_rest_alone():
  free = PROCEDURAL.sample_object(np.random.default_rng(4), uid='0')
  fixed = PROCEDURAL.sample_object(
    np.random.default_rng(4), uid='0', type='duck', colour=free.colour
  )
  assert fixed == dataclasses.replace(free, type='duck')


def test_second_colour_differs():
  for colour, others in SECOND_COLOURS.items():
    assert colour not in others
    assert len(others) >= 4


@pytest.mark.parametrize(
  ('wanted', 'message'),
  [
    ({'type': 'unicorn'}, "unknown type 'unicorn'"),
    ({'colour': 'beige'}, "unknown colour 'beige'"),
  ],
)
def test_unknown_wishes_are_refused(wanted, message):
  with pytest.raises(UsageError, match=message):
    PROCEDURAL.sample_object(np.random.default_rng(0), uid='0', **wanted)


def test_mesh_of_unknown_type_is_refused():
  with pytest.raises(UsageError, match="object 0 .* 'unicorn'"):
    PROCEDURAL.mesh(make_object('unicorn'))


@pytest.mark.parametrize('type_name', TYPES)
def test_look_alike_differs_in_the_one_thing_it_names(type_name):
  thing = make_object(type_name, (0.3,) * SHAPE_PARAMETERS)
  changes = set()
  for seed in range(6):
    twin = PROCEDURAL.sample_twin(
      np.random.default_rng(seed), thing, uid='twin'
    )
    changes.add(twin.change)
    shape = [a != b for a, b in zip(thing.shape, twin.shape, strict=True)]
    if twin.change == 'trim':
      assert not any(shape)
      assert twin.second_colour not in (thing.second_colour, thing.colour)
    else:
      assert sum(shape) == 1
      assert twin.second_colour == thing.second_colour
    again = dataclasses.replace(
      twin,
      uid=thing.uid,
      shape=thing.shape,
      second_colour=thing.second_colour,
      change='',
    )
    assert again == thing
  avoided = PROCEDURAL.sample_twin(
    np.random.default_rng(0), thing, uid='twin', avoid=changes
  )
  assert avoided.change not in changes or len(changes) == 5


def test_look_alikes_of_most_types_may_differ_in_shape():
  thing = {name: make_object(name, (0.1,) * SHAPE_PARAMETERS) for name in TYPES}
  seen = [
    name
    for name in TYPES
    if any(
      PROCEDURAL.sample_twin(
        np.random.default_rng(seed), thing[name], uid='t'
      ).change
      != 'trim'
      for seed in range(4)
    )
  ]
  assert len(seen) > 0.5 * len(TYPES)

"""Tests the measures and the material of stands."""

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds.assets import Part, stands


def sample(seed=0, width=1.0, depth=0.6, height=2.0):
  return stands.sample_stand(
    np.random.default_rng(seed),
    uid='s',
    width=width,
    depth=depth,
    height=height,
  )


@pytest.mark.parametrize(
  'sides', [(1.0, 0.6, 2.0), (2.0, 1.0, 0.5), (0.7, 1.4, 1.0)]
)
def test_stand_has_the_measures_asked_for(sides):
  stand, scale = sample(0, *sides)
  mesh = stands.STANDS.mesh(stand)
  np.testing.assert_allclose(
    scale * np.ptp(mesh.positions, axis=0),
    (sides[0], sides[2], sides[1]),
    rtol=1e-5,
  )
  assert len(stand.shape) == objects_lib.SHAPE_PARAMETERS


def test_below_the_board_there_are_legs_at_the_corners_only():
  stand, scale = sample()
  positions = scale * stands.STANDS.mesh(stand).positions
  below = positions[positions[:, 1] < 1.9]
  assert (np.abs(below[:, 0]) > 0.45).all()
  assert (np.abs(below[:, 2]) > 0.25).all()


def test_materials_are_neutral_and_all_occur():
  parts = set()
  for seed in range(40):
    stand, _ = sample(seed)
    [part] = set(stands.STANDS.mesh(stand).part)
    parts.add(Part(part))
  assert parts == {Part.WOOD, Part.LIGHT, Part.DARK, Part.METAL}


def test_unknown_material_is_named():
  stand = objects_lib.Object('s', 'glass', 'red', 'red', 'plain', (0.5,) * 6)
  with pytest.raises(errors.UsageError, match='glass'):
    stands.STANDS.mesh(stand)

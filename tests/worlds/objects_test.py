"""Tests the description of objects and the palette."""

import itertools
import json

import numpy as np
import pytest

from vhop_jax.worlds.objects import COLOURS, PATTERNS, SHAPE_PARAMETERS, Object


def convert_to_lab(srgb: tuple[float, float, float]) -> np.ndarray:
  """Converts sRGB to CIELAB under D65 (CIE 15:2004)."""
  rgb = np.array(srgb)
  linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
  to_xyz = np.array(
    [
      [0.4124, 0.3576, 0.1805],
      [0.2126, 0.7152, 0.0722],
      [0.0193, 0.1192, 0.9505],
    ]
  )
  xyz = to_xyz @ linear / [0.9505, 1.0, 1.089]
  f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
  return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_lab_of_pure_red():
  # A published value: sRGB red is L = 53.2, a = 80.1, b = 67.2.
  np.testing.assert_allclose(
    convert_to_lab((1, 0, 0)), [53.2, 80.1, 67.2], atol=0.1
  )


def test_there_are_ten_colours_and_five_patterns():
  assert len(COLOURS) == 10
  assert len(set(PATTERNS)) == 5
  for channels in COLOURS.values():
    assert len(channels) == 3
    assert min(channels) >= 0 and max(channels) <= 1


@pytest.mark.parametrize('pair', list(itertools.combinations(COLOURS, 2)))
def test_colours_stay_apart(pair):
  first, second = (convert_to_lab(COLOURS[name]) for name in pair)
  # A person sees a difference of 2; under coloured light and in the shade
  # ten times as much must remain.
  assert np.linalg.norm(first - second) >= 25


def test_object_survives_json():
  obj = Object(
    uid='3-twin',
    type='kettle',
    colour='red',
    second_colour='white',
    pattern='dotted',
    shape=tuple(i / 7 for i in range(SHAPE_PARAMETERS)),
  )
  restored = Object.from_json(json.loads(json.dumps(obj.to_json())))
  assert restored == obj
  # Meshes are cached by object, so a restored one must hash alike.
  assert hash(restored) == hash(obj)

"""Measures which of the named colours a rendered object shows."""

import dataclasses

import numpy as np

from vhop_jax.worlds import arrange
from vhop_jax.worlds.objects import COLOURS

# From linear sRGB to OKLab, after Ottosson (2020).
_TO_CONES = np.array(
  [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
  ]
)
_TO_LAB = np.array(
  [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
  ]
)


def compute_oklab(srgb):
  """Converts sRGB in [0, 1] to OKLab."""
  srgb = np.asarray(srgb, float)
  linear = np.where(
    srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4
  )
  return np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T


def find_nearest_name(srgb):
  """Returns the named colour nearest to an sRGB colour in [0, 1]."""
  named = compute_oklab(np.array(list(COLOURS.values())))
  distances = np.linalg.norm(named - compute_oklab(srgb), axis=1)
  return list(COLOURS)[distances.argmin()]


def make_portrait(obj):
  """Shows an object from above, lit by white light from the viewer's side."""
  scene = arrange.sample_scene(np.random.default_rng(7), [obj])
  light = dataclasses.replace(
    scene.light,
    azimuth=scene.camera.yaw,
    elevation=0.8,
    colour=(1.0, 1.0, 1.0),
    ambient=0.5,
  )
  return dataclasses.replace(scene, light=light)


def repaint(scene, **values):
  """Changes fields of the only object of a scene."""
  [placement] = scene.placements
  obj = dataclasses.replace(placement.object, **values)
  return dataclasses.replace(
    scene, placements=(dataclasses.replace(placement, object=obj),)
  )


def find_pixels(renderer, scene, field='colour'):
  """Returns the mask of the pixels that show a colour of the object."""
  black, white = (
    renderer.render(repaint(scene, **{field: name})).astype(int)
    for name in ('black', 'white')
  )
  return np.abs(white - black).max(axis=-1) > 60


def measure_colour(renderer, scene, colour):
  """Returns the named colour that an object in a colour shows."""
  mask = find_pixels(renderer, scene)
  pixels = renderer.render(repaint(scene, colour=colour))[mask]
  return find_nearest_name(pixels.mean(axis=0) / 255)

"""Samples what objects stand on and in front of: ground, wall or open sky."""

from collections.abc import Iterable
import colorsys
import dataclasses
from typing import Any

import numpy as np

from vhop_jax.worlds.colour import compute_oklab
from vhop_jax.worlds.textures import TEXTURES

Triple = tuple[float, float, float]

DIGITS = 6

_NUM_CANDIDATES = 12
# How far apart, in OKLab, an object and its surroundings should be.
_CONTRAST = 0.22
_SKY_PROBABILITY = 0.25
# Those in which something is to be seen.
TEXTURED = tuple(t for t in TEXTURES if t not in ('plain', 'gradient'))


@dataclasses.dataclass(frozen=True)
class Surface:
  """Is the paint of the ground or of the wall.

  Attributes:
    texture: one of `textures.TEXTURES`.
    colour: sRGB.
    second_colour: sRGB.
    period: length after which the texture repeats.
    angle: turn of the texture in its plane.
    offset: shift of the texture in periods.
  """

  texture: str
  colour: Triple
  second_colour: Triple
  period: float
  angle: float
  offset: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Background:
  """Is what the objects stand on and in front of.

  Attributes:
    ground: paint of the ground.
    wall: paint of the wall; under an open sky its first colour is that of the
      horizon and the second that of the zenith.
    wall_distance: where the wall stands, or 0 for an open sky.
  """

  ground: Surface
  wall: Surface
  wall_distance: float


def round_all(values: Iterable[float]) -> tuple[Any, ...]:
  """Rounds to what is kept in a scene's JSON."""
  return tuple(round(float(value), DIGITS) for value in values)


def _sample_surface(
  rng: np.random.Generator,
  avoid: np.ndarray,
  period: tuple[float, float],
  textures: tuple[str, ...],
) -> Surface:
  """Samples a surface whose colour differs from those to avoid [A, 3]."""
  hue, saturation, value = rng.random((3, _NUM_CANDIDATES))
  saturation = 0.4 * saturation**1.5
  value = 0.3 + 0.66 * value
  colours = np.array(
    [
      colorsys.hsv_to_rgb(*hsv)
      for hsv in zip(hue, saturation, value, strict=True)
    ]
  )
  distance = np.linalg.norm(
    compute_oklab(colours)[:, None] - compute_oklab(avoid)[None], axis=-1
  ).min(axis=1)
  # The first candidate that stands off well enough, else the best of all.
  best = int(np.argmax(np.minimum(distance, _CONTRAST)))
  step = rng.uniform(0.1, 0.28) * (-1 if value[best] > 0.55 else 1)
  second = colorsys.hsv_to_rgb(
    (hue[best] + rng.uniform(-0.1, 0.1)) % 1,
    saturation[best] * rng.uniform(0.5, 1.2),
    value[best] + step,
  )
  return Surface(
    texture=textures[rng.integers(len(textures))],
    colour=round_all(colours[best]),
    second_colour=round_all(second),
    period=round(rng.uniform(*period), DIGITS),
    angle=round(rng.uniform(0, 2 * np.pi), DIGITS),
    offset=round_all(rng.random(2)),
  )


def sample_background(
  rng: np.random.Generator,
  avoid: np.ndarray,
  wall_from: float,
  *,
  is_textured: bool = False,
) -> Background:
  """Samples ground and wall that objects stand out from.

  Args:
    rng: is consumed.
    avoid: sRGB colours of the objects [A, 3].
    wall_from: the least distance of the wall.
    is_textured: whether there always is a wall, and no surface is plain.
  """
  textures = TEXTURED if is_textured else TEXTURES
  ground = _sample_surface(rng, avoid, (1.2, 3.2), textures)
  wall = _sample_surface(rng, avoid, (1.5, 4.0), textures)
  # Bricks and planks lie level or upright on a wall.
  quarter = rng.integers(2) * np.pi / 2 if wall.texture != 'bricks' else 0.0
  wall = dataclasses.replace(wall, angle=round(float(quarter), DIGITS))
  distance = wall_from + rng.uniform(0.15, 1.6)
  if rng.random() < _SKY_PROBABILITY and not is_textured:
    distance = 0.0
  return Background(ground, wall, round(float(distance), DIGITS))

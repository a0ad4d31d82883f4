import numpy as np
import pytest

from vhop_jax.worlds import background
from vhop_jax.worlds.colour import compute_oklab
from vhop_jax.worlds.objects import COLOURS
from vhop_jax.worlds.textures import TEXTURES, make_textures


@pytest.mark.parametrize('names', [('red', 'green'), ('white', 'black')])
def test_ground_and_wall_stand_off_from_the_objects(names):
  avoid = np.array([COLOURS[name] for name in names])
  distances, saturations = [], []
  for seed in range(60):
    rng = np.random.default_rng(seed)
    made = background.sample_background(rng, avoid, wall_from=1.0)
    for surface in (made.ground, made.wall):
      colour = np.array(surface.colour)
      away = compute_oklab(colour) - compute_oklab(avoid)
      distances.append(np.linalg.norm(away, axis=-1).min())
      saturations.append(1 - colour.min() / colour.max())
    assert made.wall_distance == 0 or made.wall_distance > 1
  assert np.mean(np.array(distances) > 0.2) > 0.95
  assert max(saturations) < 0.45


def test_backgrounds_vary():
  avoid = np.array([COLOURS['blue']])
  made = [
    background.sample_background(np.random.default_rng(seed), avoid, 1.0)
    for seed in range(120)
  ]
  assert {b.ground.texture for b in made} == set(TEXTURES)
  assert {b.wall.texture for b in made} == set(TEXTURES)
  under_the_sky = np.mean([b.wall_distance == 0 for b in made])
  assert 0.1 < under_the_sky < 0.45


def test_textures_repeat_without_a_seam():
  # Where nothing is drawn at the tile's edge, the step across it is no larger
  # than the largest step within.
  for name, tile in zip(TEXTURES, make_textures(), strict=True):
    if name not in ('noise', 'marble', 'gradient', 'plain'):
      continue
    values = tile.astype(int)
    for axis in (0, 1):
      within = np.abs(np.diff(values, axis=axis)).max()
      across = np.abs(values.take(0, axis) - values.take(-1, axis)).max()
      assert across <= within + 1, (name, axis)

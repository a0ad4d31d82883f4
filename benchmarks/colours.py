"""Measures whether named colours can be told apart as they are rendered.

An object is drawn in a scene of its own kind (any type, plain, any light and
camera that worlds have), the very same scene once in each colour. Its body is
where the white and the black picture differ, less one pixel at the edge.
Distance is CIEDE2000.

Printed are, for each colour:

- pixels: the share of the body's pixels whose nearest named colour is its own;
- images: the share of pictures of which this is so for the body's mean;
- own, other: how far the body's mean is from its own name and from the nearest
  other, on average;
- under one light: the other colour that comes nearest in the median scene, and
  how near; and how near any other comes in the worst.

Then, in percent of the body's pixels, which name is the nearest to each colour.

    python benchmarks/colours.py [scenes] [picture.png]

The picture shows the colours side by side in the scenes in which the fewest
are told right.
"""

import dataclasses
import sys

import numpy as np
from PIL import Image

from vhop_jax.worlds import arrange, render
from vhop_jax.worlds import colour as colour_lib
from vhop_jax.worlds.assets.procedural import PROCEDURAL
from vhop_jax.worlds.objects import COLOURS

NAMES = tuple(COLOURS)
RESOLUTION = 96
ROWS_SHOWN = 12
MIN_BODY_PX = 40
# Of 255: how much brighter a body is in white than in black, at least.
BODY_STEP = 24


def draw_in_each_colour(
  renderer: render.Renderer, rng: np.random.Generator
) -> np.ndarray:
  """Draws one scene in all colours, uint8 [colours, height, width, 3]."""
  thing = PROCEDURAL.sample_object(rng, uid='0')
  thing = dataclasses.replace(thing, pattern='plain')
  scene = arrange.sample_scene(rng, [thing])
  [placement] = scene.placements
  return np.stack(
    [
      renderer.render(
        dataclasses.replace(
          scene,
          placements=(
            dataclasses.replace(
              placement, object=dataclasses.replace(thing, colour=name)
            ),
          ),
        )
      )
      for name in NAMES
    ]
  )


def find_body(pictures: np.ndarray) -> np.ndarray:
  """Returns where the body is in the pictures of a scene [height, width]."""
  white, black = (pictures[NAMES.index(name)] for name in ('white', 'black'))
  body = (white.astype(int) - black).min(axis=-1) > BODY_STEP
  inner = body.copy()
  for axis in (0, 1):
    for step in (-1, 1):
      inner &= np.roll(body, step, axis)
  return inner


def print_colours(
  nearest: np.ndarray, means: np.ndarray, names: np.ndarray
) -> None:
  """Prints both tables.

  Args:
    nearest: shares of the pixels of each colour that are nearest to each name
      [scenes, colours, names].
    means: CIELAB of each body's mean [scenes, colours, 3].
    names: CIELAB of the names [colours, 3].
  """
  to_names = colour_lib.compute_delta_e(means[:, :, None], names)
  told = to_names.argmin(axis=-1)
  within = colour_lib.compute_delta_e(means[:, :, None], means[:, None])
  print('colour  pixels  images  own  other   nearest under one light')
  for i, name in enumerate(NAMES):
    others = np.delete(to_names[:, i], i, axis=-1).min(axis=-1)
    rivals = np.median(within[:, i], axis=0)
    rivals[i] = np.inf
    rival = int(rivals.argmin())
    right = (told[:, i] == i).mean()
    worst = np.delete(within[:, i], i, axis=-1).min()
    print(
      f'{name:6}  {nearest[:, i, i].mean():6.1%}  {right:6.1%}'
      f'  {to_names[:, i, i].mean():3.0f}  {others.mean():5.0f}'
      f'   {NAMES[rival]:6} {rivals[rival]:3.0f}, at worst {worst:.0f}'
    )
  print('\nnearest name, % of pixels (rows: what it is)')
  print('        ' + ' '.join(f'{name:>6}' for name in NAMES))
  for i, name in enumerate(NAMES):
    shares = 100 * nearest[:, i].mean(axis=0)
    row = ' '.join(f'{s:6.1f}' if s >= 0.05 else '     .' for s in shares)
    print(f'{name:6}  {row}')


def main() -> None:
  """Prints two tables; saves a picture if it is told where."""
  count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
  palette = np.array([COLOURS[name] for name in NAMES])
  names = colour_lib.compute_lab(palette)
  shares, means, drawn = [], [], []
  rng = np.random.default_rng(0)
  with render.Renderer(*render.size_from_resolution(RESOLUTION)) as renderer:
    while len(shares) < count:
      pictures = draw_in_each_colour(renderer, rng)
      body = find_body(pictures)
      if body.sum() < MIN_BODY_PX:
        continue
      srgb = pictures[:, body] / 255
      lab = colour_lib.compute_lab(srgb)
      nearest = colour_lib.compute_delta_e(lab[:, :, None], names).argmin(-1)
      is_name = nearest[..., None] == np.arange(len(NAMES))
      shares.append(is_name.mean(axis=1))
      means.append(lab.mean(axis=1))
      drawn.append(pictures)
  nearest = np.array(shares)
  print_colours(nearest, np.array(means), names)
  if len(sys.argv) > 2:
    told = np.trace(nearest, axis1=1, axis2=2)
    hardest = told.argsort()[:ROWS_SHOWN]
    rows = [np.concatenate(list(drawn[i]), axis=1) for i in hardest]
    Image.fromarray(np.concatenate(rows)).save(sys.argv[2])
    print(f'\n{sys.argv[2]}: {len(rows)} scenes, from left {", ".join(NAMES)}')


if __name__ == '__main__':
  main()

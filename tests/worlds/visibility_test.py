"""Compares the rasteriser with the renderer, and counts by hand."""

import dataclasses

import numpy as np
import pytest

from vhop_jax.worlds import arrange, render, visibility
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds.assets import stands
from vhop_jax.worlds.assets.procedural import PROCEDURAL

# As wide as high as the rasteriser's own pictures.
SIZE = (visibility.WIDTH_PX, visibility.HEIGHT_PX)
HIGH = (150, 100)


def sample(seed, relations):
  rng = np.random.default_rng(seed)
  objects = [PROCEDURAL.sample_object(rng, uid=str(i)) for i in range(2)]
  return arrange.sample_scene(rng, objects, arrange.Style(relations))


def repaint(scene, index, colour):
  """Gives a linked object one colour throughout."""
  placements = list(scene.placements)
  painted = dataclasses.replace(
    placements[index].object,
    colour=colour,
    second_colour=colour,
    pattern='plain',
  )
  placements[index] = dataclasses.replace(placements[index], object=painted)
  return dataclasses.replace(scene, placements=tuple(placements))


def find_pixels(renderer, scene, index):
  """Finds where an object is seen: where its colour changes the picture."""
  black, white = (
    renderer.render(repaint(scene, index, colour)).astype(int)
    for colour in ('black', 'white')
  )
  return np.abs(white - black).max(axis=-1) > 40


def measure_hidden(renderer, scene, index):
  """Returns the hidden share of an object by the pixels of pictures."""
  alone = dataclasses.replace(
    scene, placements=(scene.placements[index],), extras=()
  )
  shown = find_pixels(renderer, scene, index).sum()
  return 1 - shown / find_pixels(renderer, alone, 0).sum()


@pytest.mark.parametrize('relations', ['depth', 'height'])
def test_hidden_share_is_that_of_the_rendered_picture(relations):
  shares = []
  with render.Renderer(*HIGH) as renderer:
    for seed in range(10):
      scene = sample(seed, relations)
      nearness = visibility.draw_nearness(scene.camera, scene.list_things())
      for index in (0, 1):
        share = visibility.compute_hidden_frac(nearness, index)
        shares.append(share)
        # Parts whose colour is fixed, such as wheels, are not told apart in
        # the pictures, and one pixel in twelve is at an edge.
        assert measure_hidden(renderer, scene, index) == pytest.approx(
          share, abs=0.08
        )
        assert measure_hidden(renderer, scene, index) < 0.3
  assert max(shares) > 0.05


def make_stand(x, z, y=0.0):
  """Makes a stand two wide, one deep and one high; its board is at the top."""
  stand, scale = stands.sample_stand(
    np.random.default_rng(0), uid='s', width=2.0, depth=1.0, height=1.0
  )
  return scene_lib.Placement(stand, x, z, 0.0, scale, y)


def test_board_covers_what_it_covers_by_hand():
  # The camera looks down along -y, almost: the board of 2 by 1, at height 1,
  # is 9 away; a view of half a right angle shows 2 * 9 * tan(22.5 deg) = 7.456
  # of the height there, so the board is 80 / 7.456 = 10.73 px high.
  camera = scene_lib.Camera((0.0, 10.0, 0.0), 0.0, np.pi / 2 - 1e-6, np.pi / 4)
  [drawn] = visibility.draw_nearness(camera, [make_stand(0, 0)])
  rows, columns = np.nonzero(drawn)
  assert np.ptp(rows) + 1 == pytest.approx(10.73, abs=1)
  assert np.ptp(columns) + 1 == pytest.approx(2 * 10.73, abs=1)
  assert drawn[40, 60] == pytest.approx(1 / 9, rel=1e-3)


def test_upper_of_two_hides_the_half_that_it_covers():
  camera = scene_lib.Camera((0.0, 99.0, 0.0), 0.0, np.pi / 2 - 1e-6, 0.06)
  # The second lies one higher and half a board's width to the right.
  nearness = visibility.draw_nearness(
    camera, [make_stand(0, 0), make_stand(1, 0, 1.0), make_stand(40, 0)]
  )
  assert visibility.compute_hidden_frac(nearness, 0) == pytest.approx(
    0.5, abs=0.03
  )
  assert visibility.compute_hidden_frac(nearness, 1) == 0
  assert visibility.compute_hidden_frac(nearness, 0, []) == 0
  assert visibility.compute_hidden_frac(nearness, 0, [0, 2]) == 0
  # What is out of the picture is hidden.
  assert visibility.compute_hidden_frac(nearness, 2) == 1

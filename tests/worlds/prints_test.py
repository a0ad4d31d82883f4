import dataclasses
import math

import numpy as np
import pytest

from vhop_jax.worlds import arrange, prints, render, scene
from vhop_jax.worlds.assets import Mesh, Part, procedural, texts
from vhop_jax.worlds.assets.shapes import assemble, box

PACK = procedural.PROCEDURAL


def make_thing(kind='gift box', **values):
  rng = np.random.default_rng(0)
  thing = PACK.sample_object(rng, uid='a', type=kind, colour='blue')
  return dataclasses.replace(thing, pattern='plain', **values)


def make_slab(front=Part.BODY):
  """Makes a slab 1 wide, 0.8 high and 0.2 thick, its front of another part."""
  return assemble(
    [
      (Part.BODY, box(1.0, 0.8, 0.18)),
      (front, box(1.0, 0.8, 0.02).move(z=0.1)),
    ]
  )


def test_the_largest_side_gets_the_label_in_its_middle():
  area = prints.find_print_area(make_slab(), text=False)
  assert area.side in (0.0, math.pi)
  assert area.u == pytest.approx(0.0, abs=0.04)
  assert area.v == pytest.approx(0.4, abs=0.04)
  # At most 45 % of the side: the square root of 0.45 * 0.8, in cells of 1/32.
  assert 2 * area.half_width == pytest.approx(math.sqrt(0.36), abs=0.05)
  assert area.half_width == area.half_height


def test_nothing_is_printed_on_trim():
  area = prints.find_print_area(make_slab(Part.TRIM), text=True)
  assert area.side == math.pi  # The back is still free.
  assert area.half_width / area.half_height == pytest.approx(1.9, rel=0.1)


def test_a_thin_mesh_has_no_room():
  rod = assemble([(Part.BODY, box(0.05, 1.0, 0.05))])
  assert isinstance(rod, Mesh)
  assert prints.find_print_area(rod, text=False) is None


def read_label(thing, width_px=480):
  """Renders a thing alone, its label ahead, and cuts the label out."""
  area = prints.find_print_area(PACK.mesh(thing), text=bool(thing.text))
  drawn = arrange.sample_scene(np.random.default_rng(3), [thing])
  camera = dataclasses.replace(drawn.camera, pitch=0.1)
  [placement] = drawn.placements
  placement = dataclasses.replace(placement, yaw=camera.yaw - area.side)
  drawn = dataclasses.replace(drawn, camera=camera, placements=(placement,))
  right = np.array([math.cos(area.side), 0.0, -math.sin(area.side)])
  out = np.array([math.sin(area.side), 0.0, math.cos(area.side)])
  corners = np.array(
    [
      (area.u + s * area.half_width) * right
      + (0, area.v + t * area.half_height, 0)
      + area.depth * out
      for s in (-1, 1)
      for t in (-1, 1)
    ]
  )
  corners = scene.place_points(placement, corners)
  # Straight ahead of the label's middle, a little further back.
  centre = corners.mean(axis=0)
  back = np.array([math.sin(camera.yaw), 0.0, math.cos(camera.yaw)])
  camera = dataclasses.replace(
    camera, pitch=0.0, eye=tuple(centre + 3.0 * back), fov=0.5
  )
  drawn = dataclasses.replace(drawn, camera=camera)
  size = render.size_from_resolution(width_px)
  with render.Renderer(*size) as renderer:
    pixels = renderer.render(drawn)
  x0, y0, x1, y1 = scene.compute_box(camera, corners)
  rows = slice(round(y0 * size[1]), round(y1 * size[1]))
  columns = slice(round(x0 * size[0]), round(x1 * size[0]))
  return pixels[rows, columns].mean(axis=-1)


def compare(label, wanted):
  """Returns the correlation of a picture with the label that was printed."""
  rows = np.linspace(0, len(label) - 1, 40).round().astype(int)
  columns = np.linspace(0, label.shape[1] - 1, 40).round().astype(int)
  seen = label[np.ix_(rows, columns)]
  at = np.linspace(0, prints.SIZE_PX - 1, 40).round().astype(int)
  # The label is stored from below, and its ink is dark.
  ink = np.flipud(wanted)[np.ix_(at, at)]
  return np.corrcoef(seen.ravel(), -ink.ravel().astype(float))[0, 1]


@pytest.mark.parametrize('kind', ['gift box', 'mug', 'bell', 'television'])
@pytest.mark.parametrize(
  'values',
  [
    {'logo': 'github'},
    {'text': 'LOFA', 'font': texts.FONTS[0]},
  ],
  ids=['logo', 'text'],
)
def test_what_is_printed_is_read_upright_and_not_mirrored(kind, values):
  thing = make_thing(kind, **values)
  label = read_label(thing)
  wanted = np.frombuffer(
    prints.draw_print(thing.logo, thing.text, thing.font), np.uint8
  ).reshape(prints.SIZE_PX, prints.SIZE_PX)
  right = compare(label, wanted)
  assert right > 0.75
  assert right > compare(label, wanted[::-1]) + 0.1
  if thing.text:
    assert right > compare(label, wanted[:, ::-1]) + 0.1


@pytest.mark.parametrize('text', [False, True], ids=['logo', 'text'])
def test_printable_types_have_room_nearly_always(text):
  rng = np.random.default_rng(1)
  rare = []
  for kind in PACK.printable_types:
    found = [
      prints.find_print_area(
        PACK.mesh(PACK.sample_object(rng, uid='a', type=kind)), text=text
      )
      for _ in range(4)
    ]
    if sum(area is not None for area in found) < 2:
      rare.append(kind)
  assert not rare


@pytest.mark.parametrize('level', [6, 7])
def test_halves_of_the_prints_share_none(level):
  pools = {
    name: set(prints.list_prints(level, name)) for name in prints.PRINT_SETS
  }
  assert pools['train'] | pools['test'] == pools['all']
  assert not pools['train'] & pools['test']

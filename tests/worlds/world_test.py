import dataclasses
import json
import shutil

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import records, render, verify
from vhop_jax.worlds import scene as scene_lib
from vhop_jax.worlds import world as world_lib


@pytest.fixture
def copy(folder, tmp_path):
  return shutil.copytree(folder, tmp_path / 'copy')


def find_file(folder, split):
  [path] = records.get_folder(folder, split).glob('*array_record*')
  return path


def assert_unreadable(reader, folder, match):
  with pytest.raises(errors.DataError, match=match) as caught:
    reader(folder)
  assert '\n' not in str(caught.value)
  assert '--overwrite' in str(caught.value)


def read_one_by_one(folder):
  return list(world_lib.iterate_pixels(folder))


def change_header(folder, change):
  path = folder / world_lib.HEADER_FILE
  header = json.loads(path.read_text())
  change(header)
  path.write_text(json.dumps(header))


@pytest.mark.parametrize(
  'values',
  [
    {'level': 8},
    {'families': 0},
    {'seed': -1},
    {'hops': 1},
    {'hops': 6},
    {'prompt': 'rude'},
    {'resolution': 8},
    {'wording': 'poetic'},
    {'relations': 'inside'},
    {'clutter': 5},
    {'clutter': -1},
    {'variation': 'wild'},
  ],
)
def test_spec_refuses_what_cannot_be_built(values):
  with pytest.raises(errors.UsageError, match=str(next(iter(values)))):
    world_lib.Spec(**({'level': 4, 'families': 1, 'seed': 0} | values))


def test_key_names_what_is_not_as_usual():
  # Worlds that were built before these settings were there keep their keys.
  plain = world_lib.Spec(4, 1, 7)
  assert plain.key == 'L4-precise-3hop-procedural-seed7'
  changes = [
    {'relations': 'depth'},
    {'relations': 'height'},
    {'foreground': True},
    {'clutter': 1},
    {'clutter': 2},
    {'variation': 'strong'},
  ]
  keys = [dataclasses.replace(plain, **change).key for change in changes]
  assert len({plain.key, *keys}) == 7
  assert all(key.startswith(plain.key) for key in keys)
  full = world_lib.Spec(
    4, 1, 7, relations='depth', foreground=True, clutter=3, variation='strong'
  )
  assert full.key == f'{plain.key}-depth-foreground-clutter3-strong'
  assert world_lib.Spec.from_json(full.to_json()) == full


def test_record_tells_its_extras_apart_from_stands(world):
  image = world.images[0]
  assert image.extras == ()
  placement = image.scene['placements'][0]
  extras = [{'role': r, 'placement': placement} for r in ('support', 'clutter')]
  more = dataclasses.replace(image, scene={**image.scene, 'extras': extras})
  assert [thing.to_json() for thing in more.extras] == [placement['object']]


def test_records_survive_being_stored(world):
  for image in world.images:
    assert world_lib.ImageRecord.from_row(image.to_row()) == image
  for query in world.queries:
    assert world_lib.Query.from_row(query.to_row()) == query
  assert world_lib.Spec.from_json(world.spec.to_json()) == world.spec


def test_specs_of_before_worlds_without_chains_have_chains(spec):
  values = spec.to_json()
  assert values.pop('with_chains') is True
  assert world_lib.Spec.from_json(values) == spec
  bare = dataclasses.replace(spec, with_chains=False)
  assert world_lib.Spec.from_json(bare.to_json()) == bare
  assert bare.key == spec.key


def test_wording_is_part_of_the_key_where_it_is_not_standard(spec):
  values = spec.to_json()
  assert values.pop('wording') == 'standard'
  assert world_lib.Spec.from_json(values) == spec
  assert spec.key == 'L4-precise-3hop-procedural-seed3'
  other = dataclasses.replace(spec, wording='rephrased')
  assert other.key == f'{spec.key}-rephrased'
  assert world_lib.Spec.from_json(other.to_json()) == other


def test_world_on_disk_is_the_world_made(folder, world):
  assert world_lib.load_world(folder) == world


def test_pixels_are_the_scenes_rendered_in_the_order_of_the_ids(folder, world):
  pixels = world_lib.read_pixels(folder)
  assert pixels.shape == (len(world.images), 32, 48, 3)
  with render.Renderer(48, 32) as renderer:
    for i in (0, len(pixels) - 1):
      scene = scene_lib.Scene.from_json(world.images[i].scene)
      np.testing.assert_array_equal(pixels[i], renderer.render(scene))


def test_pixels_one_by_one_are_those_read_at_once(folder):
  np.testing.assert_array_equal(
    list(world_lib.iterate_pixels(folder)), world_lib.read_pixels(folder)
  )


def test_png_keeps_every_bit():
  pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
  np.testing.assert_array_equal(
    world_lib.decode_png(world_lib.encode_png(pixels)), pixels
  )


def test_ids_have_room_for_large_worlds():
  assert world_lib.format_id(173, 450) == '00173'
  assert world_lib.format_id(173, 1_000_000) == '000173'


def test_position_of_an_image_is_found_by_its_id(world):
  assert world.index(world.images[5].id) == 5


def test_link_graph_has_both_objects_of_each_pair(world):
  graph = world.link_graph()
  query = world.queries[0]
  start = world.images[world.index(query.image)].objects[0]
  links = graph.valid_links(world.spec, query.hops[0], query.image, start)
  assert query.chains[0][0] in [link.target_id for link in links]
  assert len(links) <= 2


@pytest.mark.parametrize(
  'reader', [world_lib.load_world, world_lib.read_pixels, read_one_by_one]
)
def test_folder_without_a_world_is_said_to_have_none(reader, tmp_path):
  for path in (tmp_path, tmp_path / 'nowhere'):
    with pytest.raises(errors.DataError, match='no world in .*build --out'):
      reader(path)


@pytest.mark.parametrize(
  ('reader', 'split'),
  [
    (world_lib.load_world, records.QUERIES_SPLIT),
    (world_lib.load_world, records.IMAGES_SPLIT),
    (world_lib.read_pixels, records.IMAGES_SPLIT),
    (read_one_by_one, records.IMAGES_SPLIT),
  ],
)
@pytest.mark.parametrize('damage', ['half', 'empty', 'missing', 'text'])
def test_damaged_records_are_one_line(copy, reader, split, damage):
  path = find_file(copy, split)
  data = path.read_bytes()
  if damage == 'missing':
    path.unlink()
  else:
    path.write_bytes(
      {'half': data[: len(data) // 2], 'empty': b'', 'text': b'hello'}[damage]
    )
  assert_unreadable(reader, copy, 'damaged or incomplete')


@pytest.mark.parametrize('reader', [world_lib.read_pixels, read_one_by_one])
def test_flipped_bit_in_the_records_is_noticed(copy, reader):
  path = find_file(copy, records.IMAGES_SPLIT)
  data = bytearray(path.read_bytes())
  data[len(data) // 4] ^= 1
  path.write_bytes(data)
  assert_unreadable(reader, copy, 'build the world again')


@pytest.mark.parametrize(
  ('reader', 'kind'),
  [
    (world_lib.load_world, 'content'),
    (world_lib.read_pixels, 'pixels'),
    (read_one_by_one, 'pixels'),
  ],
)
def test_fingerprint_that_does_not_match_is_noticed(copy, reader, kind):
  change_header(copy, lambda h: h['fingerprint'].update({kind: '0' * 64}))
  assert_unreadable(reader, copy, f'{kind} fingerprint')
  breaches = verify.verify_folder(copy)
  assert [(b.rule, b.message.split()[0]) for b in breaches] == [
    ('fingerprint', kind)
  ]


@pytest.mark.parametrize(
  'change',
  [
    lambda header: header.pop('spec'),
    lambda header: header['spec'].update(level=9),
    lambda header: header['spec'].update(mood='good'),
    lambda header: header.update(format_version=99),
    lambda header: header.pop('format_version'),
    lambda header: header.pop('sizes'),
    lambda header: header.pop('fingerprint'),
  ],
)
def test_broken_header_is_one_line(copy, change):
  change_header(copy, change)
  assert_unreadable(world_lib.load_world, copy, 'world.json')


def test_header_that_is_no_json_is_one_line(copy):
  (copy / world_lib.HEADER_FILE).write_text('{')
  assert_unreadable(world_lib.load_world, copy, 'world.json')


def test_any_change_of_a_record_changes_the_fingerprint(world):
  def compute(images=world.images, queries=world.queries):
    return world_lib.compute_content_fingerprint(images, queries)

  first, *rest = world.queries
  told = dataclasses.replace(first, instruction=first.instruction + ' ')
  assert compute(queries=(told, *rest)) != compute()
  assert compute(images=world.images[::-1]) != compute()

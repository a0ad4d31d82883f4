import dataclasses
import json
import shutil

import numpy as np
from PIL import Image
import pytest

from tests.worlds import verify_test as by_hand
from vhop_jax import errors
from vhop_jax.worlds import builder, verify, view
from vhop_jax.worlds import world as world_lib


def read_data(page):
  text = (page.parent / view.DATA_FILE).read_text(encoding='utf-8')
  return json.loads(text.removeprefix('const VIEW = ').removesuffix(';\n'))


def get_path(nodes, node):
  """Returns the images from the first hop to a node."""
  path = []
  while node.parent >= 0:
    path.insert(0, node.image)
    node = nodes[node.parent]
  return tuple(path)


@pytest.fixture(scope='module')
def page(folder, tmp_path_factory):
  return view.write_page([folder], tmp_path_factory.mktemp('view') / 'page')


@pytest.fixture(scope='module')
def vague_world(spec, pool):
  return builder.make_world(dataclasses.replace(spec, prompt='vague'), pool)


def test_tree_of_a_world_by_hand():
  names = list(by_hand.PICTURES)
  world = by_hand.make_world()
  nodes = view.grow_tree(verify.Search(world), world.queries[0])
  found = {
    names[int(node.image)]: (
      names[int(nodes[node.parent].image)] if node.parent >= 0 else '',
      node.hop,
      node.kinds,
      f'{node.carried} {node.relation} {node.other} ({node.colour})',
    )
    for node in nodes
  }
  assert found == {
    'query': ('', 0, (), '  red kettle (red)'),
    'gold1': ('query', 1, (), 'red kettle left of blue mug (blue)'),
    'wrong relation': (
      'query',
      1,
      ('wrong relation',),
      'red kettle right of blue mug (blue)',
    ),
    'dead end': (
      'query',
      1,
      ('dead end',),
      'red kettle left of blue drum (blue)',
    ),
    'gold2': ('gold1', 2, (), 'blue mug right of green bowl (green)'),
    'wrong colour': (
      'gold1',
      2,
      ('wrong colour',),
      'blue mug right of yellow hat (yellow)',
    ),
  }


def test_flawless_paths_are_the_valid_chains(world, vague_world):
  for any_world in (world, vague_world):
    search = verify.Search(any_world)
    for query in any_world.queries:
      nodes = view.grow_tree(search, query)
      chains = [
        get_path(nodes, node)
        for node in nodes
        if node.hop == any_world.spec.hops and not node.kinds
      ]
      assert sorted(chains) == sorted(query.chains)
      on_chains = {image for chain in chains for image in chain}
      flawless = {node.image for node in nodes if not node.kinds}
      assert flawless == {query.image, *on_chains}


def test_dead_ends_are_valid_steps_that_no_chain_goes_through(world):
  search = verify.Search(world)
  dead = 0
  for query in world.queries:
    nodes = view.grow_tree(search, query)
    for node in nodes[1:]:
      path = get_path(nodes, node)
      ends = any(chain[: len(path)] == path for chain in query.chains)
      assert ends == (not node.kinds)
      if node.kinds == (view.DEAD_END,):
        dead += 1
        step = next(
          step
          for steps in search._steps.values()
          for step in steps
          if step.image == node.image and step.other.colour == node.colour
        )
        assert search.is_valid(step, query.hops[node.hop - 1])
  assert dead >= len(world.queries)


def test_tree_has_all_that_shows_the_carried_object(world):
  search = verify.Search(world)
  for query in world.queries:
    nodes = view.grow_tree(search, query)
    start = search.get_start(query)
    first = {node.image for node in nodes if node.hop == 1}
    assert first == {
      image.id
      for image in world.images
      if start in image.objects and image.id != query.image
    }


def test_kinds_are_whatever_the_verifier_finds_wrong(world, monkeypatch):
  monkeypatch.setattr(
    verify.Search, 'find_faults', lambda *_: ['upside down', 'too small']
  )
  [family] = view.make_entry(world, families=1)['families']
  for query in family['queries']:
    kinds = [
      node[view.Node.__match_args__.index('kinds')] for node in query['tree']
    ]
    assert kinds[0] == ()
    assert set(kinds[1:]) == {('upside down', 'too small')}


def test_images_off_the_tree_say_in_what_they_are_like_it():
  mate = by_hand.thing('m', 'kettle', 'cyan')  # Of the start's type.
  twin = by_hand.thing('n', 'comb', 'green')  # Of the goal's colour.
  other = by_hand.thing('o', 'comb', 'pink')
  world = by_hand.make_world(
    {
      **by_hand.PICTURES,
      'type': (mate, other),
      'colour': (other, twin),
      'both': (mate, twin),
      'neither': (other,),
    }
  )
  [family] = view.make_entry(world)['families']
  [query] = family['queries']
  assert query['rest'] == [
    ['00006', ['same type']],
    ['00007', ['same colour']],
    ['00008', ['same type', 'same colour']],
    ['00009', []],
  ]


def test_entry_asks_for_what_the_prompt_says(world, vague_world):
  for any_world, is_told in ((world, True), (vague_world, False)):
    entry = view.make_entry(any_world)
    assert entry['prompt'] == any_world.spec.prompt
    for query, values in zip(
      any_world.queries,
      [query for family in entry['families'] for query in family['queries']],
      strict=True,
    ):
      assert values['text'] == query.instruction
      assert values['asks'] == [
        [hop.relation.replace('of', ' of'), hop.colour] if is_told else ['', '']
        for hop in query.hops
      ]


def test_chains_are_not_needed(world):
  bare = dataclasses.replace(
    world,
    spec=dataclasses.replace(world.spec, with_chains=False),
    queries=tuple(dataclasses.replace(q, chains=()) for q in world.queries),
  )
  entry = view.make_entry(bare)
  assert entry.pop('with_chains') is False
  expected = view.make_entry(world)
  assert expected.pop('with_chains') is True
  assert entry == expected


def test_family_without_queries_is_shown(world):
  kept = [query for query in world.queries if query.family != 1]
  entry = view.make_entry(dataclasses.replace(world, queries=tuple(kept)))
  families = {family['number']: family for family in entry['families']}
  assert families[1]['queries'] == []
  assert len(families[1]['images']) == sum(i.family == 1 for i in world.images)


def test_pictures_are_those_of_their_ids(page, folder, world):
  pixels = world_lib.read_pixels(folder)
  names = {path.name for path in (page.parent / 'images' / '0').iterdir()}
  assert names == {f'{image.id}.jpg' for image in world.images}
  for image, picture in zip(world.images, pixels, strict=True):
    with Image.open(page.parent / f'images/0/{image.id}.jpg') as shown:
      found = np.asarray(shown.convert('RGB'), np.float32)
    differences = np.abs(pixels - found).mean(axis=(1, 2, 3))
    assert differences.argmin() == world.index(image.id)
    assert np.abs(picture - found).mean() < 6  # What JPEG takes away.


def test_large_pictures_are_made_smaller(tmp_path):
  picture = np.zeros((400, 600, 3), np.uint8)
  view._write_thumbnail(tmp_path / 'a.jpg', picture)
  with Image.open(tmp_path / 'a.jpg') as shown:
    assert shown.size == (256, 171)


def test_page_can_be_cut_to_a_few_families(folder, tmp_path, world):
  page = view.write_page([folder], tmp_path / 'few', families=1)
  [entry] = read_data(page)['worlds']
  assert [family['number'] for family in entry['families']] == [0]
  shown = {path.stem for path in (page.parent / 'images' / '0').iterdir()}
  assert shown == {image.id for image in world.images if image.family == 0}


def test_page_has_several_worlds(folder, other_folder, tmp_path):
  page = view.write_page([folder, other_folder], tmp_path / 'both')
  entries = read_data(page)['worlds']
  assert [entry['seed'] for entry in entries] == [3, 4]
  for i, entry in enumerate(entries):
    images = {id for family in entry['families'] for id in family['images']}
    shown = (page.parent / 'images' / str(i)).iterdir()
    assert {path.stem for path in shown} == images


def test_page_lies_in_the_first_world_by_default(folder, other_folder):
  page = view.write_page([folder, other_folder])
  assert page == folder / 'view' / 'index.html'
  assert verify.verify_folder(folder) == []
  shutil.rmtree(page.parent)


def test_older_page_is_replaced(folder, other_folder, tmp_path):
  out = tmp_path / 'page'
  view.write_page([folder], out)
  page = view.write_page([other_folder], out)
  [entry] = read_data(page)['worlds']
  assert entry['seed'] == 4
  shown = {path.stem for path in (out / 'images' / '0').iterdir()}
  assert shown == {id for f in entry['families'] for id in f['images']}


def test_damaged_world_leaves_no_page(folder, tmp_path):
  copy = shutil.copytree(folder, tmp_path / 'copy')
  header = json.loads((copy / world_lib.HEADER_FILE).read_text())
  header['fingerprint']['pixels'] = '0' * 64
  (copy / world_lib.HEADER_FILE).write_text(json.dumps(header))
  out = tmp_path / 'page'
  for _ in range(2):  # What is left of the first is no obstacle.
    with pytest.raises(errors.DataError, match='pixels fingerprint'):
      view.write_page([copy], out)
    assert not (out / view.PAGE_FILE).exists()


def test_folder_of_other_files_is_left_alone(folder, tmp_path):
  (tmp_path / 'thesis.tex').write_text('Chapter 1')
  with pytest.raises(errors.UsageError, match='holds other files'):
    view.write_page([folder], tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def test_page_that_cannot_be_written_is_a_usage_error(folder, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.UsageError, match='cannot write.*--out'):
    view.write_page([folder], tmp_path / 'file' / 'page')


def test_page_of_no_world_is_an_error(tmp_path):
  with pytest.raises(errors.DataError, match='no world'):
    view.write_page([tmp_path])
  with pytest.raises(errors.UsageError, match='at least one world'):
    view.write_page([])

import dataclasses
import re

import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.worlds import verify, view
from vhop_jax.worlds import world as world_lib


@pytest.fixture(scope='module')
def page(folder, tmp_path_factory):
  out = tmp_path_factory.mktemp('view') / 'page.html'
  assert view.write_page(folder, out) == out
  return out.read_text(encoding='utf-8')


def test_page_shows_every_family_query_and_image(page, world):
  assert page.count('<section') == world.spec.families
  for query in world.queries:
    assert f'<b>{query.id}</b>' in page
    assert query.instruction in page
    assert f'Answers: {", ".join(query.answers)}' in page
  for image in world.images:
    assert f'<span class="id">{image.id}</span>' in page


def test_world_without_chains_shows_those_found(world):
  pixels = np.zeros((len(world.images), 32, 48, 3), np.uint8)
  bare = dataclasses.replace(
    world,
    spec=dataclasses.replace(world.spec, with_chains=False),
    queries=tuple(dataclasses.replace(q, chains=()) for q in world.queries),
  )
  note = ' without chains (the verifier found these)'
  page = view.make_page(bare, pixels)
  assert page.count(note) == 1
  assert page.replace(note, '') == view.make_page(world, pixels)


def test_page_needs_no_other_file(page):
  assert not re.search(r'(src|href)="(?!data:image/jpeg;base64,)', page)
  assert page.count('<img') == page.count('loading="lazy"')


def test_page_can_be_cut_to_a_few_families(folder, tmp_path):
  path = view.write_page(folder, tmp_path / 'few.html', families=1)
  assert path.read_text(encoding='utf-8').count('<section') == 1


def test_traps_are_labelled_by_what_is_wrong(world):
  search = verify.Search(world)
  for query in world.queries:
    labels = view.label_distractors(search, query)
    kinds = {
      text.rpartition(',')[0] for texts in labels.values() for text in texts
    }
    assert {'wrong relation', 'wrong colour', 'dead end'} <= kinds
    on_chain = {image for chain in query.chains for image in chain}
    assert not on_chain & labels.keys()


def test_page_that_cannot_be_written_is_a_usage_error(folder, tmp_path):
  with pytest.raises(errors.UsageError, match='cannot write'):
    view.write_page(folder, tmp_path / 'nowhere' / 'page.html')


def test_page_of_no_world_is_a_data_error(tmp_path):
  with pytest.raises(errors.DataError, match='no world'):
    view.write_page(tmp_path)


def test_page_lies_in_the_world_by_default(folder):
  assert view.write_page(folder) == folder / view.PAGE_FILE
  assert verify.verify_folder(folder) == []
  assert world_lib.load_world(folder).queries

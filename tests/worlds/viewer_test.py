"""Opens a page of two worlds in Chromium, and clicks, types and scrolls."""

import json

import pytest

from tests.worlds import browser as browser_lib
from vhop_jax.worlds import builder, view
from vhop_jax.worlds import world as world_lib

# Of what is on the page; what is hidden has no text.
CAPTIONS = (
  "[...document.querySelectorAll('figure.trap figcaption')]"
  '.map(caption => caption.innerText)'
)
QUERIES = (
  "[...document.querySelectorAll('.query')].map(query => query.dataset.query)"
)
FAMILIES = (
  "[...document.querySelectorAll('.family h2')].map(title => title.innerText)"
)
COUNT = "document.querySelector('#count').textContent"


@pytest.fixture(scope='module')
def easy_folder(pool, tmp_path_factory):
  out = tmp_path_factory.mktemp('worlds') / 'easy'
  spec = world_lib.Spec(
    level=2, families=2, seed=5, resolution=48, with_chains=False
  )
  builder.build_world(spec, out, pool=pool, progress=False)
  return out


@pytest.fixture(scope='module')
def path(folder, easy_folder, tmp_path_factory):
  out = tmp_path_factory.mktemp('view') / 'page'
  return view.write_page([folder, easy_folder], out)


@pytest.fixture(scope='module')
def browser():
  with browser_lib.open_browser() as page:
    yield page


@pytest.fixture
def page(browser, path):
  """Returns the page, just opened in a window that has room for all of it."""
  browser.open(path, width_px=1440, height_px=8000)
  browser.wait("document.querySelectorAll('.family h2').length === 6")
  return browser


@pytest.fixture(scope='module')
def query(world):
  """Returns a query of family 2."""
  return next(query for query in world.queries if query.family == 2)


def test_families_stand_side_by_side(page, world):
  assert page.evaluate(COUNT) == '6 families, 12 queries'
  titles = page.evaluate(FAMILIES)
  assert [title.split()[:3] for title in titles] == [
    *(['Family', str(i), 'L4'] for i in range(4)),
    *(['Family', str(i), 'L2'] for i in range(2)),
  ]
  assert ['stored without chains' in title for title in titles] == [
    *[False] * 4,
    *[True] * 2,
  ]
  tops, lefts = page.evaluate(
    "['top', 'left'].map(side => [...document.querySelectorAll('.family')]"
    '.slice(0, 2).map(card => card.getBoundingClientRect()[side]))'
  )
  assert tops[0] == tops[1]
  assert lefts[0] < lefts[1]


def test_query_shows_its_prompt_answers_and_what_each_hop_asks(page, query):
  shown = page.evaluate(
    f'document.querySelector(\'[data-query="{query.id}"]\').innerText'
  )
  assert query.instruction in ' '.join(shown.split())
  assert 'precise' in shown
  assert f'answer {query.answers[0]}' in shown
  heads = page.evaluate(
    f'[...document.querySelectorAll(\'[data-query="{query.id}"] .head\')]'
    '.map(head => head.innerText)'
  )
  assert heads == [
    f'hop {i} {hop.relation.replace("of", " of")} {hop.colour}'
    for i, hop in enumerate(query.hops, start=1)
  ]


def test_each_link_is_an_arrow_between_its_images_with_its_words(page, world):
  entry = view.make_entry(world)
  [values] = [
    values
    for family in entry['families']
    for values in family['queries']
    if values['id'] == '2_leftof'
  ]
  nodes = [view.Node(*row) for row in values['tree']]
  boxes, arrows, labels = page.evaluate(
    """(() => {
      const graph = document.querySelector('[data-query="2_leftof"] .graph');
      const places = selector => [...graph.querySelectorAll(selector)].map(
        element => element.getBoundingClientRect().toJSON());
      return [
        places('figure img'), places('path'),
        [...graph.querySelectorAll('.label')].map(label => label.innerText),
      ];
    })()"""
  )
  middle = [(box['top'] + box['bottom']) / 2 for box in boxes]
  assert len(boxes) == len(nodes)
  # An arrow goes from the right edge of one image to the left edge of another,
  # and its head is as high as the middle of that.
  expected = sorted(
    (boxes[node.parent]['right'], box['left'], middle[node.parent], y)
    for node, box, y in zip(nodes[1:], boxes[1:], middle[1:], strict=True)
  )
  found = sorted(
    (arrow['left'], arrow['right'], arrow['top'], arrow['bottom'])
    for arrow in arrows
  )
  assert len(found) == len(expected) > 3
  for places, arrow in zip(expected, found, strict=True):
    assert arrow == pytest.approx(places, abs=6)
  assert [' '.join(label.split()) for label in labels] == [
    f'{node.carried} {node.relation} {node.other}' for node in nodes[1:]
  ]


def test_pictures_do_not_cover_each_other(page):
  overlaps = page.evaluate(
    """[...document.querySelectorAll('.graph')].flatMap(graph => {
      const boxes = [...graph.querySelectorAll('figure')].map(
        figure => figure.getBoundingClientRect());
      return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
        a.left < b.right && b.left < a.right
        && a.top < b.bottom && b.top < a.bottom));
    }).length"""
  )
  assert overlaps == 0


def test_families_and_pictures_are_loaded_when_one_comes_to_them(browser, path):
  browser.open(path, width_px=800, height_px=300)
  drawn = (
    "[...document.querySelectorAll('.family')].map(card =>"
    ' card.childElementCount > 0)'
  )
  browser.wait(f'{drawn}[0]')
  assert browser.evaluate(drawn)[2:] == [False] * 4
  browser.evaluate('scrollTo(0, document.body.scrollHeight)')
  last = "document.querySelector('.family:last-child')"
  browser.wait(
    f"{last}.querySelectorAll('img').length > 0 &&"
    f" [...{last}.querySelectorAll('.query:last-child img')]"
    '.every(image => image.complete && image.naturalWidth === 48)'
  )
  # What was left behind is taken down again.
  browser.wait(f'!{drawn}[0]')


def test_kind_of_distractor_leaves_only_those(page):
  assert len(set(page.evaluate(CAPTIONS))) > 2
  page.click('.chip[data-value="dead end"]')
  assert page.evaluate(COUNT) == '4 families, 8 queries'
  page.wait(f'{FAMILIES}.length === 4')
  assert set(page.evaluate(CAPTIONS)) == {'dead end'}
  # The chains stay.
  assert page.evaluate("document.querySelectorAll('figure.valid').length") == 32
  page.click('.chip[data-value="dead end"]')
  page.wait(f'{FAMILIES}.length === 6')


def test_level_leaves_only_its_worlds(page):
  page.click('.chip[data-value="2"]')
  page.wait(f'{FAMILIES}.length === 2')
  assert page.evaluate(COUNT) == '2 families, 4 queries'
  page.click('#clear')
  page.wait(f'{FAMILIES}.length === 6')


def test_search_finds_queries_families_images_and_words(page, query, world):
  page.type('#search', query.id)
  page.wait(f'{QUERIES}.length === 1')
  assert page.evaluate(QUERIES) == [query.id]

  page.type('#search', 'Family 3')
  page.wait(f'{FAMILIES}.length === 1')
  assert page.evaluate(FAMILIES)[0].startswith('Family 3')

  # Both worlds may have an image of this id.
  page.type('#search', f'L4 {query.answers[0]}')
  page.wait("document.querySelectorAll('figure.found').length > 0")
  assert page.evaluate(FAMILIES)[0].startswith('Family 2')
  assert set(
    page.evaluate(
      "[...document.querySelectorAll('figure.found')]"
      '.map(figure => figure.dataset.image)'
    )
  ) == {query.answers[0]}

  thing = world.images[world.index(query.image)].objects[0]
  page.type('#search', f'L4 {thing.type.replace("_", " ")} {thing.colour}')
  page.wait(f"{FAMILIES}.some(title => title.startsWith('Family 2'))")

  page.type('#search', 'unheard-of')
  page.wait("document.querySelector('#none').offsetHeight > 0")
  assert page.evaluate(FAMILIES) == []
  page.type('#search', '')
  page.wait(f'{FAMILIES}.length === 6')


def test_filters_are_kept_in_the_address(page, path):
  page.click('.chip[data-value="4"]')
  page.click('.chip[data-value="wrong colour"]')
  page.type('#search', '1_rightof')
  page.wait(f'{QUERIES}.length === 1')
  fragment = page.evaluate('location.hash')
  page.open(path, fragment=fragment)
  page.wait(f'{QUERIES}.length === 1')
  assert page.evaluate(QUERIES) == ['1_rightof']
  assert page.evaluate("document.querySelector('#search').value") == '1_rightof'
  checked = "[...document.querySelectorAll('.chip:has(:checked)')]"
  assert page.evaluate(f'{checked}.map(chip => chip.dataset.value)') == [
    '4',
    'wrong colour',
  ]


def test_picture_is_shown_large_with_its_parts(page, query, world):
  image = query.chains[0][0]
  page.click(f'[data-query="{query.id}"] [data-image="{image}"] button')
  page.wait("document.querySelector('#detail img')?.naturalWidth === 48")
  shown = page.evaluate("document.querySelector('#detail').innerText")
  assert image in shown
  rows = page.evaluate(
    "[...document.querySelectorAll('#detail tr')]"
    '.map(row => [...row.cells].map(cell => cell.innerText))'
  )
  assert [query.id, 'hop 1', 'on the chain'] in rows
  sibling = next(q for q in world.queries if q.family == 2 and q != query)
  assert [sibling.id, 'hop 1', 'wrong relation'] in rows

  family = sorted(i.id for i in world.images if i.family == 2)
  following = family[(family.index(image) + 1) % len(family)]
  page.press('ArrowRight', 39)
  page.wait(
    "document.querySelector('#detail h2').innerText.startsWith"
    f'({json.dumps(following)})'
  )
  page.click('#detail .close')
  page.wait("!document.querySelector('#detail').open")


def test_size_makes_pictures_larger(page):
  width = "document.querySelector('.graph img')?.offsetWidth"
  before = page.evaluate(width)
  page.click('#size')  # The middle of the slider, right of where it stands.
  page.wait(f'{width} > {before}')


def test_narrow_screen_shows_hops_below_each_other(browser, path):
  browser.open(path, width_px=390, height_px=800)
  browser.wait("document.querySelector('.graph img')")
  assert browser.evaluate('document.documentElement.scrollWidth') <= 390
  places = browser.evaluate(
    "[...document.querySelector('.graph').querySelectorAll('figure.valid')]"
    '.map(figure => figure.getBoundingClientRect())'
    '.map(box => [box.left, box.top])'
  )
  lefts, tops = zip(*places, strict=True)
  assert len(set(lefts)) == 1
  assert list(tops) == sorted(set(tops))


def test_missing_browser_is_said_with_what_to_do(monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(RuntimeError, match='apt-get install -y chromium'):
    with browser_lib.open_browser():
      pass

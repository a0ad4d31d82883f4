"""Writes one static HTML page on which a person looks through a world."""

import base64
import collections
from collections.abc import Sequence
import html
import io
import os
import pathlib

import numpy as np
from PIL import Image

from vhop_jax import errors
from vhop_jax.worlds import verify
from vhop_jax.worlds import world as world_lib

PAGE_FILE = 'view.html'
THUMBNAIL_PX = 192
JPEG_QUALITY = 85

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --gold: #2a8f3c;
  --bad: #b4451f; }
body { font: 14px/1.4 system-ui, sans-serif; margin: 0 auto; padding: 1rem;
  max-width: 90rem; }
header { position: sticky; top: 0; background: Canvas; padding: .5rem 0;
  border-bottom: 1px solid var(--line); z-index: 1; }
h1 { font-size: 1.2rem; margin: 0 0 .3rem; }
input { font: inherit; width: min(30rem, 90%); padding: .3rem .5rem; }
section { border-bottom: 1px solid var(--line); padding: .8rem 0; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
.sides { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); }
.query p { margin: .1rem 0 .4rem; }
.row { display: flex; flex-wrap: wrap; gap: .5rem; align-items: start; }
figure { margin: 0; width: 8.6rem; font-size: .75rem; }
img { width: 100%; display: block; border: 3px solid var(--line);
  border-radius: 4px; box-sizing: border-box; background: #8882; }
.gold img { border-color: var(--gold); }
.distractor img { border-color: var(--bad); border-style: dashed; }
.id { opacity: .7; } .kind { color: var(--bad); font-weight: 600; }
.hop { color: var(--gold); font-weight: 600; }
.answers { font-size: .85rem; opacity: .85; }
"""

_SCRIPT = """
const box = document.querySelector('input');
const sections = [...document.querySelectorAll('section')];
const count = document.querySelector('output');
function filter() {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const section of sections) {
    const hit = words.every(word => section.dataset.text.includes(word));
    section.hidden = !hit;
    shown += hit;
  }
  count.textContent = `${shown} of ${sections.length} families`;
}
box.addEventListener('input', filter);
filter();
"""


def write_page(
  folder: str | os.PathLike[str],
  out: str | os.PathLike[str] | None = None,
  *,
  families: int | None = None,
) -> pathlib.Path:
  """Writes the page; pictures are inside it, so that it can be sent around.

  Args:
    folder: a world.
    out: the page; None puts it inside the world.
    families: how many families to show; None shows all.

  Returns:
    Where the page lies.

  Raises:
    DataError: there is no world, or it is damaged.
    UsageError: the page cannot be written there.
  """
  world = world_lib.load_world(folder)
  pixels = world_lib.read_pixels(folder)
  path = pathlib.Path(out) if out else pathlib.Path(folder) / PAGE_FILE
  try:
    path.write_text(make_page(world, pixels, families), encoding='utf-8')
  except OSError as error:
    raise errors.UsageError(
      f'cannot write {path} ({error.strerror}); choose another --out'
    ) from None
  return path


def make_page(
  world: world_lib.World, pixels: np.ndarray, families: int | None = None
) -> str:
  """Returns the HTML of the page.

  Of a world without chains it shows those that the verifier finds.
  """
  spec = world.spec
  world = verify.restore_chains(world)
  search = verify.Search(world)
  members = collections.defaultdict(list)
  for image in world.images:
    members[image.family].append(image)
  queries = collections.defaultdict(list)
  for query in world.queries:
    queries[query.family].append(query)
  sections = [
    _make_family(search, pixels, number, queries[number], members[number])
    for number in sorted(members)[:families]
  ]
  title = html.escape(spec.name)
  note = (
    '' if spec.with_chains else ' without chains (the verifier found these)'
  )
  return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>{_STYLE}</style></head><body>
<header><h1>{title}</h1>
<div>Level L{spec.level}, {spec.prompt} prompts, {spec.hops} hops, seed
{spec.seed}; {len(world.images)} images, {len(world.queries)} queries{note}.
</div>
<label>Filter <input type="search"
placeholder="words, e.g. kettle red 19_leftof"></label> <output></output>
</header>
{''.join(sections)}
<script>{_SCRIPT}</script></body></html>
"""


def label_distractors(
  search: verify.Search, query: world_lib.Query
) -> dict[str, list[str]]:
  """Returns for each image beside the chains what kind of trap it is.

  Args:
    search: the world's search.
    query: the query whose traps are asked for.

  Returns:
    Labels such as 'dead end, hop 1' by image id.
  """
  labels: dict[str, list[str]] = collections.defaultdict(list)
  on_chain = {image for chain in query.chains for image in chain}
  for chain in query.chains:
    for i, (hop, _, _, others) in enumerate(search.follow(query, chain)):
      for step in others:
        if step.image in on_chain:
          continue
        wrong = []
        if search.needs_relation and step.relation != hop.relation:
          wrong.append('wrong relation')
        if search.needs_colour and step.other.colour != hop.colour:
          wrong.append('wrong colour')
        kind = ' and '.join(wrong) or 'dead end'
        label = f'{kind}, hop {i + 1}'
        if label not in labels[step.image]:
          labels[step.image].append(label)
  return labels


def _make_family(
  search: verify.Search,
  pixels: np.ndarray,
  number: int,
  queries: Sequence[world_lib.Query],
  images: Sequence[world_lib.ImageRecord],
) -> str:
  """Returns the HTML of one family."""
  # Each picture is stored once a family, and shown wherever it is needed.
  sources = {
    image.id: _encode(pixels[search.world.index(image.id)]) for image in images
  }
  text = ' '.join(
    [f'family {number}']
    + [f'{query.id} {query.instruction}' for query in queries]
    + [f'{image.id} ' + ' '.join(_describe(image)) for image in images]
  ).lower()
  sides = ''.join(
    _make_query(search, sources, query, images) for query in queries
  )
  return (
    f'<section data-text="{html.escape(text)}"><h2>Family {number}</h2>'
    f'<div class="sides">{sides}</div></section>\n'
  )


def _make_query(
  search: verify.Search,
  sources: dict[str, str],
  query: world_lib.Query,
  images: Sequence[world_lib.ImageRecord],
) -> str:
  """Returns the HTML of one query: its chain first, then its traps."""
  rows = []
  for chain in query.chains:
    figures = [_make_figure(search, sources, query.image, 'query image', '')]
    for i, (_, _, taken, _) in enumerate(search.follow(query, chain)):
      caption = (
        f'<span class="hop">{i + 1}: {taken.relation} {taken.other.colour}'
        '</span>'
      )
      figures.append(
        _make_figure(search, sources, taken.image, caption, 'gold')
      )
    rows.append(f'<div class="row">{"".join(figures)}</div>')
  labels = label_distractors(search, query)
  on_chain = {image for chain in query.chains for image in chain}
  siblings = {
    image
    for other in search.world.queries
    if other.family == query.family
    for chain in other.chains
    for image in chain
  }
  traps: list[str] = []
  rest: list[str] = []
  for image in images:
    if image.id in on_chain or image.id == query.image:
      continue
    kinds = labels.get(image.id, [])
    caption = f'<span class="kind">{"<br>".join(kinds)}</span>'
    figure = _make_figure(
      search,
      sources,
      image.id,
      caption if kinds else 'sibling chain' if image.id in siblings else '',
      'distractor' if kinds else '',
    )
    (traps if kinds else rest).append(figure)
  return (
    f'<div class="query"><b>{html.escape(query.id)}</b>'
    f'<p>{html.escape(query.instruction)}</p>{"".join(rows)}'
    f'<p class="answers">Answers: {", ".join(query.answers)}</p>'
    f'<div class="row">{"".join(traps + rest)}</div></div>'
  )


def _make_figure(
  search: verify.Search,
  sources: dict[str, str],
  image_id: str,
  caption: str,
  style: str,
) -> str:
  """Returns the HTML of one picture with its caption."""
  image = search.images[image_id]
  objects = html.escape(' | '.join(_describe(image)))
  return (
    f'<figure class="{style}"><img loading="lazy" src="{sources[image_id]}"'
    f' alt="{objects}"><figcaption>{caption} <span class="id">{image_id}'
    f'</span><br>{objects}</figcaption></figure>'
  )


def _describe(image: world_lib.ImageRecord) -> list[str]:
  """Returns a few words on each object, from left to right."""
  return [
    f'{thing.colour} {thing.pattern} {thing.type}'.replace('_', ' ')
    for thing in image.objects
  ]


def _encode(picture: np.ndarray) -> str:
  """Returns a small picture as a data address."""
  image = Image.fromarray(picture)
  image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
  buffer = io.BytesIO()
  image.save(buffer, 'jpeg', quality=JPEG_QUALITY)
  data = base64.b64encode(buffer.getvalue()).decode()
  return f'data:image/jpeg;base64,{data}'

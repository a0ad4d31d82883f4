"""Writes static HTML on which a person looks through worlds.

The page lies in a folder of its own: `index.html` with style and script,
`data.js` with all that is written about the families, and one small picture
an image. It opens from disk; the script draws what is on the screen and
nothing else, so that thousands of images are no burden.

What leads where is taken from the verifier's search and so holds at any level:
nothing here knows which traps there are.
"""

import collections
from collections.abc import Collection, Sequence
import dataclasses
import importlib.resources
import os
import pathlib
import shutil
from typing import Any

import numpy as np
from PIL import Image

from vhop_jax import errors
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import verify
from vhop_jax.worlds import world as world_lib

PAGE_FOLDER = 'view'
PAGE_FILE = 'index.html'
DATA_FILE = 'data.js'
IMAGES_FOLDER = 'images'
THUMBNAIL_PX = 256
JPEG_QUALITY = 92
DEAD_END = 'dead end'
TWIN = 'look-alike'

# The page comes last: a folder that has it is whole.
_ASSETS = ('viewer.css', 'graph.js', 'viewer.js', PAGE_FILE)


@dataclasses.dataclass(frozen=True)
class Node:
  """Holds one image in the tree of all that a query meets.

  Attributes:
    image: its id.
    parent: position in the tree of the image it is reached from; -1 for the
      query image.
    carried: words for the object that links the two, '' for the query image.
    relation: words for where that object stands.
    other: words for the object beside it, or for the query image's own.
    colour: that object's colour.
    kinds: what is wrong with it, such as 'wrong colour' or 'dead end'; nothing
      where a valid chain goes through it.
    hop: how many links it is away from the query image.
  """

  image: str
  parent: int
  carried: str
  relation: str
  other: str
  colour: str
  kinds: tuple[str, ...]
  hop: int


def write_page(
  folders: Sequence[str | os.PathLike[str]],
  out: str | os.PathLike[str] | None = None,
  *,
  families: int | None = None,
) -> pathlib.Path:
  """Writes one page on one or more worlds.

  Args:
    folders: the worlds.
    out: the page's folder; None takes `view` inside the first world.
    families: how many families of each world to show; None shows all.

  Returns:
    The page, a file that a browser opens.

  Raises:
    DataError: a folder has no world, or a damaged one.
    UsageError: no world is given, or the page cannot be written there.
  """
  if not folders:
    raise errors.UsageError('name at least one world to view')
  target = pathlib.Path(out) if out else pathlib.Path(folders[0]) / PAGE_FOLDER
  entries, chosen = [], []
  for folder in folders:
    world = world_lib.load_world(folder)
    entries.append(make_entry(world, families))
    chosen.append(_list_images(entries[-1]))
  try:
    _clear(target)
    data = {'worlds': entries, 'colours': _make_swatches()}
    (target / DATA_FILE).write_text(
      f'const VIEW = {world_lib.dump_json(data)};\n', encoding='utf-8'
    )
    for i, (folder, images) in enumerate(zip(folders, chosen, strict=True)):
      _write_images(folder, target / IMAGES_FOLDER / str(i), images)
    assets = importlib.resources.files('vhop_jax.worlds') / 'viewer'
    for name in _ASSETS:
      (target / name).write_bytes((assets / name).read_bytes())
  except OSError as error:
    raise errors.UsageError(
      f'cannot write {target} ({error.strerror}); choose another --out'
    ) from None
  return target / PAGE_FILE


def make_entry(
  world: world_lib.World, families: int | None = None
) -> dict[str, Any]:
  """Makes all that the page says about a world, as JSON-compatible values.

  Args:
    world: whether it has chains makes no difference.
    families: how many families to show; None shows all.
  """
  spec = world.spec
  search = verify.Search(world)
  members = collections.defaultdict(list)
  for image in world.images:
    members[image.family].append(image)
  queries = collections.defaultdict(list)
  for query in world.queries:
    queries[query.family].append(query)
  return {
    'name': spec.name,
    'level': spec.level,
    'prompt': spec.prompt,
    'hops': spec.hops,
    'seed': spec.seed,
    'with_chains': spec.with_chains,
    'families': [
      {
        'number': number,
        'images': {
          image.id: [prompt_lib.describe(thing) for thing in image.objects]
          for image in members[number]
        },
        'queries': [
          _make_query(search, query, members[number])
          for query in queries[number]
        ],
      }
      for number in sorted(members)[:families]
    ],
  }


def grow_tree(search: verify.Search, query: world_lib.Query) -> list[Node]:
  """Finds all images that a query meets, valid or not, and how.

  From the query image and from each image that satisfies all local checks the
  tree goes on to all images that show the carried object again.

  Args:
    search: the world's search.
    query: where to start, and what to ask for.

  Returns:
    The query image, then the others, each after the one it is reached from.
  """
  start = search.get_start(query)
  nodes = [
    Node(
      image=query.image,
      parent=-1,
      carried='',
      relation='',
      other=_describe(start),
      colour=start.colour,
      kinds=(),
      hop=0,
    )
  ]
  _grow(search, query, nodes, start, ())
  return nodes


def _describe(thing: objects_lib.Object) -> str:
  """Returns a few words on an object, with what is printed on it."""
  printed = thing.logo or thing.text
  return prompt_lib.describe(thing) + (f' [{printed}]' if printed else '')


def _grow(
  search: verify.Search,
  query: world_lib.Query,
  nodes: list[Node],
  carried: objects_lib.Object,
  seen: tuple[str, ...],
) -> bool:
  """Adds all that follows the last node; returns whether a chain ends in it."""
  hop = query.hops[len(seen)]
  parent = len(nodes) - 1
  is_alive = False
  found = [
    (step, search.find_faults(step, hop))
    for step in search.find_steps(query, search.get_mark(carried), seen)
  ]
  found += [
    (step, [TWIN, *search.find_faults(step, hop)])
    for step in search.find_twins(query, carried)
  ]
  for step, faults in found:
    position = len(nodes)
    nodes.append(
      Node(
        image=step.image,
        parent=parent,
        carried=_describe(carried),
        relation=prompt_lib.RELATION_WORDS[step.relation],
        other=_describe(step.other),
        colour=step.other.colour,
        kinds=tuple(faults),
        hop=len(seen) + 1,
      )
    )
    if faults:
      continue
    path = (*seen, step.image)
    if len(path) == len(query.hops) or _grow(
      search, query, nodes, step.other, path
    ):
      is_alive = True
    else:
      nodes[position] = dataclasses.replace(nodes[position], kinds=(DEAD_END,))
  return is_alive


def _make_query(
  search: verify.Search,
  query: world_lib.Query,
  images: Sequence[world_lib.ImageRecord],
) -> dict[str, Any]:
  """Makes what the page says about a query of a family."""
  nodes = grow_tree(search, query)
  met = {node.image for node in nodes}
  return {
    'id': query.id,
    'text': query.instruction,
    'answers': query.answers,
    'asks': [
      [
        prompt_lib.RELATION_WORDS[hop.relation]
        if search.needs_relation
        else '',
        hop.colour if search.needs_colour else '',
      ]
      for hop in query.hops
    ],
    'tree': [list(dataclasses.astuple(node)) for node in nodes],
    'rest': [
      [image.id, _find_likeness(search, nodes, image)]
      for image in images
      if image.id not in met
    ],
  }


def _find_likeness(
  search: verify.Search, nodes: Sequence[Node], image: world_lib.ImageRecord
) -> list[str]:
  """Says in what an image off the tree is like those on valid chains."""
  linking = [
    thing
    for node in nodes
    if not node.kinds
    for thing in search.images[node.image].objects
  ]
  shown = {thing.uid for thing in linking}
  others = [thing for thing in image.objects if thing.uid not in shown]
  return [
    f'same {name}'
    for name in ('type', 'colour')
    if {getattr(thing, name) for thing in linking}
    & {getattr(thing, name) for thing in others}
  ]


def _list_images(entry: dict[str, Any]) -> set[str]:
  """Returns the ids of all images that a world's families show."""
  return {image for family in entry['families'] for image in family['images']}


def _make_swatches() -> dict[str, str]:
  """Returns each named colour as HTML writes it."""
  return {
    name: '#' + bytes(round(255 * value) for value in rgb).hex()
    for name, rgb in objects_lib.COLOURS.items()
  }


def _clear(target: pathlib.Path) -> None:
  """Makes the page's folder, empty but for files that are written anew.

  Raises:
    UsageError: the folder holds something else than an older page.
    OSError: it cannot be made.
  """
  if target.is_dir() and any(target.iterdir()):
    # The data are the first file of a page, so one that was interrupted is
    # known by them, too.
    if not (target / DATA_FILE).exists():
      raise errors.UsageError(
        f'{target} holds other files than a page; choose another --out'
      )
    (target / PAGE_FILE).unlink(missing_ok=True)
    shutil.rmtree(target / IMAGES_FOLDER, ignore_errors=True)
  target.mkdir(parents=True, exist_ok=True)


def _write_images(
  folder: str | os.PathLike[str],
  target: pathlib.Path,
  chosen: Collection[str],
) -> None:
  """Writes a small picture of each chosen image of a world, one at a time."""
  target.mkdir(parents=True)
  count = world_lib.read_header(folder)['sizes']['images']
  for i, picture in enumerate(world_lib.iterate_pixels(folder)):
    image_id = world_lib.format_id(i, count)
    if image_id in chosen:
      _write_thumbnail(target / f'{image_id}.jpg', picture)


def _write_thumbnail(path: pathlib.Path, picture: np.ndarray) -> None:
  """Writes a picture that is at most `THUMBNAIL_PX` wide."""
  image = Image.fromarray(picture)
  image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
  # Colours are what people look for here, so they keep every pixel.
  image.save(path, 'jpeg', quality=JPEG_QUALITY, subsampling=0)

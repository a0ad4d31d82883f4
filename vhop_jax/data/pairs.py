"""Renders endless batches for pretraining the standard embedding model.

A group is some objects, each pictured with several others of the group;
whatever shows the same object is a pair. A batch is several groups with
single-hop instructions and captions drawn over them. Rendering costs as much
as learning, so a window of groups is used a few times, in other company and
with other texts, before the next window comes. None of it belongs to a
benchmark world, and there is no chain to follow.

In some groups a logo makes the pair: then every picture shows objects of its
own, and those that bear one logo go together. What makes a pair is called a
mark: an object itself, or a logo.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from vhop_jax import errors
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.worlds import (
  arrange,
  assets,
  extras,
  geometry,
  level,
  prints,
  prompt,
  render_pool,
  scene,
)
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds.assets import household, procedural

SIDES = ('left', 'right')
_FEW_TYPES = 3
_FEW_COLOURS = 2
_FEW_DRESSES = 3
_MAX_CLUTTER = 3


@dataclasses.dataclass(frozen=True)
class PairSpec:
  """Fixes the batches: batch i is a function of this and of i.

  Attributes:
    seed: of everything drawn.
    resolution: image width in pixels.
    groups: groups of objects in a batch.
    window: batches' worth of groups that are mixed.
    repeats: how many times a window is gone through.
    group_size: objects of a group, even.
    views: two-object images that show each object.
    singles: images of one object alone, per group.
    queries: single-hop queries in a batch.
    captions: captions in a batch.
    hard_frac: share of groups drawn from few types or few colours.
    dress_frac: share of groups, before that, whose objects of any type share
      few dresses: both colours and the pattern. Models by artists have none.
    swap_frac: share of views that show the pairs of the view before with
      their sides exchanged, so that only the relation tells them apart.
    alone_frac: share of queries that start from an object alone, as routes do.
    vague_frac: share of queries that name neither relation nor colour.
    partial_frac: share of queries that name only one of the two.
    twin_frac: share of objects that are look-alikes of one before, in groups
      where objects make the pairs.
    logo_frac: share of groups in which logos make the pairs.
    household_frac: share of groups of models by artists (`make assets`).
    front_frac: share of pictures with a small further object in front.
    clutter_frac: share of the others with one to three such objects around.
    strong_frac: share of pictures with more light and camera changes and
      textured grounds.
    max_query_tokens: S of the queries.
    max_caption_tokens: S of the captions.
  """

  seed: int
  resolution: int
  groups: int
  window: int
  repeats: int
  group_size: int
  views: int
  singles: int
  queries: int
  captions: int
  hard_frac: float
  dress_frac: float
  swap_frac: float
  alone_frac: float
  vague_frac: float
  partial_frac: float
  twin_frac: float
  logo_frac: float
  household_frac: float
  front_frac: float
  clutter_frac: float
  strong_frac: float
  max_query_tokens: int
  max_caption_tokens: int

  def __post_init__(self) -> None:
    if self.group_size % 2:
      raise errors.UsageError(
        f'data.group_size={self.group_size} must be even: objects are pictured'
        ' in pairs'
      )
    if self.views < 2:
      raise errors.UsageError(
        f'data.views={self.views} must be at least 2: a query leads to another'
        ' picture of its object'
      )
    if self.singles > self.group_size:
      raise errors.UsageError(
        f'data.singles={self.singles} exceeds data.group_size={self.group_size}'
      )
    if self.logo_frac + self.household_frac > 1:
      raise errors.UsageError(
        f'data.logo_frac={self.logo_frac} and'
        f' data.household_frac={self.household_frac} are shares of the groups:'
        ' their sum is at most 1'
      )
    if self.alone_frac and not self.singles:
      raise errors.UsageError(
        f'data.alone_frac={self.alone_frac} needs pictures of one object:'
        ' raise data.singles or set it to 0'
      )


@dataclasses.dataclass(frozen=True)
class _Picture:
  """Holds one image.

  Attributes:
    members: which marks of the batch it shows, left to right.
    things: the objects that bear them.
    printed: what makes its links: '' or 'logo'.
  """

  members: tuple[int, ...]
  things: tuple[objects_lib.Object, ...]
  printed: str


@dataclasses.dataclass(frozen=True)
class Group:
  """Holds the rendered pictures of a group.

  Attributes:
    members: for each picture the numbers of its marks, left to right.
    things: for each picture the objects that bear them.
    pixels: uint8 [pictures, H, W, 3].
    printed: what makes the pairs: '' for the objects themselves, or 'logo'.
  """

  members: tuple[tuple[int, ...], ...]
  things: tuple[tuple[objects_lib.Object, ...], ...]
  pixels: np.ndarray
  printed: str = ''


def make_group(task: tuple[PairSpec, int]) -> Group:
  """Draws and renders one group; the same task gives the same group.

  Args:
    task: the spec and the group's number.
  """
  spec, number = task
  rng = np.random.default_rng([spec.seed, number])
  # Drawn apart, so that the rest does not depend on the shares.
  kind = np.random.default_rng([spec.seed, number, 1])
  draw = kind.random()
  is_household = draw < spec.household_frac
  pack = geometry.get_pack(
    household.NAME if is_household else procedural.PROCEDURAL.name
  )
  # Models by artists are too slow to load for a new one in each picture.
  is_printed = not is_household and draw < spec.household_frac + spec.logo_frac
  printed = 'logo' if is_printed else ''
  if printed:
    members = _sample_members(spec, rng)
    things = _sample_bearers(spec, rng, number, pack, members)
  else:
    drawn = _sample_objects(spec, rng, number, pack)
    members = _sample_members(spec, rng)
    things = [tuple(drawn[m] for m in row) for row in members]
  renderer = render_pool.get_renderer(spec.resolution)
  looks = np.random.default_rng([spec.seed, number, 3])
  pixels = np.stack(
    [
      renderer.render(
        _sample_scene(
          spec, rng, looks, pack, f'pretrain-{spec.seed}/g{number}/e{i}', row
        )
      )
      for i, row in enumerate(things)
    ]
  )
  return Group(tuple(members), tuple(things), pixels, printed)


def _sample_scene(
  spec: PairSpec,
  rng: np.random.Generator,
  looks: np.random.Generator,
  pack: assets.AssetPack,
  uid: str,
  things: tuple[objects_lib.Object, ...],
) -> scene.Scene:
  """Draws how objects stand, and what else does.

  Args:
    spec: has the shares.
    rng: decides the scene.
    looks: decides what is in it besides, and how much it varies.
    pack: where that comes from.
    uid: what the further objects' identities begin with.
    things: the objects, left to right.
  """
  shares = spec.strong_frac, spec.front_frac, spec.clutter_frac
  is_strong, has_front, has_clutter = (looks.random(3) < shares).tolist()
  has_clutter = has_clutter and not has_front
  style = arrange.Style(
    variation='strong' if is_strong else 'standard',
    has_foreground=has_front,
    has_clutter=has_clutter,
  )
  further = extras.sample_objects(
    looks,
    pack,
    uid=uid,
    foreign_to=things,
    foreground=has_front,
    clutter=int(looks.integers(1, 1 + _MAX_CLUTTER)) if has_clutter else 0,
  )
  try:
    return extras.sample_scene(rng, things, style, looks, further)
  except extras.NoRoomError:
    return arrange.sample_scene(rng, things, style)


def _sample_bearers(
  spec: PairSpec,
  rng: np.random.Generator,
  number: int,
  pack: assets.AssetPack,
  members: Sequence[tuple[int, ...]],
) -> list[tuple[objects_lib.Object, ...]]:
  """Draws for each picture the objects that bear its logos."""
  pool = prints.list_prints(level.LOGO_LEVEL, 'train')
  logos = rng.choice(len(pool), spec.group_size, replace=False)
  rows = []
  for i, row in enumerate(members):
    things: list[objects_lib.Object] = []
    while len(things) < len(row):
      mark = row[len(things)]
      types = pack.printable_types
      thing = pack.sample_object(
        rng,
        uid=f'pretrain-{spec.seed}/g{number}/i{i}.{mark}',
        type=types[rng.integers(len(types))],
      )
      thing = dataclasses.replace(thing, logo=pool[logos[mark]])
      if geometry.load_geometry(thing).print_area is not None:
        things.append(thing)
    rows.append(tuple(things))
  return rows


def _sample_objects(
  spec: PairSpec,
  rng: np.random.Generator,
  number: int,
  pack: assets.AssetPack,
) -> list[objects_lib.Object]:
  """Draws a group's objects.

  A hard group shares few types or colours; a dressed one few dresses, so that
  nothing but the type tells most of its objects apart.
  """
  twins = np.random.default_rng([spec.seed, number, 2])
  types: list[Any] = [None]
  colours: list[Any] = [None]
  draw = np.random.default_rng([spec.seed, number, 4]).random()
  is_dressed = (
    draw < spec.dress_frac and pack.name == procedural.PROCEDURAL.name
  )
  if not is_dressed and rng.random() < spec.hard_frac:
    if rng.random() < 0.5:
      types = list(rng.choice(pack.types, _FEW_TYPES, replace=False))
    else:
      names = list(objects_lib.COLOURS)
      colours = list(rng.choice(names, _FEW_COLOURS, replace=False))
  things: list[objects_lib.Object] = []
  for i in range(spec.group_size):
    uid = f'pretrain-{spec.seed}/g{number}/o{i}'
    if things and twins.random() < spec.twin_frac:
      original = things[twins.integers(len(things))]
      things.append(pack.sample_twin(twins, original, uid=uid))
      continue
    kind = types[rng.integers(len(types))]
    colour = colours[rng.integers(len(colours))]
    thing = pack.sample_object(
      rng,
      uid=uid,
      type=None if kind is None else str(kind),
      colour=None if colour is None else str(colour),
    )
    if is_dressed and i >= _FEW_DRESSES:
      first = things[i % _FEW_DRESSES]
      thing = dataclasses.replace(
        thing,
        colour=first.colour,
        second_colour=first.second_colour,
        pattern=first.pattern,
      )
    things.append(thing)
  return things


def _sample_members(
  spec: PairSpec, rng: np.random.Generator
) -> list[tuple[int, ...]]:
  """Pairs the objects of a group for each view, then shows some alone."""
  members: list[tuple[int, ...]] = []
  pairs = np.empty((0, 2), int)
  for _ in range(spec.views):
    if len(pairs) and rng.random() < spec.swap_frac:
      pairs = pairs[:, ::-1]
    else:
      pairs = rng.permutation(spec.group_size).reshape(-1, 2)
    members += [(int(a), int(b)) for a, b in pairs]
  alone = rng.permutation(spec.group_size)[: spec.singles]
  return members + [(int(a),) for a in alone]


def _relation(picture: _Picture, mark: int) -> str:
  return 'leftof' if picture.members[0] == mark else 'rightof'


def _other(picture: _Picture, mark: int) -> objects_lib.Object:
  return picture.things[1 - picture.members.index(mark)]


def _sample_sources(
  spec: PairSpec, rng: np.random.Generator, pictures: list[_Picture]
) -> list[int]:
  """Draws where the queries start, each picture in its turn."""
  alone = [i for i, p in enumerate(pictures) if len(p.members) == 1]
  paired = [i for i, p in enumerate(pictures) if len(p.members) == 2]
  alone_count = round(spec.alone_frac * spec.queries)
  sources: list[int] = []
  for pool, count in (
    (alone, alone_count),
    (paired, spec.queries - alone_count),
  ):
    if count:
      sources += [int(i) for i in np.resize(rng.permutation(pool), count)]
  return sources


def _sample_queries(
  spec: PairSpec,
  rng: np.random.Generator,
  pictures: list[_Picture],
) -> tuple[list[str], np.ndarray, np.ndarray]:
  """Draws single-hop queries.

  Returns:
    Instructions, the source image of each [Q], and positives bool [Q, N].
  """
  showing: dict[int, list[int]] = {}
  for i, picture in enumerate(pictures):
    if len(picture.members) == 2:
      for thing in picture.members:
        showing.setdefault(thing, []).append(i)
  texts: list[str] = []
  sources = _sample_sources(spec, rng, pictures)
  positives = np.zeros((spec.queries, len(pictures)), bool)
  for q, source in enumerate(sources):
    members = pictures[source].members
    place = int(rng.integers(len(members)))
    carried = members[place]
    targets = [i for i in showing[carried] if i != source]
    target = targets[rng.integers(len(targets))]
    relation: str | None = _relation(pictures[target], carried)
    colour: str | None = _other(pictures[target], carried).colour
    draw = rng.random()
    if draw < spec.vague_frac:
      relation = colour = None
    elif draw < spec.vague_frac + spec.partial_frac:
      if rng.random() < 0.5:
        relation = None
      else:
        colour = None
    for i in targets:
      fits = relation in (None, _relation(pictures[i], carried))
      other = _other(pictures[i], carried)
      positives[q, i] = fits and colour in (None, other.colour)
    side = SIDES[place] if len(members) == 2 else None
    texts.append(
      prompt.single_hop(
        rng,
        side=side,
        relation=relation,
        colour=colour,
        mark=pictures[source].printed,
      )
    )
  return texts, np.array(sources, np.int32), positives


def _sample_captions(
  spec: PairSpec,
  rng: np.random.Generator,
  pictures: list[_Picture],
) -> tuple[list[str], np.ndarray]:
  """Draws captions.

  Returns:
    Texts and positives bool [C, N]: all images that the text describes.
  """
  described = [
    tuple(prompt.describe(thing) for thing in picture.things)
    for picture in pictures
  ]
  texts = []
  positives = np.zeros((spec.captions, len(pictures)), bool)
  order = rng.permutation(len(pictures))
  for c in range(spec.captions):
    target = int(order[c % len(order)])
    texts.append(prompt.caption(rng, pictures[target].things))
    positives[c] = [names == described[target] for names in described]
  return texts, positives


def make_batch(
  spec: PairSpec,
  rng: np.random.Generator,
  groups: Sequence[Group],
  maker: sequence_lib.SequenceMaker,
) -> dict[str, np.ndarray]:
  """Joins groups and draws the texts.

  Returns:
    pixels uint8 [N, H, W, 3]; object int [N, 2], the batch's number of the
    left and of the right mark (the same one twice where it is alone);
    attributes int [N, 2, 4], labels of type, colour, second colour and
    pattern; query_source [Q]; query_positive [Q, N]; caption_positive [C, N];
    and the sequences `query/*` and `caption/*`.
  """
  pictures = [
    _Picture(
      tuple(number * spec.group_size + m for m in row), things, group.printed
    )
    for number, group in enumerate(groups)
    for row, things in zip(group.members, group.things, strict=True)
  ]
  query_texts, sources, query_positive = _sample_queries(spec, rng, pictures)
  caption_texts, caption_positive = _sample_captions(spec, rng, pictures)
  slots = np.array([(p.members[0], p.members[-1]) for p in pictures], np.int32)
  labels = np.array(
    [
      [compute_labels(p.things[0]), compute_labels(p.things[-1])]
      for p in pictures
    ],
    np.int32,
  )
  queries = maker.queries(query_texts, length=spec.max_query_tokens)
  captions = maker.texts(caption_texts, length=spec.max_caption_tokens)
  return {
    'pixels': np.concatenate([group.pixels for group in groups]),
    'object': slots,
    'attributes': labels,
    'query_source': sources,
    'query_positive': query_positive,
    'caption_positive': caption_positive,
    **sequence_lib.to_batch('query', queries),
    **sequence_lib.to_batch('caption', captions),
  }


@functools.cache
def list_types() -> tuple[str, ...]:
  """Returns the types of all packs, those of the procedural one first."""
  made = procedural.PROCEDURAL.types
  return (*made, *sorted(set(household.read_table().values()) - set(made)))


def compute_labels(thing: objects_lib.Object) -> tuple[int, int, int, int]:
  """Returns the labels of type, colour, second colour and pattern."""
  colours = list(objects_lib.COLOURS)
  return (
    list_types().index(thing.type),
    colours.index(thing.colour),
    colours.index(thing.second_colour),
    objects_lib.PATTERNS.index(thing.pattern),
  )


def count_labels() -> tuple[int, int, int, int]:
  """Returns how many labels each attribute has."""
  colours = len(objects_lib.COLOURS)
  return (
    len(list_types()),
    colours,
    colours,
    len(objects_lib.PATTERNS),
  )


class PairBatches:
  """Iterates over the batches; workers render them window by window."""

  def __init__(
    self,
    spec: PairSpec,
    maker: sequence_lib.SequenceMaker,
    *,
    workers: int | None,
  ):
    """Starts before batch 0.

    Args:
      spec: what to draw.
      maker: lays out the texts.
      workers: renderer processes; None takes one per core, 0 none.
    """
    self._spec = spec
    self._maker = maker
    self._pool = render_pool.RenderPool(workers)
    self._next = 0
    self._groups: Iterator[Group] | None = None
    self._window: list[Group] = []

  def __iter__(self) -> 'PairBatches':
    """Returns itself."""
    return self

  def __next__(self) -> dict[str, np.ndarray]:
    """Returns the next batch."""
    spec = self._spec
    window_number, position = divmod(self._next, spec.window * spec.repeats)
    size = spec.window * spec.groups
    if self._groups is None:
      first = window_number * size
      tasks = ((spec, i) for i in itertools.count(first))
      self._groups = self._pool.map(make_group, tasks)
      self._window = []
    if position == 0 or not self._window:
      self._window = list(itertools.islice(self._groups, size))
    turn, place = divmod(position, spec.window)
    order = np.random.default_rng([spec.seed, window_number, turn])
    chosen = order.permutation(size).reshape(spec.window, -1)[place]
    batch = make_batch(
      spec,
      np.random.default_rng([spec.seed, self._next, 1]),
      [self._window[i] for i in chosen],
      self._maker,
    )
    self._next += 1
    return batch

  def get_state(self) -> dict[str, int]:
    """Returns the number of the next batch."""
    return {'next': self._next}

  def set_state(self, state: dict[str, int]) -> None:
    """Goes to the batch that `get_state` named."""
    self._next = int(state['next'])
    self._groups = None

  def close(self) -> None:
    """Stops the workers."""
    self._pool.close()

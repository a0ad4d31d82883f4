"""Renders endless batches for pretraining the standard embedding model.

A group is some objects, each pictured with several others of the group;
whatever shows the same object is a pair. A batch is several groups with
single-hop instructions and captions drawn over them. Rendering costs as much
as learning, so a window of groups is used a few times, in other company and
with other texts, before the next window comes. None of it belongs to a
benchmark world, and there is no chain to follow.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from vhop_jax import errors
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.worlds import arrange, prompt, render_pool
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds.assets import procedural

SIDES = ('left', 'right')
_FEW_TYPES = 3
_FEW_COLOURS = 2


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
    swap_frac: share of views that show the pairs of the view before with
      their sides exchanged, so that only the relation tells them apart.
    alone_frac: share of queries that start from an object alone, as routes do.
    vague_frac: share of queries that name neither relation nor colour.
    partial_frac: share of queries that name only one of the two.
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
  swap_frac: float
  alone_frac: float
  vague_frac: float
  partial_frac: float
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
    if self.alone_frac and not self.singles:
      raise errors.UsageError(
        f'data.alone_frac={self.alone_frac} needs pictures of one object:'
        ' raise data.singles or set it to 0'
      )


@dataclasses.dataclass(frozen=True)
class _Picture:
  """Holds one image: which objects of the batch it shows, left to right."""

  members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Group:
  """Holds the objects of a group and their rendered pictures.

  Attributes:
    things: the objects.
    members: for each picture the indices of its objects, left to right.
    pixels: uint8 [pictures, H, W, 3].
  """

  things: tuple[objects_lib.Object, ...]
  members: tuple[tuple[int, ...], ...]
  pixels: np.ndarray


def make_group(task: tuple[PairSpec, int]) -> Group:
  """Draws and renders one group; the same task gives the same group.

  Args:
    task: the spec and the group's number.
  """
  spec, number = task
  rng = np.random.default_rng([spec.seed, number])
  things = _sample_objects(spec, rng, number)
  members = _sample_members(spec, rng)
  renderer = render_pool.get_renderer(spec.resolution)
  pixels = np.stack(
    [
      renderer.render(arrange.sample_scene(rng, [things[m] for m in row]))
      for row in members
    ]
  )
  return Group(tuple(things), tuple(members), pixels)


def _sample_objects(
  spec: PairSpec, rng: np.random.Generator, number: int
) -> list[objects_lib.Object]:
  """Draws a group's objects; a hard group shares few types or colours."""
  pack = procedural.PROCEDURAL
  types: list[Any] = [None]
  colours: list[Any] = [None]
  if rng.random() < spec.hard_frac:
    if rng.random() < 0.5:
      types = list(rng.choice(pack.types, _FEW_TYPES, replace=False))
    else:
      names = list(objects_lib.COLOURS)
      colours = list(rng.choice(names, _FEW_COLOURS, replace=False))
  things = []
  for i in range(spec.group_size):
    kind = types[rng.integers(len(types))]
    colour = colours[rng.integers(len(colours))]
    things.append(
      pack.sample_object(
        rng,
        uid=f'pretrain-{spec.seed}/g{number}/o{i}',
        type=None if kind is None else str(kind),
        colour=None if colour is None else str(colour),
      )
    )
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


def _relation(picture: _Picture, thing: int) -> str:
  return 'leftof' if picture.members[0] == thing else 'rightof'


def _other(picture: _Picture, thing: int) -> int:
  return picture.members[1 - picture.members.index(thing)]


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
  things: list[objects_lib.Object],
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
    colour: str | None = things[_other(pictures[target], carried)].colour
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
      other = things[_other(pictures[i], carried)]
      positives[q, i] = fits and colour in (None, other.colour)
    side = SIDES[place] if len(members) == 2 else None
    texts.append(
      prompt.single_hop(rng, side=side, relation=relation, colour=colour)
    )
  return texts, np.array(sources, np.int32), positives


def _sample_captions(
  spec: PairSpec,
  rng: np.random.Generator,
  things: list[objects_lib.Object],
  pictures: list[_Picture],
) -> tuple[list[str], np.ndarray]:
  """Draws captions.

  Returns:
    Texts and positives bool [C, N]: all images that the text describes.
  """
  described = [
    tuple(prompt.describe(things[m]) for m in picture.members)
    for picture in pictures
  ]
  texts = []
  positives = np.zeros((spec.captions, len(pictures)), bool)
  order = rng.permutation(len(pictures))
  for c in range(spec.captions):
    target = int(order[c % len(order)])
    texts.append(
      prompt.caption(rng, [things[m] for m in pictures[target].members])
    )
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
    left and of the right object (the same one twice where it is alone);
    attributes int [N, 2, 4], labels of type, colour, second colour and
    pattern; query_source [Q]; query_positive [Q, N]; caption_positive [C, N];
    and the sequences `query/*` and `caption/*`.
  """
  things = [thing for group in groups for thing in group.things]
  pictures = [
    _Picture(tuple(number * spec.group_size + m for m in row))
    for number, group in enumerate(groups)
    for row in group.members
  ]
  query_texts, sources, query_positive = _sample_queries(
    spec, rng, things, pictures
  )
  caption_texts, caption_positive = _sample_captions(
    spec, rng, things, pictures
  )
  slots = np.array([(p.members[0], p.members[-1]) for p in pictures], np.int32)
  labels = np.array([compute_labels(thing) for thing in things], np.int32)
  queries = maker.queries(query_texts, length=spec.max_query_tokens)
  captions = maker.texts(caption_texts, length=spec.max_caption_tokens)
  return {
    'pixels': np.concatenate([group.pixels for group in groups]),
    'object': slots,
    'attributes': labels[slots],
    'query_source': sources,
    'query_positive': query_positive,
    'caption_positive': caption_positive,
    **sequence_lib.to_batch('query', queries),
    **sequence_lib.to_batch('caption', captions),
  }


def compute_labels(thing: objects_lib.Object) -> tuple[int, int, int, int]:
  """Returns the labels of type, colour, second colour and pattern."""
  colours = list(objects_lib.COLOURS)
  return (
    procedural.PROCEDURAL.types.index(thing.type),
    colours.index(thing.colour),
    colours.index(thing.second_colour),
    objects_lib.PATTERNS.index(thing.pattern),
  )


def count_labels() -> tuple[int, int, int, int]:
  """Returns how many labels each attribute has."""
  colours = len(objects_lib.COLOURS)
  return (
    len(procedural.PROCEDURAL.types),
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

"""Renders endless batches for pretraining the standard embedding model.

A batch is groups of objects, each pictured with several others. Whatever
shows the same object is a pair; single-hop instructions and captions pick
from it by relation, colour and type. None of it belongs to a benchmark
world, and there is no chain to follow.
"""

from collections.abc import Iterator
import dataclasses
import itertools
from typing import Any

import numpy as np

from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.worlds.assets import procedural
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt
from vhop_jax.worlds import render_pool
from vhop_jax.worlds import scene as scene_lib

SIDES = ('left', 'right')


@dataclasses.dataclass(frozen=True)
class PairSpec:
  """Fixes the batches: batch i is a function of this and of i.

  Attributes:
    seed: of everything drawn.
    resolution: image width in pixels.
    groups: groups of objects in a batch.
    group_size: objects of a group, even.
    views: two-object images that show each object.
    singles: images of one object alone, per group.
    queries: single-hop queries in a batch.
    captions: captions in a batch.
    hard_frac: share of groups drawn from few types or few colours.
    vague_frac: share of queries that name neither relation nor colour.
    partial_frac: share of queries that name only one of the two.
    max_query_tokens: S of the queries.
    max_caption_tokens: S of the captions.
    template: name of the template of sequences.
    grid: rows and columns of an image's visual tokens.
  """

  seed: int
  resolution: int
  groups: int
  group_size: int
  views: int
  singles: int
  queries: int
  captions: int
  hard_frac: float
  vague_frac: float
  partial_frac: float
  max_query_tokens: int
  max_caption_tokens: int
  template: str
  grid: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _Picture:
  """Holds one image to be: which objects of the batch, left to right."""

  members: tuple[int, ...]


def _sample_objects(
  spec: PairSpec, rng: np.random.Generator, index: int
) -> list[objects_lib.Object]:
  """Draws the objects of all groups; hard groups share types or colours."""
  pack = procedural.PROCEDURAL
  colours = list(objects_lib.COLOURS)
  things: list[objects_lib.Object] = []
  for _ in range(spec.groups):
    few_types: list[Any] = [None]
    few_colours: list[Any] = [None]
    if rng.random() < spec.hard_frac:
      if rng.random() < 0.5:
        few_types = list(rng.choice(pack.types, 3, replace=False))
      else:
        few_colours = list(rng.choice(colours, 2, replace=False))
    for _ in range(spec.group_size):
      kind = few_types[rng.integers(len(few_types))]
      colour = few_colours[rng.integers(len(few_colours))]
      things.append(
        pack.sample_object(
          rng,
          uid=f'pretrain-{spec.seed}/b{index}/o{len(things)}',
          type=None if kind is None else str(kind),
          colour=None if colour is None else str(colour),
        )
      )
  return things


def _sample_pictures(
  spec: PairSpec, rng: np.random.Generator
) -> list[_Picture]:
  """Pairs the objects of each group anew for each view."""
  pictures = []
  for group in range(spec.groups):
    start = group * spec.group_size
    for _ in range(spec.views):
      order = start + rng.permutation(spec.group_size)
      pictures += [
        _Picture((int(a), int(b))) for a, b in order.reshape(-1, 2)
      ]
    alone = start + rng.permutation(spec.group_size)[: spec.singles]
    pictures += [_Picture((int(a),)) for a in alone]
  return pictures


def _relation(picture: _Picture, thing: int) -> str:
  return 'leftof' if picture.members[0] == thing else 'rightof'


def _other(picture: _Picture, thing: int) -> int:
  return picture.members[1 - picture.members.index(thing)]


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
  texts, sources = [], []
  positives = np.zeros((spec.queries, len(pictures)), bool)
  order = rng.permutation(len(pictures))
  for q in range(spec.queries):
    source = int(order[q % len(order)])
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
    sources.append(source)
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


def make_batch(task: tuple[PairSpec, int]) -> dict[str, np.ndarray]:
  """Makes batch `index`, pixels included.

  Args:
    task: the spec and the index.

  Returns:
    pixels uint8 [N, H, W, 3]; object int [N, 2], the batch's number of the
    left and of the right object (the same one twice where it is alone);
    attributes int [N, 2, 4], labels of type, colour, second colour and
    pattern; query_source [Q]; query_positive [Q, N]; caption_positive [C, N];
    and the sequences `query/*` and `caption/*`.
  """
  spec, index = task
  rng = np.random.default_rng([spec.seed, index])
  things = _sample_objects(spec, rng, index)
  pictures = _sample_pictures(spec, rng)
  query_texts, sources, query_positive = _sample_queries(
    spec, rng, things, pictures
  )
  caption_texts, caption_positive = _sample_captions(
    spec, rng, things, pictures
  )
  renderer = render_pool.get_renderer(spec.resolution)
  pixels = np.stack(
    [
      renderer.render(
        scene_lib.sample_scene(rng, [things[m] for m in picture.members])
      )
      for picture in pictures
    ]
  )
  slots = np.array(
    [(p.members[0], p.members[-1]) for p in pictures], np.int32
  )
  labels = np.array([compute_labels(thing) for thing in things], np.int32)
  maker = sequence_lib.SequenceMaker(
    tokenizer_lib.load_tokenizer(), template=spec.template, grid=spec.grid
  )
  queries = maker.queries(query_texts, length=spec.max_query_tokens)
  captions = maker.texts(caption_texts, length=spec.max_caption_tokens)
  return {
    'pixels': pixels,
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
  """Iterates over the batches; workers render ahead."""

  def __init__(self, spec: PairSpec, *, workers: int | None):
    """Starts before batch 0.

    Args:
      spec: what to draw.
      workers: renderer processes; None takes one per core, 0 none.
    """
    self._spec = spec
    self._pool = render_pool.RenderPool(workers)
    self._next = 0
    self._results: Iterator[dict[str, np.ndarray]] | None = None

  def __iter__(self) -> 'PairBatches':
    """Returns itself."""
    return self

  def __next__(self) -> dict[str, np.ndarray]:
    """Returns the next batch."""
    if self._results is None:
      tasks = ((self._spec, i) for i in itertools.count(self._next))
      self._results = self._pool.map(make_batch, tasks)
    batch = next(self._results)
    self._next += 1
    return batch

  def get_state(self) -> dict[str, int]:
    """Returns the number of the next batch."""
    return {'next': self._next}

  def set_state(self, state: dict[str, int]) -> None:
    """Goes to the batch that `get_state` named."""
    self._next = int(state['next'])
    self._results = None

  def close(self) -> None:
    """Stops the workers."""
    self._pool.close()

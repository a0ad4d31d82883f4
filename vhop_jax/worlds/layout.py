"""Draws the structure of a family: which objects meet in which image.

Chain A shows o[h-1] in relation r[h] to o[h] in its image h; the sibling chain
B starts from the same object and shows p[h-1] in the mirrored relation to p[h].
Relations are of one pair (`level.PAIRS`), and the first hop of chain A asks for
the first of them. Distractors are cross-linked where they can be, so that one
image serves both queries. From L6 on a label stands for a logo or a text, which
every image shows on an object of its own.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import world as world_lib


@dataclasses.dataclass(frozen=True)
class Shot:
  """Says what one image shows, by the labels of objects in the family.

  Attributes:
    subject: The object the relation is about.
    relation: Where it stands; None for a picture of the subject alone.
    other: The object beside it, or None.
  """

  subject: str
  relation: str | None = None
  other: str | None = None

  def order(self) -> tuple[str, ...]:
    """Returns the labels, that of the pair's first relation first."""
    if self.other is None:
      return (self.subject,)
    pair = (self.subject, self.other)
    firsts = [first for first, _ in level_lib.PAIRS.values()]
    return pair if self.relation in firsts else pair[::-1]


@dataclasses.dataclass(frozen=True)
class Route:
  """Holds one of the two chains.

  Attributes:
    query: Slot of the query image.
    relations: The relation of each hop.
    others: Label of the object that each hop leads to.
    slots: Slots of the chain's images.
  """

  query: str
  relations: tuple[str, ...]
  others: tuple[str, ...]
  slots: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
  """Holds the structure of a family before any colour or shape is drawn.

  Attributes:
    shots: What each image slot shows.
    routes: Chain A and chain B.
    same_colour: Pairs of labels that must share a colour.
    other_colour: Pairs of labels that must differ in colour.
    same_type: Pairs of labels that must share a type, the first drawn freely.
    twins: Label of each look-alike, of what it is taken for, and the slot of
      the image in which one sees that before.
  """

  shots: dict[str, Shot]
  routes: tuple[Route, Route]
  same_colour: tuple[tuple[str, str], ...]
  other_colour: tuple[tuple[str, str], ...]
  same_type: tuple[tuple[str, str], ...]
  twins: tuple[tuple[str, str, str], ...] = ()

  def labels(self) -> list[str]:
    """Returns the labels of all objects, sorted."""
    return sorted({label for s in self.shots.values() for label in s.order()})


def sample_layout(rng: np.random.Generator, spec: world_lib.Spec) -> Layout:
  """Draws which objects meet in which image.

  Args:
    rng: decides relations and where the distractors go.
    spec: level, hops and prompt decide which distractors there are.
  """
  k = spec.hops
  o = [f'o{i}' for i in range(k + 1)]
  p = [f'p{i}' for i in range(k + 1)]
  shots = {'query': Shot(o[0])}
  if level_lib.shares_start(spec.level, spec.prompt):
    p[0] = o[0]
    queries = ('query', 'query')
  else:
    shots['query_b'] = Shot(p[0])
    queries = ('query', 'query_b')
  pair = level_lib.PAIRS[spec.relations]
  relations = [pair[0]] + [pair[rng.integers(2)] for _ in range(k - 1)]
  mirrored = [level_lib.MIRROR[relation] for relation in relations]
  for h in range(1, k + 1):
    shots[f'a{h}'] = Shot(o[h - 1], relations[h - 1], o[h])
    shots[f'b{h}'] = Shot(p[h - 1], mirrored[h - 1], p[h])

  layout = Layout(
    shots=shots,
    routes=(
      Route(
        queries[0],
        tuple(relations),
        tuple(o[1:]),
        tuple(f'a{h}' for h in range(1, k + 1)),
      ),
      Route(
        queries[1],
        tuple(mirrored),
        tuple(p[1:]),
        tuple(f'b{h}' for h in range(1, k + 1)),
      ),
    ),
    # The sibling's first image is then the right scene but for its relation.
    same_colour=((o[1], p[1]),),
    other_colour=(),
    same_type=(),
  )
  layout = _add_type_mates(rng, layout, o, p)
  layout = _add_traps(rng, spec, layout, o, p, relations)
  if level_lib.has_twins(spec.level):
    asked = (relations, mirrored)
    layout = _add_twins(rng, layout, (o, p), asked, queries)
  return layout


def _add_traps(
  rng: np.random.Generator,
  spec: world_lib.Spec,
  layout: Layout,
  o: Sequence[str],
  p: Sequence[str],
  relations: Sequence[str],
) -> Layout:
  """Adds the images that a level up to L4 needs beside the chains."""
  k = spec.hops
  if spec.prompt == 'vague':
    if level_lib.has_dead_ends(spec.level):
      pair = level_lib.PAIRS[spec.relations]
      layout = _add_vague_dead_ends(rng, layout, o, p, pair)
    return layout
  if not level_lib.asks_colour(spec.level, spec.prompt):
    return layout
  if not level_lib.has_dead_ends(spec.level):
    return _add_wrong_colour(rng, layout, o, p, relations)
  repeats = [h for h in range(1, k) if relations[h] == relations[h - 1]]
  if repeats:
    h = repeats[rng.integers(len(repeats))]
    return _add_crossed_dead_ends(layout, o, p, relations, h)
  layout = _add_fresh_dead_ends(rng, layout, o, p, relations)
  return _add_wrong_colour(rng, layout, o, p, relations)


def _add_type_mates(
  rng: np.random.Generator, layout: Layout, o: Sequence[str], p: Sequence[str]
) -> Layout:
  """Gives a linking object of each chain a namesake of another colour."""
  k = len(o) - 1
  if k == 2:
    # Each chain has one linking object beside the start; the mates of these
    # are the last objects of the other chain.
    pairs = [(o[1], p[2]), (p[1], o[2])]
  else:
    i, j = 1 + rng.permutation(k - 1)[:2]
    pairs = [(o[i], p[j])]
  return dataclasses.replace(
    layout,
    same_type=tuple(pairs),
    other_colour=(*layout.other_colour, *pairs),
  )


def _add_wrong_colour(
  rng: np.random.Generator,
  layout: Layout,
  o: Sequence[str],
  p: Sequence[str],
  relations: Sequence[str],
) -> Layout:
  """Adds one image that has the wrong colour for both chains at once."""
  j = int(rng.integers(1, len(o) - 1))
  return dataclasses.replace(
    layout,
    shots={**layout.shots, 'w': Shot(o[j], relations[j], p[j])},
    other_colour=(
      *layout.other_colour,
      (p[j], o[j + 1]),
      (o[j], p[j + 1]),
    ),
  )


def _add_crossed_dead_ends(
  layout: Layout,
  o: Sequence[str],
  p: Sequence[str],
  relations: Sequence[str],
  h: int,
) -> Layout:
  """Adds two dead ends, each the wrong colour for the other chain.

  Hop h and hop h + 1 ask for the same relation. Image x leads chain A from
  o[h-1] to p[h], where only the sibling's images go on: the one back has the
  asked relation, so its colour must not fit, and the one ahead has the other
  relation. The same holds for chain B and image y.
  """
  relation = relations[h - 1]
  return dataclasses.replace(
    layout,
    shots={
      **layout.shots,
      'x': Shot(o[h - 1], relation, p[h]),
      'y': Shot(p[h - 1], level_lib.MIRROR[relation], o[h]),
    },
    same_colour=(*layout.same_colour, (o[h], p[h])),
    other_colour=(
      *layout.other_colour,
      (o[h - 1], p[h + 1]),
      (p[h - 1], o[h + 1]),
    ),
  )


def _add_fresh_dead_ends(
  rng: np.random.Generator,
  layout: Layout,
  o: Sequence[str],
  p: Sequence[str],
  relations: Sequence[str],
) -> Layout:
  """Adds a dead end for each chain with objects seen nowhere else."""
  h = int(rng.integers(1, len(o) - 1))
  relation = relations[h - 1]
  return dataclasses.replace(
    layout,
    shots={
      **layout.shots,
      'x': Shot(o[h - 1], relation, 'd'),
      'y': Shot(p[h - 1], level_lib.MIRROR[relation], 'e'),
    },
    same_colour=(*layout.same_colour, (o[h], 'd'), (p[h], 'e')),
  )


def _add_vague_dead_ends(
  rng: np.random.Generator,
  layout: Layout,
  o: Sequence[str],
  p: Sequence[str],
  pair: tuple[str, str],
) -> Layout:
  """Adds two dead ends where neither relation nor colour is asked for.

  The second one leaves the chain where at least one hop is still to come
  after it: at the last hop it would be a valid answer.
  """
  k = len(o) - 1
  h = int(rng.integers(1, k - 1)) if k > 2 else 0
  chain = (o, p)[rng.integers(2)]
  first, second = (pair[rng.integers(2)] for _ in range(2))
  return dataclasses.replace(
    layout,
    shots={
      **layout.shots,
      'x': Shot(o[0], first, 'd'),
      'y': Shot(chain[h], second, 'e'),
    },
  )


def _add_twins(
  rng: np.random.Generator,
  layout: Layout,
  chains: tuple[Sequence[str], Sequence[str]],
  relations: tuple[Sequence[str], Sequence[str]],
  queries: tuple[str, str],
) -> Layout:
  """Adds for each chain an image of a look-alike of what links.

  It is as a hop asks, in relation and colour, but for the object itself. The
  chains' look-alikes stand at different hops, since the two may share their
  start.
  """
  hops = 1 + rng.permutation(len(relations[0]))[:2]
  shots, twins = dict(layout.shots), []
  same_colour = list(layout.same_colour)
  for side, chain, asked, query, h in zip(
    'ab', chains, relations, queries, hops, strict=True
  ):
    original, twin, partner = chain[h - 1], f't{side}', f'u{side}'
    shots[twin] = Shot(twin, asked[h - 1], partner)
    twins.append((twin, original, f'{side}{h - 1}' if h > 1 else query))
    same_colour += [(original, twin), (chain[h], partner)]
  return dataclasses.replace(
    layout, shots=shots, same_colour=tuple(same_colour), twins=tuple(twins)
  )

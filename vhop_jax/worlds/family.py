"""Makes one family: its objects, both chains, the distractors, the prompts.

A family can be made alone, in any order, on any worker: each thing is drawn
from a generator seeded by the spec's key, the family and a purpose.

Chain A shows o[h-1] in relation r[h] to o[h] in its image h; the sibling chain
B starts from the same object and shows p[h-1] in the mirrored relation to
p[h]. Relations are of one pair (`level.PAIRS`), and the first hop of chain A
asks for its first. Distractors are cross-linked where they can be, so that one
image serves both queries.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import hashlib

import numpy as np

from vhop_jax.worlds import assets, geometry
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prints as prints_lib
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import world as world_lib
from vhop_jax.worlds.assets import texts

MAX_COLOUR_DRAWS = 10_000
MAX_OBJECT_DRAWS = 50


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


@dataclasses.dataclass(frozen=True)
class Family:
  """Holds one family, its images still without ids or scenes.

  Attributes:
    number: Its number in the world.
    images: For each slot the objects, that of the pair's first relation first
      (the left one, the one in front, the one on top).
    routes: Chain A and chain B.
    hops: What the two routes ask for.
    instructions: The prompts of the two queries.
  """

  number: int
  images: dict[str, tuple[objects_lib.Object, ...]]
  routes: tuple[Route, Route]
  hops: tuple[tuple[world_lib.Hop, ...], ...]
  instructions: tuple[str, str]


def make_rng(
  spec: world_lib.Spec, family: int | str, purpose: str
) -> np.random.Generator:
  """Makes the generator of one purpose in one family of a world."""
  text = f'{spec.key}/{family}/{purpose}'
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(np.frombuffer(digest, np.uint32))


def list_slots(spec: world_lib.Spec, number: int) -> list[str]:
  """Lists the image slots of a family without making anything else of it."""
  return list(sample_layout(make_rng(spec, number, 'layout'), spec).shots)


def make_family(
  spec: world_lib.Spec, number: int, pack: assets.AssetPack
) -> Family:
  """Makes a family from nothing but its spec and number."""
  layout = sample_layout(make_rng(spec, number, 'layout'), spec)
  colours = _draw_colours(spec, number, layout)
  draw = _draw_printed if level_lib.find_print(spec.level) else _draw_objects
  objects = draw(spec, number, layout, pack, colours)
  hops = tuple(
    tuple(
      world_lib.Hop(relation, colours[other])
      for relation, other in zip(route.relations, route.others, strict=True)
    )
    for route in layout.routes
  )
  return Family(
    number=number,
    images={
      slot: tuple(objects[slot, label] for label in shot.order())
      for slot, shot in layout.shots.items()
    },
    routes=layout.routes,
    hops=hops,
    instructions=tuple(  # type: ignore[arg-type]
      prompt_lib.route(
        make_rng(spec, number, f'prompt/{i}'),
        hops[i],
        spec.prompt,
        spec.wording,
        level_lib.find_print(spec.level),
      )
      for i in range(2)
    ),
  )


def _draw_objects(
  spec: world_lib.Spec,
  number: int,
  layout: Layout,
  pack: assets.AssetPack,
  colours: Mapping[str, str],
) -> dict[tuple[str, str], objects_lib.Object]:
  """Draws one object for each label; it is the same in all its images.

  Returns:
    The object by slot and label.
  """
  types: dict[str, str | None] = {}
  objects: dict[str, objects_lib.Object] = {}
  copies = {second: first for first, second in layout.same_type}
  originals = {twin: original for twin, original, _ in layout.twins}
  # Objects that copy a type or a look come after those they copy it from.
  for label in sorted(
    layout.labels(), key=lambda label: (label in originals, label in copies)
  ):
    uid = f'{spec.key}/f{number}/{label}'
    if label in originals:
      objects[label] = pack.sample_twin(
        make_rng(spec, number, f'twin/{label}'),
        objects[originals[label]],
        uid=uid,
      )
      continue
    objects[label] = pack.sample_object(
      make_rng(spec, number, f'object/{label}'),
      uid=uid,
      type=types.get(copies.get(label, '')),
      colour=colours[label],
    )
    types[label] = objects[label].type
  return {
    (slot, label): objects[label]
    for slot, shot in layout.shots.items()
    for label in shot.order()
  }


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


def _draw_colours(
  spec: world_lib.Spec, number: int, layout: Layout
) -> dict[str, str]:
  """Draws colours until all constraints hold, each time with another seed."""
  labels = layout.labels()
  leaders = _find_leaders(labels, layout.same_colour)
  names = list(objects_lib.COLOURS)
  for attempt in range(MAX_COLOUR_DRAWS):
    rng = make_rng(spec, number, f'colours/{attempt}')
    drawn = {label: names[rng.integers(len(names))] for label in labels}
    colours = {label: drawn[leaders[label]] for label in labels}
    if all(colours[a] != colours[b] for a, b in layout.other_colour):
      return colours
  raise RuntimeError(f'family {number} of {spec.key} has no colouring')


def _find_leaders(
  labels: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
  """Returns for each label the one whose colour it takes."""
  leaders = {label: label for label in labels}
  for a, b in pairs:
    old, new = leaders[b], leaders[a]
    leaders = {
      label: new if leader == old else leader
      for label, leader in leaders.items()
    }
  return leaders


def _draw_printed(
  spec: world_lib.Spec,
  number: int,
  layout: Layout,
  pack: assets.AssetPack,
  colours: Mapping[str, str],
) -> dict[tuple[str, str], objects_lib.Object]:
  """Draws an object for each image that a label is in; they share its print.

  Objects of one label differ in type. One that is linked to has the label's
  colour, as the hop asks; one that makes the link has a colour of its own,
  which keeps to `other_colour` all the same.

  Returns:
    The object by slot and label.
  """
  prints = _draw_prints(spec, number, layout)
  originals = {twin: (slot, label) for twin, label, slot in layout.twins}
  copies = {second: first for first, second in layout.same_type}
  seen_in = _find_first_slots(layout)
  objects: dict[tuple[str, str], objects_lib.Object] = {}
  worn = {label: {colour} for label, colour in colours.items()}
  places = [
    (slot, label)
    for slot, shot in layout.shots.items()
    for label in shot.order()
  ]
  # What copies a type or a look comes after that from which it copies; of a
  # label's own objects the first that one meets comes first.
  for slot, label in sorted(
    places,
    key=lambda place: (
      place[1] in originals,
      place[1] in copies,
      seen_in[place[1]] != place[0],
    ),
  ):
    colour = colours[label]
    shot = layout.shots[slot]
    if shot.other is not None and shot.subject == label:
      colour = _draw_worn(spec, number, layout, slot, label, worn)
    if label in originals:
      look = objects[originals[label]]
    else:
      look = None
    first = copies.get(label) if seen_in[label] == slot else None
    objects[slot, label] = _draw_one(
      spec,
      number,
      f'{slot}.{label}',
      pack,
      colour=colour,
      type_=objects[seen_in[first], first].type if first else None,
      avoid={o.type for (_, owner), o in objects.items() if owner == label},
      twin_of=look,
      printed=prints[label],
    )
  return objects


def _find_first_slots(layout: Layout) -> dict[str, str]:
  """Returns where each label is met first: alone, or as what is linked to."""
  slots: dict[str, str] = {}
  for slot, shot in layout.shots.items():
    slots.setdefault(shot.other or shot.subject, slot)
  for slot, shot in layout.shots.items():
    slots.setdefault(shot.subject, slot)
  return slots


def _draw_prints(
  spec: world_lib.Spec, number: int, layout: Layout
) -> dict[str, str]:
  """Draws a logo or word for each label, in no other family of the world."""
  pool = prints_lib.list_prints(spec.level, spec.prints)
  order = make_rng(spec, 'all', 'prints').permutation(len(pool))
  start = number * level_lib.count_prints(spec.hops)
  return {
    label: pool[order[start + i]] for i, label in enumerate(layout.labels())
  }


def _draw_worn(
  spec: world_lib.Spec,
  number: int,
  layout: Layout,
  slot: str,
  label: str,
  worn: dict[str, set[str]],
) -> str:
  """Draws the colour of an object that makes a link, and notes it in `worn`.

  Args:
    spec: of the world.
    number: of the family.
    layout: whose `other_colour` holds for all objects of two labels.
    slot: the image.
    label: of the object.
    worn: the colours of each label's objects so far.
  """
  forbidden = set().union(
    *(worn[b] for a, b in layout.other_colour if a == label),
    *(worn[a] for a, b in layout.other_colour if b == label),
  )
  free = [name for name in objects_lib.COLOURS if name not in forbidden]
  rng = make_rng(spec, number, f'worn/{slot}.{label}')
  colour = free[rng.integers(len(free))]
  worn[label].add(colour)
  return colour


def _draw_one(
  spec: world_lib.Spec,
  number: int,
  purpose: str,
  pack: assets.AssetPack,
  *,
  colour: str,
  type_: str | None,
  avoid: Collection[str],
  twin_of: objects_lib.Object | None,
  printed: str,
) -> objects_lib.Object:
  """Draws one object with a print, again until there is room for it.

  Args:
    spec: of the world.
    number: of the family.
    purpose: names the object's generator.
    pack: makes it.
    colour: of its body.
    type_: what it must be; None draws it from those with room for a print.
    avoid: types that it must not have.
    twin_of: what it must look like instead.
    printed: its logo or text.
  """
  kind = level_lib.find_print(spec.level)
  uid = f'{spec.key}/f{number}/{purpose}'
  types = [name for name in pack.printable_types if name not in avoid]
  tried: list[str] = []
  for attempt in range(MAX_OBJECT_DRAWS):
    rng = make_rng(spec, number, f'object/{purpose}/{attempt}')
    if twin_of is not None:
      obj = pack.sample_twin(rng, twin_of, uid=uid, avoid=tried)
      tried.append(obj.change)
    else:
      drawn = types[rng.integers(len(types))]
      obj = pack.sample_object(rng, uid=uid, type=type_ or drawn, colour=colour)
    font = texts.FONTS[rng.integers(len(texts.FONTS))]
    if kind == 'logo':
      obj = dataclasses.replace(obj, logo=printed)
    else:
      obj = dataclasses.replace(obj, text=printed, font=font)
    if geometry.load_geometry(obj).print_area is not None:
      return obj
  raise RuntimeError(f'no room for a print on {uid}')

"""Makes one family: its objects, both chains, the distractors, the prompts.

A family can be made alone, in any order, on any worker: each thing is drawn
from a generator seeded by the spec's key, the family and a purpose.

Up to L5 a label of the layout is one object in all its images; from L6 on it is
a logo or a text, which each image shows on an object of its own.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import hashlib

import numpy as np

from vhop_jax.worlds import assets, geometry
from vhop_jax.worlds import layout as layout_lib
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prints as prints_lib
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import world as world_lib
from vhop_jax.worlds.assets import texts

MAX_COLOUR_DRAWS = 10_000
MAX_OBJECT_DRAWS = 50


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
  routes: tuple[layout_lib.Route, layout_lib.Route]
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
  return list(
    layout_lib.sample_layout(make_rng(spec, number, 'layout'), spec).shots
  )


def make_family(
  spec: world_lib.Spec, number: int, pack: assets.AssetPack
) -> Family:
  """Makes a family from nothing but its spec and number."""
  layout = layout_lib.sample_layout(make_rng(spec, number, 'layout'), spec)
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
  layout: layout_lib.Layout,
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


def _draw_colours(
  spec: world_lib.Spec, number: int, layout: layout_lib.Layout
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
  layout: layout_lib.Layout,
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
    look = objects[originals[label]] if label in originals else None
    if look is None and shot.other is not None and shot.subject == label:
      colour = _draw_worn(spec, number, layout, slot, label, worn)
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


def _find_first_slots(layout: layout_lib.Layout) -> dict[str, str]:
  """Returns where each label is met first: alone, or as what is linked to."""
  slots: dict[str, str] = {}
  for slot, shot in layout.shots.items():
    slots.setdefault(shot.other or shot.subject, slot)
  for slot, shot in layout.shots.items():
    slots.setdefault(shot.subject, slot)
  return slots


def _draw_prints(
  spec: world_lib.Spec, number: int, layout: layout_lib.Layout
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
  layout: layout_lib.Layout,
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

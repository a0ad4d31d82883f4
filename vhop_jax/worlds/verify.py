"""Checks a finished world against every rule, by exhaustive search.

Nothing here knows how worlds are generated: the rules are stated once more,
over the images and queries alone. Only `objects.COLOURS` and the projection of
a scene to the screen are shared with the rest of the package.
"""

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import json
import os
import re

import numpy as np

from vhop_jax.worlds import leaks, verify_scene
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import world as world_lib

# Of an image's objects the first stands in the first of these relations to the
# second, which stands in the other one to the first.
RELATIONS = {
  'sides': ('leftof', 'rightof'),
  'depth': ('infrontof', 'behind'),
  'height': ('ontop', 'below'),
}
OPPOSITE = {
  'leftof': 'rightof',
  'rightof': 'leftof',
  'infrontof': 'behind',
  'behind': 'infrontof',
  'ontop': 'below',
  'below': 'ontop',
}
PHRASES = {
  'left of': 'leftof',
  'right of': 'rightof',
  'in front of': 'infrontof',
  'behind': 'behind',
  'on top of': 'ontop',
  'below': 'below',
}
# A word that tells of a relation, whatever stands around it.
TELLING = ('left', 'right', 'front', 'behind', 'top', 'below')


@dataclasses.dataclass(frozen=True)
class Breach:
  """Holds one broken rule.

  Attributes:
    rule: Short name of the rule.
    where: Id of the query or image, or 'world'.
    message: What was found.
  """

  rule: str
  where: str
  message: str

  def __str__(self) -> str:
    """Returns the breach as one line."""
    return f'{self.rule} [{self.where}]: {self.message}'


@dataclasses.dataclass(frozen=True)
class Step:
  """Holds a way from one image to the next, valid or not.

  Attributes:
    image: the image reached.
    subject: what makes the link there.
    relation: where the subject stands in it.
    other: the object that is carried from there on.
  """

  image: str
  subject: objects_lib.Object
  relation: str
  other: objects_lib.Object


class Search:
  """Searches a world exhaustively under the rules of its level."""

  def __init__(self, world: world_lib.World):
    """Indexes a world's images by the objects that they show."""
    self.world = world
    self.images = {image.id: image for image in world.images}
    precise = world.spec.prompt == 'precise'
    self.needs_relation = precise and world.spec.level >= 2
    self.needs_colour = precise and world.spec.level >= 3
    self._steps: dict[str, list[Step]] = collections.defaultdict(list)
    self.families: dict[int, list[world_lib.ImageRecord]]
    self.families = collections.defaultdict(list)
    for image in world.images:
      self.families[image.family].append(image)
      for step in self._list_steps(image):
        self._steps[self.get_mark(step.subject)].append(step)

  def _list_steps(self, image: world_lib.ImageRecord) -> list[Step]:
    """Returns both ways in which an image of two objects may be reached."""
    if len(image.objects) != 2:
      return []
    relations = RELATIONS[self.world.spec.relations]
    return [
      Step(image.id, thing, relations[i], image.objects[1 - i])
      for i, thing in enumerate(image.objects)
    ]

  def get_mark(self, thing: objects_lib.Object) -> str:
    """Returns what links: the object itself, its logo (L6), its text (L7)."""
    level = self.world.spec.level
    return thing.text if level == 7 else thing.logo if level == 6 else thing.uid

  def get_start(self, query: world_lib.Query) -> objects_lib.Object:
    """Returns the object that a query starts with."""
    return self.images[query.image].objects[0]

  def find_steps(
    self, query: world_lib.Query, carried: str, seen: Sequence[str]
  ) -> list[Step]:
    """Returns all images with the carried mark that are not seen yet."""
    return [
      step
      for step in self._steps[carried]
      if step.image != query.image and step.image not in seen
    ]

  def find_twins(
    self, query: world_lib.Query, carried: objects_lib.Object
  ) -> list[Step]:
    """Returns the family's images of what may be taken for an object.

    That is of its type, colour and pattern, and says itself that it is made to
    be taken for another.
    """
    same = ('type', 'colour', 'pattern')
    return [
      step
      for image in self.families[query.family]
      for step in self._list_steps(image)
      if step.subject.change
      and self.get_mark(step.subject) != self.get_mark(carried)
      and all(
        getattr(step.subject, name) == getattr(carried, name) for name in same
      )
    ]

  def is_valid(self, step: Step, hop: world_lib.Hop) -> bool:
    """Returns whether a step satisfies all local checks of a hop."""
    return not self.find_faults(step, hop)

  def find_faults(self, step: Step, hop: world_lib.Hop) -> list[str]:
    """Names the local checks of a hop that a step fails."""
    faults = []
    if self.needs_relation and step.relation != hop.relation:
      faults.append('wrong relation')
    if self.needs_colour and step.other.colour != hop.colour:
      faults.append('wrong colour')
    return faults

  def find_chains(
    self,
    query: world_lib.Query,
    carried: str | None = None,
    seen: tuple[str, ...] = (),
  ) -> list[tuple[str, ...]]:
    """Returns every valid chain that begins with the images seen."""
    if len(seen) == len(query.hops):
      return [seen]
    if carried is None:
      carried = self.get_mark(self.get_start(query))
    hop = query.hops[len(seen)]
    return [
      chain
      for step in self.find_steps(query, carried, seen)
      if self.is_valid(step, hop)
      for chain in self.find_chains(
        query, self.get_mark(step.other), (*seen, step.image)
      )
    ]

  def follow(
    self, query: world_lib.Query, chain: Sequence[str]
  ) -> Iterator[tuple[world_lib.Hop, objects_lib.Object, Step, list[Step]]]:
    """Yields per hop: what is asked, what is carried, the step, all others."""
    carried = self.get_start(query)
    for i, (hop, image) in enumerate(zip(query.hops, chain, strict=True)):
      steps = self.find_steps(query, self.get_mark(carried), chain[:i])
      [taken] = [step for step in steps if step.image == image]
      yield hop, carried, taken, [s for s in steps if s.image != image]
      carried = taken.other


def verify_folder(folder: str | os.PathLike[str]) -> list[Breach]:
  """Checks a world on disk, pixels and fingerprints included.

  Raises:
    DataError: there is no world, or its files cannot be read at all.
    UsageError: the world's asset pack is not there.
  """
  from vhop_jax.worlds import geometry  # Loads mesh code.

  header = world_lib.read_header(folder)
  world = world_lib.load_world(folder, check=False)
  geometry.get_pack(world.spec.pack)  # Else every scene would seem broken.
  pixels = world_lib.read_pixels(folder, check=False)
  breaches = verify_world(world, pixels)
  for kind, found in (
    (
      'content',
      world_lib.compute_content_fingerprint(world.images, world.queries),
    ),
    (
      'pixels',
      world_lib.compute_pixel_fingerprint(world_lib.compute_digests(pixels)),
    ),
  ):
    if header['fingerprint'][kind] != found:
      breaches.append(
        Breach('fingerprint', 'world', f'{kind} is not what world.json says')
      )
  return breaches


def verify_world(
  world: world_lib.World, pixels: np.ndarray | None = None
) -> list[Breach]:
  """Checks a world in memory; without pixels all rules but those on them."""
  breaches = list(_check_images(world))
  if pixels is not None:
    breaches += _check_pixels(world, pixels)
  if any(breach.rule in ('ids', 'view') for breach in breaches):
    return breaches  # Nothing can be searched in such a gallery.
  search = Search(world)
  if world.spec.level >= 6:
    breaches += _check_marks(search)
  breaches += _check_query_ids(world)
  for query in world.queries:
    breaches += _check_query(search, query)
  breaches += [
    Breach('leak', 'world', message)
    for message in leaks.find_leaks(restore_chains(world))
  ]
  return breaches


def restore_chains(world: world_lib.World) -> world_lib.World:
  """Returns a world without chains with those that the search finds.

  Args:
    world: is returned as it is if its spec has chains.
  """
  if world.spec.with_chains:
    return world
  search = Search(world)
  return dataclasses.replace(
    world,
    spec=dataclasses.replace(world.spec, with_chains=True),
    queries=tuple(
      dataclasses.replace(
        query, chains=tuple(sorted(search.find_chains(query)))
      )
      if query.image in search.images
      else query
      for query in world.queries
    ),
  )


def find_refused_queries(world: world_lib.World) -> dict[str, Breach]:
  """Returns the queries that break a rule, each with its first breach."""
  search = Search(world)
  refused: dict[str, Breach] = {}
  for query in world.queries:
    for breach in _check_query(search, query):
      refused.setdefault(query.id, breach)
  return refused


def _check_images(world: world_lib.World) -> Iterator[Breach]:
  """Checks ids, objects, families and the order on the screen."""
  digits = max(5, len(str(len(world.images) - 1)))
  families: dict[str, int] = {}
  things: dict[str, objects_lib.Object] = {}
  looks: dict[str, str] = {}
  scenes: dict[str, str] = {}
  linked = {thing.uid for image in world.images for thing in image.objects}
  types = {(i.family, thing.type) for i in world.images for thing in i.objects}
  extras: dict[str, str] = {}
  for position, image in enumerate(world.images):
    if image.id != f'{position:0{digits}d}':
      yield Breach('ids', image.id, f'stands at position {position}')
    if len(image.objects) not in (1, 2):
      yield Breach('view', image.id, f'shows {len(image.objects)} objects')
    if len({thing.uid for thing in image.objects}) != len(image.objects):
      yield Breach('view', image.id, 'shows an object twice')
    for thing in image.objects:
      if families.setdefault(thing.uid, image.family) != image.family:
        yield Breach('families', image.id, f'{thing.uid} is in two families')
      if things.setdefault(thing.uid, thing) != thing:
        yield Breach('objects', image.id, f'{thing.uid} has changed')
      if looks.setdefault(_get_looks(thing), thing.uid) != thing.uid:
        yield Breach(
          'objects', image.id, f'{thing.uid} looks just like another object'
        )
    for thing in _list_extras(image):
      first = extras.setdefault(thing.uid, image.id)
      if thing.uid in linked or first != image.id:
        yield Breach('extras', image.id, f'{thing.uid} is in other images, too')
      if (image.family, thing.type) in types:
        yield Breach(
          'extras', image.id, f'{thing.uid} is of the type of a linked object'
        )
      if looks.setdefault(_get_looks(thing), thing.uid) != thing.uid:
        yield Breach(
          'objects', image.id, f'{thing.uid} looks just like another object'
        )
      if thing.logo or thing.text:
        yield Breach('extras', image.id, f'{thing.uid} bears a print')
    for thing in image.objects:
      yield from _check_print(world.spec.level, image.id, thing)
    text = world_lib.dump_json(image.scene)
    if scenes.setdefault(text, image.id) != image.id:
      yield Breach('same-scene', image.id, f'is that of {scenes[text]}')
    for rule, message in verify_scene.check_scene(world.spec, image):
      yield Breach(rule, image.id, message)


def _check_print(
  level: int, where: str, thing: objects_lib.Object
) -> Iterator[Breach]:
  """Checks that an object bears what its level links by, and no more."""
  wanted = {6: (True, False), 7: (False, True)}.get(level, (False, False))
  if (bool(thing.logo), bool(thing.text)) != wanted:
    yield Breach(
      'print',
      where,
      f'{thing.uid} bears {thing.logo or thing.text or "nothing"}',
    )


def _check_marks(search: Search) -> Iterator[Breach]:
  """Checks that prints link different objects, of one family."""
  owners: dict[str, int] = {}
  places: dict[str, str] = {}
  types: dict[tuple[str, str], str] = {}
  for image in search.world.images:
    for thing in image.objects:
      mark = search.get_mark(thing)
      if owners.setdefault(mark, image.family) != image.family:
        yield Breach('families', image.id, f'{mark} is in two families')
      if places.setdefault(thing.uid, image.id) != image.id:
        yield Breach('print', image.id, f'{thing.uid} is in two images')
      if types.setdefault((mark, thing.type), thing.uid) != thing.uid:
        yield Breach('print', image.id, f'{mark} is on two of {thing.type}')


def _list_extras(image: world_lib.ImageRecord) -> list[objects_lib.Object]:
  """Lists what a scene holds beside the linked objects, if it is readable."""
  try:
    return list(image.extras)
  except (KeyError, TypeError, ValueError):
    return []  # The check of the scene itself says so.


def _check_pixels(
  world: world_lib.World, pixels: np.ndarray
) -> Iterator[Breach]:
  """Checks that there is one picture a record, and no two are the same."""
  if len(pixels) != len(world.images):
    yield Breach(
      'count', 'world', f'{len(pixels)} pictures, {len(world.images)} records'
    )
  if pixels.shape[2] != world.spec.resolution:
    yield Breach(
      'count',
      'world',
      f'is {pixels.shape[2]} px wide, not {world.spec.resolution}',
    )
  seen: dict[bytes, str] = {}
  for image, picture in zip(world.images, pixels, strict=False):
    first = seen.setdefault(picture.tobytes(), image.id)
    if first != image.id:
      yield Breach('same-pixels', image.id, f'is the picture of {first}')


def _check_query_ids(world: world_lib.World) -> Iterator[Breach]:
  """Checks that queries have ids of their own."""
  for query_id, count in collections.Counter(
    query.id for query in world.queries
  ).items():
    if count > 1:
      yield Breach('query-id', query_id, f'names {count} queries')


def _check_query(search: Search, query: world_lib.Query) -> Iterator[Breach]:
  """Checks one query: its form, its chains, its words, its distractors."""
  spec = search.world.spec
  images = search.images
  named = {query.image, *query.answers, *(i for c in query.chains for i in c)}
  if not named <= images.keys():
    missing = sorted(named - images.keys())
    yield Breach('chains', query.id, f'names images {missing} not in gallery')
    return
  if len(query.hops) != spec.hops:
    yield Breach('hops', query.id, f'has {len(query.hops)} hops')
    return
  if query.id != f'{query.family}_{query.hops[0].relation}':
    yield Breach('query-id', query.id, 'is not <family>_<first relation>')
  start = images[query.image]
  if len(start.objects) != 1:
    yield Breach('query-image', query.id, 'does not show one object alone')
    return
  if start.family != query.family:
    yield Breach('families', query.id, 'starts in another family')

  chains = search.find_chains(query)
  if spec.prompt == 'precise' and len(chains) != 1:
    yield Breach('unique-chain', query.id, f'has {len(chains)} valid chains')
  if not spec.with_chains:
    if query.chains:
      yield Breach(
        'chains', query.id, f'records {query.chains} in a world without'
      )
  elif set(chains) != set(query.chains) or len(set(query.chains)) != len(
    query.chains
  ):
    yield Breach(
      'chains', query.id, f'records {query.chains}, but valid are {chains}'
    )
  answers = sorted({chain[-1] for chain in chains})
  if answers != sorted(query.answers):
    yield Breach(
      'answers', query.id, f'records {query.answers}, but valid are {answers}'
    )
  if spec.prompt == 'vague' and len(chains) < 2:
    yield Breach('chains', query.id, 'is vague, but has one valid chain')
  gold = [chain for chain in chains if _tells(search, query, chain)]
  if not gold:
    yield Breach('hops', query.id, 'no valid chain is what the hops say')
    return
  yield from _check_words(query, spec.prompt)
  yield from _check_distractors(search, query, gold[0])


def _tells(
  search: Search, query: world_lib.Query, chain: Sequence[str]
) -> bool:
  """Returns whether relation and colour of each hop hold on a chain."""
  return all(
    (taken.relation, taken.other.colour) == (hop.relation, hop.colour)
    for hop, _, taken, _ in search.follow(query, chain)
  )


def _check_words(query: world_lib.Query, prompt: str) -> Iterator[Breach]:
  """Checks that the instruction says the route, or nothing of it."""
  words = re.findall(r'[a-z]+', query.instruction.lower())
  colours = {word for word in words if word in objects_lib.COLOURS}
  if prompt == 'vague':
    if colours or set(TELLING) & set(words):
      yield Breach('prompt', query.id, f'tells too much: {query.instruction}')
    return
  told = [
    (PHRASES[phrase], colour)
    for phrase, colour in re.findall(
      rf'\b({"|".join(PHRASES)}) an? ([a-z]+)\b', query.instruction.lower()
    )
  ]
  asked = [(hop.relation, hop.colour) for hop in query.hops]
  if (
    told != asked
    or sum(word in TELLING for word in words) != len(asked)
    or not colours <= {hop.colour for hop in query.hops}
  ):
    yield Breach('prompt', query.id, f'does not say {asked}: {told}')


def _check_distractors(
  search: Search, query: world_lib.Query, gold: Sequence[str]
) -> Iterator[Breach]:
  """Checks that a query meets each distractor of its level and below."""
  level = search.world.spec.level
  hops = list(search.follow(query, gold))
  linking = [carried for _, carried, _, _ in hops]
  things = {o.uid: o for image in search.world.images for o in image.objects}
  for kind in ('type', 'colour'):
    owners = collections.defaultdict(set)
    for thing in things.values():
      owners[getattr(thing, kind)].add(thing.uid)
    if not any(len(owners[getattr(thing, kind)]) > 1 for thing in linking):
      yield Breach(
        'distractor-L1', query.id, f'no other object of the same {kind}'
      )
  if search.needs_relation and not any(
    step.relation == OPPOSITE[hop.relation]
    and (not search.needs_colour or step.other.colour == hop.colour)
    for hop, _, _, others in hops
    for step in others
  ):
    yield Breach('distractor-L2', query.id, 'no scene of the wrong relation')
  if search.needs_colour and not any(
    step.relation == hop.relation and step.other.colour != hop.colour
    for hop, _, _, others in hops
    for step in others
  ):
    yield Breach('distractor-L3', query.id, 'no scene of the wrong colour')
  if level >= 4 and not any(
    search.is_valid(step, hop)
    and not search.find_chains(
      query, search.get_mark(step.other), (*gold[:i], step.image)
    )
    for i, (hop, _, _, others) in enumerate(hops[:-1])
    for step in others
  ):
    yield Breach('distractor-L4', query.id, 'no dead end')
  if level >= 5 and not any(
    search.is_valid(step, hop)
    for hop, carried, _, _ in hops
    for step in search.find_twins(query, carried)
  ):
    yield Breach('distractor-L5', query.id, 'no scene of a look-alike')


def _get_looks(thing: objects_lib.Object) -> str:
  """Returns all that is visible of an object, as a text to compare."""
  values = thing.to_json()
  del values['uid']
  return json.dumps(values, sort_keys=True)

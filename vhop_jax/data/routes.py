"""Reads training worlds: gold routes with the visual tokens of their images."""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import grain
import numpy as np

from vhop_jax import errors, whole_file
from vhop_jax.data import demonstrations
from vhop_jax.env import action as action_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Float, ndarray
from vhop_jax.worlds import level, prompt
from vhop_jax.worlds import link_graph as link_graph_lib
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import world as world_lib

PAD = -1

# A route with what its demonstration decides.
_Demonstration = tuple['Route', list[int]]


@dataclasses.dataclass(frozen=True)
class Route:
  """Holds one query with its chains; images are numbers of a `RouteSet`.

  Attributes:
    instruction: what is asked.
    query_image: the query image.
    chains: all valid chains, each the gold images in order; none where the
      world keeps them to itself.
    equals: for each chain and hop the other images that fit the hop as well.
    answers: the valid answers.
    family: all images of its family, its distractors among them.
    hops: what is asked, for other wordings of the same.
    kind: of prompt, 'precise' or 'vague'.
    mark: what makes its links: '' for objects, 'logo' or 'text'.
  """

  instruction: str
  query_image: int
  chains: tuple[tuple[int, ...], ...]
  equals: tuple[tuple[tuple[int, ...], ...], ...]
  answers: tuple[int, ...]
  family: tuple[int, ...]
  hops: tuple[world_lib.Hop, ...] = ()
  kind: str = 'precise'
  mark: str = ''

  def reword(
    self, rng: np.random.Generator, *, compose_frac: float = 0.0
  ) -> 'Route':
    """Returns the route in other words.

    Args:
      rng: draws them.
      compose_frac: share of precise prompts without marks that are put together
        from parts.
    """
    # A draw only where there is a choice.
    if (
      compose_frac
      and (self.kind, self.mark) == ('precise', '')
      and rng.random() < compose_frac
    ):
      text = prompt.compose(rng, self.hops)
    else:
      text = prompt.route(rng, self.hops, self.kind, mark=self.mark)
    return dataclasses.replace(self, instruction=text)

  def mirror(self, offset: int) -> 'Route':
    """Returns the route through the same images, left and right exchanged.

    Args:
      offset: number of the first mirror image less that of the first image.
    """
    hops = tuple(
      dataclasses.replace(hop, relation=level.flip_sides(hop.relation))
      for hop in self.hops
    )
    move = lambda images: tuple(i + offset for i in images)  # noqa: E731
    mirrored = dataclasses.replace(
      self,
      query_image=self.query_image + offset,
      chains=tuple(move(chain) for chain in self.chains),
      equals=tuple(tuple(move(e) for e in equals) for equals in self.equals),
      answers=move(self.answers),
      family=move(self.family),
      hops=hops,
    )
    if not self.instruction:
      return mirrored
    # Always the same words, which are as many as there are queries.
    return mirrored.reword(np.random.default_rng(mirrored.query_image))


@dataclasses.dataclass(frozen=True)
class RouteSet:
  """Holds the routes of some worlds and the visual tokens of all images.

  Attributes:
    routes: one a query.
    visual: the tokens of all images.
    walks: for each query image all walks through its family, of its world's
      length and of as many hops more as was asked for, whatever they pass, the
      gold chains among them; of vague prompts, to which each such walk is an
      answer, from the family's other images, too. Not yet worded; none of
      worlds without chains.
  """

  routes: tuple[Route, ...]
  visual: Float[ndarray, 'N M packed']
  walks: Mapping[int, tuple[Route, ...]] = dataclasses.field(
    default_factory=dict
  )

  def __len__(self) -> int:
    """Returns the number of routes."""
    return len(self.routes)

  def __getitem__(self, index: int) -> Route:
    """Returns one route; makes the set a source for Grain."""
    return self.routes[int(index)]


def load_routes(
  folders: Sequence[str | os.PathLike[str]],
  model: pretrained_lib.Pretrained,
  *,
  cache: str | os.PathLike[str],
  mirror: bool = False,
  walk_extra_hops: int = 0,
) -> RouteSet:
  """Reads worlds and encodes their images, or finds that done before.

  Args:
    folders: the worlds; they may differ in hops.
    model: its vision tower is used, frozen.
    cache: folder for the visual tokens of each world.
    mirror: whether each world comes a second time, as seen in a mirror.
    walk_extra_hops: see `make_walks`.

  Raises:
    DataError: a world is missing or damaged, the worlds do not fit, or they
      have no query.
  """
  routes: list[Route] = []
  walks: dict[int, tuple[Route, ...]] = {}
  parts: list[np.ndarray] = []
  offset = 0
  for number, folder in enumerate(folders):
    world = world_lib.load_world(folder)
    made = make_routes(world, offset)
    walked = make_walks(world, offset, extra_hops=walk_extra_hops)
    count = len(world.images)
    if mirror:
      made += [route.mirror(count) for route in made]
      walked |= {
        image + count: tuple(walk.mirror(count) for walk in several)
        for image, several in walked.items()
      }
    routes += made
    walks |= walked
    for is_mirrored in (False, True)[: 1 + mirror]:
      parts.append(
        _load_visual(
          folder, model, pathlib.Path(cache), is_mirrored=is_mirrored
        )
      )
    offset += count * (1 + mirror)
    print(
      f'read world {number + 1}/{len(folders)} {folder}: {offset} images,'
      f' {len(routes)} routes so far',
      flush=True,
    )
  if not routes:
    raise errors.DataError(
      f'the worlds {", ".join(map(str, folders))} have no query: build larger'
      ' ones'
    )
  return RouteSet(tuple(routes), np.concatenate(parts), walks)


def _load_visual(
  folder: str | os.PathLike[str],
  model: pretrained_lib.Pretrained,
  cache: pathlib.Path,
  *,
  is_mirrored: bool,
) -> np.ndarray:
  """Returns the visual tokens of a world, from `cache` if they are there."""
  header = world_lib.read_header(folder)
  key = f'{header["fingerprint"]["pixels"][:16]}-{model.fingerprint[:16]}'
  if is_mirrored:
    key += '-mirrored'
  path = cache / f'{key}.npy'
  if not path.exists():
    pixels = world_lib.read_pixels(folder)
    if is_mirrored:
      pixels = pixels[:, :, ::-1]
    visual = gallery_lib.encode_images(model, pixels)
    with whole_file.replace(path) as part, part.open('wb') as file:
      np.save(file, visual)
  # Mapped: joined with the others it is in memory once, not twice.
  return np.load(path, mmap_mode='r')


def make_routes(world: world_lib.World, offset: int) -> list[Route]:
  """Makes the route of each query.

  Args:
    world: with queries.
    offset: number of its first image.
  """
  graph, families = world.link_graph(), _find_families(world, offset)
  return [
    _make_route(
      world,
      graph,
      query.image,
      query.chains,
      query.hops,
      instruction=query.instruction,
      answers=query.answers,
      family=families[query.family],
      offset=offset,
    )
    for query in world.queries
  ]


def make_walks(
  world: world_lib.World, offset: int, *, extra_hops: int = 0
) -> dict[int, tuple[Route, ...]]:
  """Makes all routes of the world's length, and longer, from each query image.

  A family has many more walks than gold chains: each image of the carried
  object is what some instruction asks for, a distractor's too. Telling them
  apart by the instruction is what the router must learn. A family's last
  images are linked to others, too, so there are walks of more hops than any
  chain.

  A vague prompt asks for "the new object" throughout, so each walk from a query
  image is a gold chain. There are more from images of two objects, either of
  which is followed: what is new after the first hop is as clear from them.

  Args:
    world: with queries.
    offset: number of its first image.
    extra_hops: how many hops more a walk may have.

  Returns:
    The walks by number of the query image.
  """
  if not any(q.chains for q in world.queries):
    return {}
  graph, families = world.link_graph(), _find_families(world, offset)

  def find_starts(image: str, family: int) -> list[str]:
    if world.spec.prompt == 'precise':
      return [image]
    return [world.images[i - offset].id for i in families[family]]

  return {
    offset + world.index(image): tuple(
      _make_route(
        world,
        graph,
        start,
        (chain,),
        hops,
        instruction='',
        answers=chain[-1:],
        family=families[family],
        offset=offset,
      )
      for start in find_starts(image, family)
      for chain, hops in _list_walks(world, graph, start, extra_hops)
    )
    for image, family in {q.image: q.family for q in world.queries}.items()
  }


def _find_families(
  world: world_lib.World, offset: int
) -> Mapping[int, tuple[int, ...]]:
  families: dict[int, list[int]] = {}
  for i, image in enumerate(world.images):
    families.setdefault(image.family, []).append(offset + i)
  return {family: tuple(images) for family, images in families.items()}


def _list_walks(
  world: world_lib.World,
  graph: link_graph_lib.LinkGraph,
  start: str,
  extra_hops: int,
) -> list[tuple[tuple[str, ...], tuple[world_lib.Hop, ...]]]:
  """Lists image ids and hops of every walk that meets no image twice."""
  # Each path begins with `start`; the last item is what it carries on.
  walks: list[
    tuple[tuple[str, ...], tuple[world_lib.Hop, ...], objects_lib.Object]
  ]
  walks = [((start,), (), o) for o in world.images[world.index(start)].objects]
  listed = []
  for hops_done in range(1, world.spec.hops + extra_hops + 1):
    walks = [
      (
        (*path, link.target_id),
        (*hops, world_lib.Hop(link.relation, link.other.colour)),
        link.other,
      )
      for path, hops, carried in walks
      for link in graph.links(path[-1], carried)
      if link.target_id not in path
    ]
    if hops_done >= world.spec.hops:
      listed += [(path[1:], hops) for path, hops, _ in walks]
  return listed


def _make_route(
  world: world_lib.World,
  graph: link_graph_lib.LinkGraph,
  start: str,
  chains: Sequence[Sequence[str]],
  hops: Sequence[world_lib.Hop],
  *,
  instruction: str,
  answers: Sequence[str],
  family: tuple[int, ...],
  offset: int,
) -> Route:
  """Makes a route, finding hop by hop what fits as well as the gold image."""
  place = lambda image: offset + world.index(image)  # noqa: E731
  return Route(
    instruction=instruction,
    query_image=place(start),
    chains=tuple(tuple(place(i) for i in chain) for chain in chains),
    equals=tuple(
      tuple(
        tuple(sorted(place(i) for i in others))
        for others in _find_equals(world, graph, start, chain, hops)
      )
      for chain in chains
    ),
    answers=tuple(place(i) for i in answers),
    family=family,
    hops=tuple(hops),
    kind=world.spec.prompt,
    mark=level.find_print(world.spec.level),
  )


def _find_equals(
  world: world_lib.World,
  graph: link_graph_lib.LinkGraph,
  start: str,
  chain: Sequence[str],
  hops: Sequence[world_lib.Hop],
) -> list[set[str]]:
  """Returns for each hop the images that fit as well as that of the chain."""
  source = start
  # Of the first image any object; then that which the hop led to.
  carried = world.images[world.index(source)].objects
  seen = {source}
  equals = []
  for hop, gold in zip(hops, chain, strict=True):
    links = [
      link
      for thing in carried
      for link in graph.valid_links(world.spec, hop, source, thing)
    ]
    equals.append({link.target_id for link in links} - seen - {gold})
    carried = (next(link.other for link in links if link.target_id == gold),)
    source = gold
    seen.add(gold)
  return equals


def make_batches(
  routes: RouteSet,
  maker: sequence_lib.SequenceMaker,
  *,
  seed: int,
  batch_size: int,
  family_size: int,
  max_text_tokens: int,
  reword: bool,
  compose_frac: float,
  walk_frac: float,
  decisions: int,
  turns: Mapping[str, float],
  threads: int,
) -> Any:
  """Makes an endless Grain iterator over batches of routes.

  Args:
    routes: the training set.
    maker: lays out instruction and query image.
    seed: of the order.
    batch_size: B, routes of a batch.
    family_size: images of a family that join the candidates, padded to this.
    max_text_tokens: S of the prefix.
    reword: words each route anew whenever it comes.
    compose_frac: see `Route.reword`.
    walk_frac: share of routes replaced by a walk from the same query image.
    decisions: T, decisions of a demonstration.
    turns: how often they turn wrong, see `demonstrations.sample_decisions`.
    threads: that prepare batches ahead.

  Returns:
    An iterator over dicts: `prefix/*` [B, S]; chains int [B, K, hops], the
    gold images as indices into the C = B x family_size candidates, PAD after
    the last; lengths int [B, K], 0 where there is no chain; answers int
    [B, A], the valid answers, then PAD; query_candidate int [B], the query
    image; equal_mask bool [B, hops, C], True at images that fit the hop of
    some chain as well as its gold one; candidate_mask bool [C]; action int
    [B, T], numbered as in `env.action`; query_visual [B, M, D];
    candidate_visual [C, M, D].

  Raises:
    UsageError: a chain is longer than a demonstration.
  """
  walked = [w for walks in routes.walks.values() for w in walks]
  sizes = _Sizes(
    chains=max(1, *(len(route.chains) for route in routes.routes)),
    hops=max(len(route.hops) for route in (*routes.routes, *walked)),
    answers=max(len(route.answers) for route in routes.routes),
    candidates=batch_size * family_size,
    text_tokens=max_text_tokens,
  )
  if sizes.hops > decisions:
    raise errors.UsageError(
      f'data.decisions={decisions} is too few for chains of {sizes.hops}'
      ' images: raise it'
    )

  def join(batch: Sequence[_Demonstration]) -> dict[str, np.ndarray]:
    return _join(batch, routes.visual, maker, sizes)

  def vary(route: Route, rng: np.random.Generator) -> _Demonstration:
    walks = routes.walks.get(route.query_image)
    if rng.random() < walk_frac and walks:
      route = _sample_walk(rng, walks).reword(rng, compose_frac=compose_frac)
    elif reword:
      route = route.reword(rng, compose_frac=compose_frac)
    if not route.chains:
      return route, [demonstrations.STOP] * decisions
    others = [i for i in route.family if i != route.query_image]
    # A draw only where there is a choice: one chain needs no randomness.
    count = len(route.chains)
    number = int(rng.integers(count)) if count > 1 else 0
    made = demonstrations.sample_decisions(
      rng,
      route.chains[number],
      route.equals[number],
      others,
      length=decisions,
      **turns,
    )
    return route, made

  dataset = (
    grain.MapDataset.source(routes)
    .seed(seed)
    .shuffle()
    .repeat()
    .random_map(vary)
    .batch(batch_size, drop_remainder=True, batch_fn=join)
  )
  return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads)))


def _sample_walk(rng: np.random.Generator, walks: Sequence[Route]) -> Route:
  """Draws a walk, of each length equally often: the longer ones are more."""
  lengths = sorted({len(walk.hops) for walk in walks})
  # A draw only where there is a choice.
  if len(lengths) > 1:
    length = lengths[rng.integers(len(lengths))]
    walks = [walk for walk in walks if len(walk.hops) == length]
  return walks[int(rng.integers(len(walks)))]


@dataclasses.dataclass(frozen=True)
class _Sizes:
  """Holds the sizes of a batch's arrays, the same for all batches."""

  chains: int
  hops: int
  answers: int
  candidates: int
  text_tokens: int


def _join(
  batch: Sequence[_Demonstration],
  visual: Float[ndarray, 'N M packed'],
  maker: sequence_lib.SequenceMaker,
  sizes: _Sizes,
) -> dict[str, np.ndarray]:
  routes = [route for route, _ in batch]
  candidates = np.full(sizes.candidates, PAD)
  # Two routes may share a family; its images compete once.
  unique = list(dict.fromkeys(i for route in routes for i in route.family))
  if len(unique) > len(candidates):
    raise errors.UsageError(
      f'the families of a batch have {len(unique)} images, more than'
      f' batch_size x family_size = {len(candidates)}: raise data.family_size'
    )
  candidates[: len(unique)] = unique
  place = {image: i for i, image in enumerate(unique)}
  place |= {
    demonstrations.BACKTRACK: action_lib.make_backtrack(len(candidates)),
    demonstrations.STOP: action_lib.make_stop(len(candidates)),
  }
  chains = np.full((len(batch), sizes.chains, sizes.hops), PAD, np.int32)
  lengths = np.zeros((len(batch), sizes.chains), np.int32)
  answers = np.full((len(batch), sizes.answers), PAD, np.int32)
  equal_mask = np.zeros((len(batch), sizes.hops, len(candidates)), bool)
  for row, route in enumerate(routes):
    answers[row, : len(route.answers)] = [place[i] for i in route.answers]
    for number, (chain, equals) in enumerate(
      zip(route.chains, route.equals, strict=True)
    ):
      chains[row, number, : len(chain)] = [place[i] for i in chain]
      lengths[row, number] = len(chain)
      for hop, others in enumerate(equals):
        equal_mask[row, hop, [place[i] for i in others]] = True
  action = np.array([[place[i] for i in made] for _, made in batch], np.int32)
  queries = np.array([r.query_image for r in routes])
  return {
    **sequence_lib.to_batch(
      'prefix',
      maker.queries([r.instruction for r in routes], length=sizes.text_tokens),
    ),
    'chains': chains,
    'lengths': lengths,
    'answers': answers,
    'action': action,
    'query_candidate': np.array([place[i] for i in queries], np.int32),
    'equal_mask': equal_mask,
    'candidate_mask': candidates != PAD,
    'query_visual': visual[queries],
    'candidate_visual': visual[np.maximum(candidates, 0)],
  }

"""Tests whether the order of a gallery's ids tells anything of the answers."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import math

from vhop_jax.worlds import world as world_lib

# Of the permutation tests: one false alarm in two million.
SIGMAS = 5.0


def find_leaks(world: world_lib.World) -> Iterator[str]:
  """Yields what the order of the ids gives away.

  Args:
    world: its images must be in the order of their ids.
  """
  families = collections.defaultdict(list)
  for position, image in enumerate(world.images):
    families[image.family].append(position)
  for role, members in _find_roles(world).items():
    if not _is_evenly_ranked(members, families):
      yield f'the ids of {role} are not a random part of their families'
    if not _is_evenly_spread(members, len(world.images)):
      yield f'the ids of {role} are not spread over the gallery'
  count = len(world.images)
  if len(families) < 2:
    return
  neighbours = zip(world.images, world.images[1:], strict=False)
  same = sum(a.family == b.family for a, b in neighbours)
  pairs = sum(len(ids) * (len(ids) - 1) for ids in families.values())
  expected = pairs / count
  if same > expected + SIGMAS * math.sqrt(expected):
    yield (
      f'{same} neighbours by id are of one family, {expected:.1f} are to be'
      ' expected'
    )


def _find_roles(world: world_lib.World) -> dict[str, set[tuple[int, int]]]:
  """Returns family and position of the images that play a part."""
  positions = {image.id: i for i, image in enumerate(world.images)}
  roles: dict[str, set[tuple[int, int]]] = {
    'answers': set(),
    'chains': set(),
    'query images': set(),
  }
  for query in world.queries:
    for role, images in (
      ('answers', query.answers),
      ('chains', [image for chain in query.chains for image in chain]),
      ('query images', [query.image]),
    ):
      for image in images:
        if image in positions:
          roles[role].add((query.family, positions[image]))
  return roles


def _is_evenly_ranked(
  members: Iterable[tuple[int, int]], families: Mapping[int, Sequence[int]]
) -> bool:
  """Returns whether some images' ranks in their families look random.

  Under a random order the rank of an image among n is uniform: its mean is
  (n - 1) / 2 and its variance (n^2 - 1) / 12. Members of one family exclude
  each other, so the sum's true variance is smaller than the one used here.
  """
  total = mean = variance = 0.0
  for family, position in members:
    positions = sorted(families[family])
    if position not in positions:
      continue
    n = len(positions)
    total += positions.index(position)
    mean += (n - 1) / 2
    variance += (n * n - 1) / 12
  return abs(total - mean) <= SIGMAS * math.sqrt(variance)


def _is_evenly_spread(members: Iterable[tuple[int, int]], count: int) -> bool:
  """Returns whether some images' positions in the gallery look random."""
  positions = [position for _, position in members]
  mean = len(positions) * (count - 1) / 2
  variance = len(positions) * (count * count - 1) / 12
  return abs(sum(positions) - mean) <= SIGMAS * math.sqrt(variance)

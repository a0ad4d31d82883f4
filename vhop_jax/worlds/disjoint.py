"""Proves from their files that worlds share nothing that could be memorised.

No two worlds may share

- a physical object: its uid, or looks that are the same in all numbers, be it
  in an image's record or anywhere in its scene;
- a scene;
- a background: all the numbers of ground, wall and their textures;
- from a rephrased world to a standard one, a clause of an instruction.

Which worlds are trained on does not matter: any two are compared. Worlds of
one kind of wording do share their clauses, training and standard test worlds
too: there are few sentences and each has to be learned. How many they share is
counted, and is no breach. A clause is what stands between two marks, with
relations, colours and numbers masked.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import os
import re
from typing import Any

from vhop_jax import errors
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prompt as prompt_lib
from vhop_jax.worlds import verify, wordings
from vhop_jax.worlds import world as world_lib

RULE = 'disjoint'
_MASKS = {
  'relation': prompt_lib.RELATION_WORDS.values(),
  'colour': objects_lib.COLOURS,
  'number': (*prompt_lib.NUMBERS, *prompt_lib.ORDINALS),
}


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Holds what comparing worlds found.

  Attributes:
    breaches: what is shared and may not be.
    counts: how many objects, scenes, backgrounds and clauses there are in all.
    shared_clauses: how many clauses standard worlds share with one another.
  """

  breaches: tuple[verify.Breach, ...]
  counts: Mapping[str, int]
  shared_clauses: int

  def describe(self) -> str:
    """Returns in a few words what was compared and what is shared."""
    found = ', '.join(
      f'{count:,} {kind}s' for kind, count in self.counts.items()
    )
    return (
      f'{found}; standard worlds share {self.shared_clauses} clauses, as they'
      ' may'
    )


def compare_worlds(folders: Sequence[str | os.PathLike[str]]) -> Comparison:
  """Compares worlds, each with all others.

  Args:
    folders: of the worlds; one that is named twice is compared once.

  Raises:
    UsageError: fewer than two worlds are given.
    DataError: a folder has no world, or a damaged one.
  """
  if len(folders) < 2:
    raise errors.UsageError('name at least two worlds to compare')
  names = list(dict.fromkeys(map(str, folders)))
  owners: dict[tuple[str, str], tuple[str, str]] = {}
  clauses: dict[str, dict[str, set[str]]] = {
    wording: collections.defaultdict(set) for wording in wordings.WORDINGS['']
  }
  breaches = []
  for name in names:
    world = world_lib.load_world(name)
    for query in world.queries:
      for clause in list_clauses(query.instruction):
        clauses[world.spec.wording][clause].add(name)
    told = set()
    for image in world.images:
      for kind, mark in _list_marks(image):
        owner, first = owners.setdefault((kind, mark), (name, image.id))
        if owner != name and (kind, mark) not in told:
          told.add((kind, mark))
          breaches.append(
            verify.Breach(
              RULE,
              name,
              f'shares a {kind} with {owner}: image {image.id} here,'
              f' {first} there',
            )
          )
  breaches += _compare_wordings(clauses)
  counts = collections.Counter(kind for kind, _ in owners)
  counts['clause'] = len(set().union(*clauses.values()))
  return Comparison(
    breaches=tuple(breaches),
    counts={
      kind: counts[kind] for kind in ('object', 'scene', 'background', 'clause')
    },
    shared_clauses=sum(
      len(owned) > 1 for owned in clauses['standard'].values()
    ),
  )


def list_clauses(instruction: str) -> list[str]:
  """Splits an instruction at its marks and masks what a world decides.

  The articles before colours and `to the` before sides are masked with them,
  because they follow them.
  """
  text = instruction.lower()
  for name, words in _MASKS.items():
    choices = '|'.join(sorted(words, key=len, reverse=True))
    text = re.sub(rf'\b(?:an? |to the )?(?:{choices})\b', f'<{name}>', text)
  return [
    part for part in (p.strip() for p in re.split('[.,;:?]', text)) if part
  ]


def _list_marks(image: world_lib.ImageRecord) -> Iterator[tuple[str, str]]:
  """Yields kind and text of what an image may share with no other world's."""
  things = [thing.to_json() for thing in image.objects]
  for thing in (*things, *_find_things(image.scene)):
    yield 'uid', thing['uid']
    looks = {key: value for key, value in thing.items() if key != 'uid'}
    yield 'object', world_lib.dump_json(looks)
  yield 'scene', world_lib.dump_json(image.scene)
  if 'background' in image.scene:
    yield 'background', world_lib.dump_json(image.scene['background'])


def _find_things(values: Any) -> Iterator[dict[str, Any]]:
  """Yields the objects within a scene, wherever they are."""
  if isinstance(values, list):
    for value in values:
      yield from _find_things(value)
  elif isinstance(values, dict):
    if 'uid' in values:
      yield values
    for value in values.values():
      yield from _find_things(value)


def _compare_wordings(
  clauses: Mapping[str, Mapping[str, set[str]]],
) -> Iterator[verify.Breach]:
  """Yields the clauses that rephrased worlds share with standard ones.

  Args:
    clauses: by wording and clause, the worlds that have it.
  """
  for clause, folders in sorted(clauses['rephrased'].items()):
    owners = clauses['standard'].get(clause)
    if owners:
      yield verify.Breach(
        RULE,
        min(folders),
        f'is rephrased, but shares a wording with {min(owners)}: {clause!r}',
      )

"""Says which image may follow which, by which object, in which relation.

Two images are linked by an object that both show; from level 6 on by a logo,
and at level 7 by a text, that is printed on an object of each.
"""

import collections
from collections.abc import Sequence
import dataclasses
from typing import TYPE_CHECKING

from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import objects as objects_lib

if TYPE_CHECKING:
  from vhop_jax.worlds import world as world_lib


@dataclasses.dataclass(frozen=True)
class Link:
  """Holds one edge: the carried object seen again in another image.

  Attributes:
    target_id: Image in which the carried object is seen again.
    subject: The object that makes the link: the carried one itself, or another
      with the same print.
    relation: Where `subject` stands there with respect to `other`.
    other: The object beside it, which is carried from there on.
  """

  target_id: str
  subject: objects_lib.Object
  relation: str
  other: objects_lib.Object


def get_mark(thing: objects_lib.Object, level: int) -> str:
  """Returns what two objects share that link two images at a level."""
  printed = level_lib.find_print(level)
  return getattr(thing, printed) if printed else thing.uid


class LinkGraph:
  """Answers where an object can be followed to.

  The graph knows nothing of prompts or of what a hop asks for; `valid_links`
  applies them.
  """

  def __init__(
    self,
    images: 'Sequence[world_lib.ImageRecord]',
    *,
    level: int,
    relations: str = 'sides',
  ):
    """Indexes the images by the marks of the objects that they show.

    Args:
      images: the gallery; images of a single object are nobody's target.
      level: decides what makes a link.
      relations: how two objects of the world stand, a key of `level.PAIRS`.
    """
    self._level = level
    of_first, of_second = level_lib.PAIRS[relations]
    self._links: dict[str, list[Link]] = collections.defaultdict(list)
    for image in images:
      if len(image.objects) != 2:
        continue
      first, second = image.objects
      for subject, relation, other in (
        (first, of_first, second),
        (second, of_second, first),
      ):
        link = Link(image.id, subject, relation, other)
        self._links[get_mark(subject, level)].append(link)

  def links(self, image_id: str, carried: objects_lib.Object) -> list[Link]:
    """Returns all links from an image by one object that it shows."""
    return [
      link
      for link in self._links.get(get_mark(carried, self._level), ())
      if link.target_id != image_id
    ]

  def valid_links(
    self,
    spec: 'world_lib.Spec',
    hop: 'world_lib.Hop',
    image_id: str,
    carried: objects_lib.Object,
  ) -> list[Link]:
    """Returns the links that satisfy what a hop asks for at a spec's level.

    The caller leaves out what its chain holds already.
    """
    needs_relation = level_lib.asks_relation(spec.level, spec.prompt)
    needs_colour = level_lib.asks_colour(spec.level, spec.prompt)
    return [
      link
      for link in self.links(image_id, carried)
      if (not needs_relation or link.relation == hop.relation)
      and (not needs_colour or link.other.colour == hop.colour)
    ]

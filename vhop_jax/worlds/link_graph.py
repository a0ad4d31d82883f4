"""Says which image may follow which, by which object, in which relation."""

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
    relation: Where the carried object stands there with respect to `other`.
    other: The object beside it, which is carried from there on.
  """

  target_id: str
  relation: str
  other: objects_lib.Object


class LinkGraph:
  """Answers where an object can be followed to.

  The graph knows nothing of levels or prompts; `valid_links` applies them.
  """

  def __init__(
    self,
    images: 'Sequence[world_lib.ImageRecord]',
    relations: str = 'sides',
  ):
    """Indexes the images by the objects that they show.

    Args:
      images: the gallery; images of a single object are nobody's target.
      relations: how two objects of the world stand, a key of `level.PAIRS`.
    """
    of_first, of_second = level_lib.PAIRS[relations]
    self._links: dict[str, list[Link]] = collections.defaultdict(list)
    for image in images:
      if len(image.objects) != 2:
        continue
      first, second = image.objects
      self._links[first.uid].append(Link(image.id, of_first, second))
      self._links[second.uid].append(Link(image.id, of_second, first))

  def links(self, image_id: str, object_uid: str) -> list[Link]:
    """Returns all links from an image by one object that it shows."""
    return [
      link
      for link in self._links.get(object_uid, ())
      if link.target_id != image_id
    ]

  def valid_links(
    self,
    spec: 'world_lib.Spec',
    hop: 'world_lib.Hop',
    image_id: str,
    object_uid: str,
  ) -> list[Link]:
    """Returns the links that satisfy what a hop asks for at a spec's level.

    The caller leaves out what its chain holds already.
    """
    needs_relation = level_lib.asks_relation(spec.level, spec.prompt)
    needs_colour = level_lib.asks_colour(spec.level, spec.prompt)
    return [
      link
      for link in self.links(image_id, object_uid)
      if (not needs_relation or link.relation == hop.relation)
      and (not needs_colour or link.other.colour == hop.colour)
    ]

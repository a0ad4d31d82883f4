"""Measures single hops: the router's task with each hop told by itself.

This is what a standard embedding model can do, and what best-path search
builds on: from an image, which of its objects is carried, and what the next
image must show.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import prompt
from vhop_jax.worlds import world as world_lib

KS = (1, 2, 5, 10)


@dataclasses.dataclass(frozen=True)
class ToldHop:
  """Holds one hop of a gold chain.

  Attributes:
    query: index of its query in the world.
    hop: number of the hop, from 0.
    source: gallery index of the image it starts from.
    side: where the carried object stands there, a value of `prompt.PLACES`;
      None where it is alone.
    target: gallery index of the gold image.
    excluded: gallery indices that may not be retrieved.
  """

  query: int
  hop: int
  source: int
  side: str | None
  target: int
  excluded: tuple[int, ...]


def find_carried_side(
  image: world_lib.ImageRecord, uid: str, relations: str = 'sides'
) -> str | None:
  """Returns where an object stands in an image; None where it is alone.

  Args:
    image: shows the object.
    uid: of the object.
    relations: how two objects of the world stand, a key of `level.PAIRS`.
  """
  if len(image.objects) == 1:
    return None
  place = [o.uid for o in image.objects].index(uid)
  return prompt.PLACES[level_lib.PAIRS[relations][place]]


def list_told_hops(world: world_lib.World) -> list[ToldHop]:
  """Lists each hop of the first gold chain of each query."""
  hops = []
  graph = world.link_graph()
  for q, query in enumerate(world.queries):
    seen = [world.index(query.image)]
    carried = world.images[seen[0]].objects[0]
    for h, image_id in enumerate(query.chains[0]):
      source = world.images[seen[-1]]
      target = world.index(image_id)
      hops.append(
        ToldHop(
          query=q,
          hop=h,
          source=seen[-1],
          side=find_carried_side(source, carried.uid, world.spec.relations),
          target=target,
          excluded=tuple(seen),
        )
      )
      (carried,) = (
        link.other
        for link in graph.links(source.id, carried)
        if link.target_id == image_id
      )
      seen.append(target)
  return hops


def compute_told_ranks(
  model: pretrained_lib.Pretrained, gallery: gallery_lib.Gallery, *, seed: int
) -> Mapping[int, np.ndarray]:
  """Ranks the gold image of each hop by a single-hop query.

  Args:
    model: the embedding model.
    gallery: of a world with chains.
    seed: chooses the wordings.

  Returns:
    For each hop number, the ranks (from 1) over the queries.
  """
  rng = np.random.default_rng(seed)
  world = gallery.world
  hops = list_told_hops(world)
  vague = world.spec.prompt == 'vague'
  texts = []
  for told in hops:
    hop = world.queries[told.query].hops[told.hop]
    texts.append(
      prompt.single_hop(
        rng,
        side=told.side,
        relation=None if vague else hop.relation,
        colour=None if vague else hop.colour,
        mark=level_lib.find_print(world.spec.level),
      )
    )
  sources = np.array([told.source for told in hops])
  scores = (
    gallery_lib.embed_queries(
      model, model.maker.queries(texts), gallery.visual[sources]
    )
    @ gallery.embeddings.T
  )
  candidates = np.ones(scores.shape, bool)
  for row, told in enumerate(hops):
    candidates[row, list(told.excluded)] = False
  targets = np.array([told.target for told in hops])
  ranks = scores_lib.compute_ranks(scores, targets, candidates)
  numbers = np.array([told.hop for told in hops])
  return {int(h): ranks[numbers == h] for h in np.unique(numbers)}


def compute_told_recall(
  model: pretrained_lib.Pretrained, gallery: gallery_lib.Gallery, *, seed: int
) -> dict[str, float]:
  """Returns recall@k of each hop as `hop<h>_r<k>`, h from 1."""
  ranks = compute_told_ranks(model, gallery, seed=seed)
  return {
    f'hop{h + 1}_r{k}': float(np.mean(values <= k))
    for h, values in ranks.items()
    for k in KS
  }

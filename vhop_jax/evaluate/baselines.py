"""Retrieves by the standard embedding model, without any routing."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from vhop_jax.evaluate import routing
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.index import search
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.typing import Bool, Float, Int, ndarray
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import prompt
from vhop_jax.worlds import world as world_lib


def _get_queries(
  world: world_lib.World,
) -> tuple[list[str], Int[ndarray, 'B'], Bool[ndarray, 'B N']]:
  """Returns instructions, query images and what may be retrieved."""
  index = np.array([world.index(query.image) for query in world.queries])
  candidates = np.ones((len(index), len(world.images)), bool)
  candidates[np.arange(len(index)), index] = False
  return [query.instruction for query in world.queries], index, candidates


def run_single_shot(
  model: pretrained_lib.Pretrained,
  gallery: gallery_lib.Gallery,
  *,
  steps: int,
) -> list[scores_lib.Trajectory]:
  """Embeds instruction and query image once; returns the best `steps`."""
  texts, index, candidates = _get_queries(gallery.world)
  queries = gallery_lib.embed_queries(
    model, model.maker.queries(texts), gallery.visual[index]
  )
  scores = queries @ gallery.embeddings.T
  top = search.find_top(scores, candidates, steps)
  return routing.make_trajectories(
    gallery.world, top, np.take_along_axis(scores, top, axis=1)
  )


def run_steps(
  model: pretrained_lib.Pretrained,
  gallery: gallery_lib.Gallery,
  *,
  steps: int,
  keep_history: bool,
) -> list[scores_lib.Trajectory]:
  """Retrieves `steps` times, each time with what was found in the query.

  Args:
    model: the embedding model.
    gallery: the images.
    steps: T.
    keep_history: whether a query holds the query image and all images found
      (the history baseline) or the last one only (the greedy baseline).
  """
  texts, index, candidates = _get_queries(gallery.world)
  rows = np.arange(len(index))
  seen = index[:, None]
  scores = np.zeros((len(index), steps), np.float32)
  for t in range(steps):
    images = seen if keep_history else seen[:, -1:]
    visual = gallery.visual[images]
    queries = gallery_lib.embed_queries(
      model,
      model.maker.queries(texts, images=images.shape[1]),
      visual.reshape(len(index), -1, visual.shape[-1]),
    )
    similarities = queries @ gallery.embeddings.T
    best = search.find_top(similarities, candidates, 1)[:, 0]
    scores[:, t] = similarities[rows, best]
    candidates[rows, best] = False
    seen = np.concatenate([seen, best[:, None]], axis=1)
  return routing.make_trajectories(gallery.world, seen[:, 1:], scores)


@dataclasses.dataclass(frozen=True)
class _Path:
  """Holds a partial path of the search.

  Attributes:
    images: gallery indices, the query image first.
    scores: cosine of each hop.
  """

  images: tuple[int, ...]
  scores: tuple[float, ...]


def _find_side(
  world: world_lib.World, path: _Path, relation: str | None
) -> str | None:
  """Returns where the object to carry on stands, by the hop that led here.

  An object carried `leftof` another stands left, so the other one, which is
  carried from there on, is on the right.
  """
  if len(world.images[path.images[-1]].objects) == 1 or relation is None:
    return None
  return prompt.PLACES[level_lib.MIRROR[relation]]


def search_best_path(
  model: pretrained_lib.Pretrained,
  gallery: gallery_lib.Gallery,
  *,
  beam: int,
  wording: int,
) -> list[scores_lib.Trajectory]:
  """Finds the path of the highest sum of cosines, told each hop by itself.

  A reference, no competitor: it is given each hop's relation and colour as a
  sentence of its own and compares whole paths, so dead ends show by their bad
  continuation.

  Args:
    model: the embedding model.
    gallery: of a world with precise prompts.
    beam: partial paths that are kept for each query.
    wording: seed of the wording of single hops.

  Raises:
    ValueError: the world's prompts are vague, no hop can be told.
  """
  world = gallery.world
  if world.spec.prompt == 'vague':
    raise ValueError(f'{world.spec.name} has vague prompts: no hop can be told')
  beams: list[list[_Path]] = [
    [_Path((world.index(query.image),), ())] for query in world.queries
  ]
  for hop in range(world.spec.hops):
    texts: list[str] = []
    sources: list[int] = []
    for query, paths in zip(world.queries, beams, strict=True):
      before = query.hops[hop - 1].relation if hop else None
      for path in paths:
        texts.append(
          prompt.single_hop(
            np.random.default_rng(wording),
            side=_find_side(world, path, before),
            relation=query.hops[hop].relation,
            colour=query.hops[hop].colour,
            mark=level_lib.find_print(world.spec.level),
          )
        )
        sources.append(path.images[-1])
    embedded = gallery_lib.embed_queries(
      model, model.maker.queries(texts), gallery.visual[sources]
    )
    similarities = embedded @ gallery.embeddings.T
    row = 0
    for q, paths in enumerate(beams):
      beams[q] = _extend(paths, similarities[row : row + len(paths)], beam)
      row += len(paths)
  return [
    scores_lib.Trajectory(
      query_id=query.id,
      selected=tuple(world.images[i].id for i in paths[0].images[1:]),
      scores=paths[0].scores,
    )
    for query, paths in zip(world.queries, beams, strict=True)
  ]


def _extend(
  paths: Sequence[_Path], similarities: Float[ndarray, 'P N'], beam: int
) -> list[_Path]:
  """Returns the best one-image extensions of a query's paths."""
  totals = similarities + np.array([[sum(p.scores)] for p in paths], np.float32)
  for number, path in enumerate(paths):
    totals[number, list(path.images)] = search.EXCLUDED_SCORE
  best = np.argsort(-totals, axis=None, kind='stable')[:beam]
  extended = []
  for number, image in zip(*np.unravel_index(best, totals.shape), strict=True):
    path = paths[number]
    extended.append(
      _Path(
        (*path.images, int(image)),
        (*path.scores, float(similarities[number, image])),
      )
    )
  return extended

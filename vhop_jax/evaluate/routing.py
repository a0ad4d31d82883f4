"""Runs a router over a world and measures what it does."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.models import router as router_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Float, Int, Params, ndarray
from vhop_jax.worlds import world as world_lib


@dataclasses.dataclass(frozen=True)
class GallerySource:
  """Holds a world and its visual tokens, which no training changes."""

  world: world_lib.World
  visual: Float[ndarray, 'N M D']


def load_gallery_source(
  folder: str | os.PathLike[str], embedder: pretrained_lib.Pretrained
) -> GallerySource:
  """Reads a world and encodes its images."""
  return GallerySource(
    world=world_lib.load_world(folder),
    visual=gallery_lib.encode_images(embedder, world_lib.read_pixels(folder)),
  )


def check_other_world(
  folder: str | os.PathLike[str], held_out: str | os.PathLike[str]
) -> None:
  """Refuses to train on the objects that are kept for measuring.

  `vhop worlds disjoint` compares the objects themselves.

  Raises:
    DataError: both worlds were drawn alike.
  """
  keys = [
    world_lib.read_spec(world_lib.read_header(path)).key
    for path in (folder, held_out)
  ]
  if keys[0] == keys[1]:
    raise errors.DataError(
      f'{folder} and {held_out} share objects, both are {keys[0]}: train on'
      ' worlds of other seeds'
    )


def make_gallery(
  router: pretrained_lib.RouterModel, source: GallerySource
) -> gallery_lib.Gallery:
  """Embeds a world by the router's gallery side."""
  return gallery_lib.Gallery(
    world=source.world,
    visual=source.visual,
    embeddings=gallery_lib.embed_images(
      router.gallery_embedder(), source.visual
    ),
  )


def make_prefix(
  router: pretrained_lib.RouterModel, world: world_lib.World
) -> tuple[sequence_lib.Sequence, Int[ndarray, 'B']]:
  """Lays out all queries of a world; returns their query images too."""
  maker = router.embedder.maker
  prefix = maker.queries([query.instruction for query in world.queries])
  index = np.array([world.index(query.image) for query in world.queries])
  return prefix, index


def select_greedily(
  router: pretrained_lib.RouterModel,
  gallery: gallery_lib.Gallery,
  *,
  steps: int,
) -> list[scores_lib.Trajectory]:
  """Rolls all queries of a world out; returns one trajectory a query."""
  world = gallery.world
  prefix, index = make_prefix(router, world)
  result = jax.device_get(
    rollout_lib.select_greedily(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segments(1),
      index,
      gallery.visual,
      gallery.embeddings,
      steps=steps,
    )
  )
  return make_trajectories(world, result.selected, result.scores)


def make_trajectories(
  world: world_lib.World,
  selected: Int[ndarray, 'B T'],
  scores: Float[ndarray, 'B T'],
) -> list[scores_lib.Trajectory]:
  """Names the selected images of each query."""
  return [
    scores_lib.Trajectory(
      query_id=query.id,
      selected=tuple(world.images[i].id for i in row),
      scores=tuple(float(value) for value in row_scores),
    )
    for query, row, row_scores in zip(
      world.queries, selected, scores, strict=True
    )
  ]


def compute_teacher_forced_ranks(
  router: pretrained_lib.RouterModel, gallery: gallery_lib.Gallery
) -> Int[ndarray, 'B T']:
  """Ranks each gold image, the gold images before it being selected.

  Candidates are all images but the query image and those selected.
  """
  world = gallery.world
  prefix, index = make_prefix(router, world)
  chains = np.array(
    [[world.index(i) for i in query.chains[0]] for query in world.queries]
  )
  scores = np.asarray(
    _score_chains(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segments(1),
      gallery.visual[index],
      gallery.visual[chains[:, :-1]],
      gallery.embeddings,
    )
  )
  ranks = []
  for hop in range(chains.shape[1]):
    candidates = np.ones(scores[:, hop].shape, bool)
    excluded = np.concatenate([index[:, None], chains[:, :hop]], axis=1)
    np.put_along_axis(candidates, excluded, False, axis=1)
    ranks.append(
      scores_lib.compute_ranks(scores[:, hop], chains[:, hop], candidates)
    )
  return np.stack(ranks, axis=1)


def _score_chains_eager(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_visual: jax.Array,
  selected_visual: jax.Array,
  embeddings: jax.Array,
) -> jax.Array:
  variables = {'params': params}
  states = module.apply(
    variables,
    prefix,
    segment,
    query_visual,
    selected_visual,
    method='encode_states',
  )
  queries, _ = module.apply(variables, states, method='make_queries')
  return jnp.einsum('btd,nd->btn', queries, embeddings)


_score_chains = jax.jit(_score_chains_eager, static_argnames='module')


def measure(
  router: pretrained_lib.RouterModel, source: GallerySource, *, steps: int
) -> dict[str, float]:
  """Returns the figures that matter while training.

  Args:
    router: as it is now.
    source: a world kept from training.
    steps: greedy decisions.

  Returns:
    `set_success` of greedy selection, and teacher-forced `hop<h>_r<k>`.
  """
  gallery = make_gallery(router, source)
  outcomes = scores_lib.compute_outcomes(
    source.world, select_greedily(router, gallery, steps=steps), answer='hops'
  )
  ranks = compute_teacher_forced_ranks(router, gallery)
  return {
    'set_success': float(np.mean(outcomes.values['set_success'])),
    **{
      f'hop{hop + 1}_r{k}': float(np.mean(ranks[:, hop] <= k))
      for hop in range(ranks.shape[1])
      for k in (1, 2)
    },
  }

"""Runs a router over a world and measures what it does."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.env import action as action_lib
from vhop_jax.env import rollout as rollout_lib
from vhop_jax.env import router_policy
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
  visual: Float[ndarray, 'N M packed']


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
  """Selects `steps` times for each query of a world, without gates."""
  world = gallery.world
  result = _roll_out(
    router, gallery, budget=steps, choose=rollout_lib.choose_selects
  )
  return make_trajectories(
    world, np.asarray(result.action), np.asarray(result.score)
  )


def route(
  router: pretrained_lib.RouterModel,
  gallery: gallery_lib.Gallery,
  *,
  budget: int,
  choose: rollout_lib.Choose = rollout_lib.choose_greedily,
  seed: int = 0,
  rejection: str = 'selection',
  stops_at_hops: bool = False,
) -> list[scores_lib.Trajectory]:
  """Routes all queries of a world, with gates; one trajectory a query.

  Args:
    router: to be run.
    gallery: of the world.
    budget: decisions a rollout may take.
    choose: how an action is taken.
    seed: of what `choose` draws.
    rejection: as in `env.state.step`.
    stops_at_hops: whether Stop is allowed at the prompt's hop count alone.
  """
  world = gallery.world
  result = _roll_out(
    router,
    gallery,
    budget=budget,
    choose=choose,
    seed=seed,
    rejection=rejection,
    stops_at_hops=stops_at_hops,
  )
  trajectories = []
  for row, query in enumerate(world.queries):
    stack: list[str] = []
    scores: list[float] = []
    decisions = []
    for t in range(int(result.mask[row].sum())):
      action = int(result.action[row, t])
      score, image = 0.0, None
      if action < len(world.images):
        kind, image = scores_lib.SELECTED, world.images[action].id
        score = float(result.score[row, t])
        stack.append(image)
        scores.append(score)
      elif action == action_lib.make_backtrack(len(world.images)):
        kind, image = scores_lib.BACKTRACKED, stack.pop()
        scores.pop()
      else:
        kind = scores_lib.STOPPED
      decisions.append(
        scores_lib.Decision(
          kind=kind,
          image=image,
          score=score,
          p_stop=float(result.stop[row, t]),
          p_backtrack=float(result.backtrack[row, t]),
        )
      )
    stopped = bool(result.state.stopped[row])
    trajectories.append(
      scores_lib.Trajectory(
        query_id=query.id,
        selected=tuple(stack),
        scores=tuple(scores),
        ended=scores_lib.STOP if stopped else scores_lib.BUDGET,
        decisions=tuple(decisions),
      )
    )
  return trajectories


def search_chains(
  router: pretrained_lib.RouterModel,
  gallery: gallery_lib.Gallery,
  *,
  longest: int,
  width: int,
) -> list[scores_lib.Trajectory]:
  """Finds the chain of each query that is most probable to the router.

  Args:
    router: with gates.
    gallery: of the world.
    longest: images of the longest chain.
    width: chains kept at each length.
  """
  world = gallery.world
  prefix, index = make_prefix(router, world)
  beams = jax.device_get(
    router_policy.search(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segment(),
      index,
      gallery.visual,
      gallery.embeddings,
      longest=longest,
      width=width,
    )
  )
  scale = float(router_lib.compute_scale(router.params['select']['log_scale']))
  return [
    scores_lib.Trajectory(
      query_id=query.id,
      selected=tuple(world.images[i].id for i in stack if i >= 0),
      scores=tuple(
        float(s) / scale for s, i in zip(scores, stack, strict=True) if i >= 0
      ),
      ended=scores_lib.STOP,
    )
    for query, stack, scores in zip(
      world.queries, beams.stack[:, 0], beams.score[:, 0], strict=True
    )
  ]


def _roll_out(
  router: pretrained_lib.RouterModel,
  gallery: gallery_lib.Gallery,
  *,
  budget: int,
  choose: rollout_lib.Choose,
  seed: int = 0,
  rejection: str = 'selection',
  stops_at_hops: bool = False,
) -> rollout_lib.Rollout:
  """Rolls all queries of a world out; the scores are cosines, on the host."""
  world = gallery.world
  prefix, index = make_prefix(router, world)
  stop_depth = None
  if stops_at_hops:
    stop_depth = np.array([scores_lib.count_hops(q) for q in world.queries])
  result: rollout_lib.Rollout = jax.device_get(
    router_policy.route(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segment(),
      index,
      gallery.visual,
      gallery.embeddings,
      jax.random.key(seed),
      budget=budget,
      choose=choose,
      rejection=rejection,
      stop_depth=stop_depth,
    )
  )
  scale = router_lib.compute_scale(router.params['select']['log_scale'])
  return dataclasses.replace(result, score=result.score / np.asarray(scale))


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
  """Ranks the gold image of each hop, the gold images before it selected.

  Candidates are all images but the query image and those selected. Where
  several chains go on from the same images, the best of theirs is ranked.

  Returns:
    Ranks from 1 on along each query's first chain; `scores.PAD` after its
    last hop.
  """
  world = gallery.world
  prefix, index = make_prefix(router, world)
  queries = world.queries
  hops = max(scores_lib.count_hops(query) for query in queries)
  # Chains shorter than the longest go on with their last image.
  chains = np.array(
    [
      [world.index(i) for i in (q.chains[0] + q.chains[0][-1:] * hops)[:hops]]
      for q in queries
    ]
  )
  scores = np.asarray(
    _score_chains(
      router.module,
      router.params,
      prefix,
      router.embedder.maker.segment(),
      gallery.visual[index],
      gallery.visual[chains[:, :-1]],
      gallery.embeddings,
    )
  )
  ranks = np.full((len(queries), hops), scores_lib.PAD)
  for hop in range(hops):
    asked = np.array([scores_lib.count_hops(q) > hop for q in queries])
    candidates = np.ones((len(queries), len(world.images)), bool)
    gold = chains[:, hop].copy()
    for row, query in enumerate(queries):
      candidates[row, [index[row], *chains[row, :hop]]] = False
      golds = [
        world.index(other[hop])
        for other in query.chains
        if other[:hop] == query.chains[0][:hop] and asked[row]
      ]
      if len(golds) > 1:
        gold[row] = max(golds, key=lambda image: scores[row, hop, image])
        candidates[row, golds] = False
        candidates[row, gold[row]] = True
    ranks[asked, hop] = scores_lib.compute_ranks(
      scores[asked, hop], gold[asked], candidates[asked]
    )
  return ranks


def _score_chains_eager(
  module: router_lib.Router,
  params: Params,
  prefix: sequence_lib.Sequence,
  segment: sequence_lib.Sequence,
  query_visual: jax.Array,
  selected_visual: jax.Array,
  embeddings: jax.Array,
) -> jax.Array:
  variables = router_lib.make_variables(params)
  states = module.apply(
    variables,
    prefix,
    segment,
    query_visual,
    jnp.broadcast_to(
      1 + jnp.arange(selected_visual.shape[1])[None], selected_visual.shape[:2]
    ),
    selected_visual,
    method='encode_states',
  )
  queries, _ = module.apply(variables, states, method='make_queries')
  return jnp.einsum('btd,nd->btn', queries, embeddings)


_score_chains = jax.jit(_score_chains_eager, static_argnames='module')


def measure(
  router: pretrained_lib.RouterModel,
  source: GallerySource,
  *,
  steps: int,
  budget: int,
  rejection: str,
) -> dict[str, float]:
  """Returns the figures that matter while training.

  Args:
    router: as it is now.
    source: a world kept from training.
    steps: greedy selections, without gates.
    budget: decisions with gates.
    rejection: as in `env.state.step`.

  Returns:
    `set_success` of greedy selection, teacher-forced `hop<h>_r<k>`, and of a
    router with gates `success`, `decisions` and `backtracks`.
  """
  gallery = make_gallery(router, source)
  outcomes = scores_lib.compute_outcomes(
    source.world, select_greedily(router, gallery, steps=steps), answer='hops'
  )
  ranks = compute_teacher_forced_ranks(router, gallery)
  gated: dict[str, float] = {}
  if router.has_gates:
    routed = route(router, gallery, budget=budget, rejection=rejection)
    values = {
      **scores_lib.compute_outcomes(source.world, routed, answer='last').values,
      **scores_lib.compute_counts(source.world, routed).values,
    }
    names = ('success', 'decisions', 'backtracks')
    gated = {name: float(np.mean(values[name])) for name in names}
  return {
    **gated,
    'set_success': float(np.mean(outcomes.values['set_success'])),
    **{
      f'hop{hop + 1}_r{k}': float(np.mean(found[found != scores_lib.PAD] <= k))
      for hop, found in enumerate(ranks.T)
      for k in (1, 2)
    },
  }

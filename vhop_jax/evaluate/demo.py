"""Answers one query of a world and draws how."""

import dataclasses
import os
import pathlib

from vhop_jax import errors
from vhop_jax.evaluate import failures, figures, routing, strips
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.models import pretrained
from vhop_jax.worlds import world as world_lib


def answer_query(
  folder: str | os.PathLike[str],
  out: str | os.PathLike[str],
  *,
  query_id: str | None,
  router_name: str,
  embedder_name: str,
  budget: int,
) -> str:
  """Routes one query, draws it and tells what was decided.

  Args:
    folder: the world.
    out: the picture, a PNG file.
    query_id: of the world; None takes its first.
    router_name: 'tiny' for the one in this package, or a file.
    embedder_name: that it was trained from, likewise, or a Hugging Face
      folder of Qwen3-VL.
    budget: decisions it may take.

  Returns:
    What happened, line by line.

  Raises:
    UsageError: the world has no such query, or the router has no gates.
    DataError: a file is missing or damaged, or the world has no chains.
  """
  embedder = pretrained.load_embedder(
    embedder_name, pretrained.read_backbone(router_name)
  )
  router = pretrained.load_router(router_name, embedder, needs_gates=True)
  source = routing.load_gallery_source(folder, embedder)
  world = source.world
  if not world.spec.with_chains:
    raise errors.DataError(
      f'{folder} has no chains to compare with: take a world built with them'
    )
  known = {query.id: query for query in world.queries}
  chosen = next(iter(known), None) if query_id is None else query_id
  if chosen is None or chosen not in known:
    raise errors.UsageError(
      f'no query {chosen!r} in {folder}: there are {", ".join(list(known)[:6])}'
      f' and others, {len(known)} in all'
    )
  query = known[chosen]
  alone = dataclasses.replace(world, queries=(query,))
  (trajectory,) = routing.route(
    router,
    routing.make_gallery(router, dataclasses.replace(source, world=alone)),
    budget=budget,
  )
  panel = strips.make_trajectory_panel(
    failures.Judge(world), world_lib.read_pixels(folder), trajectory
  )
  out = pathlib.Path(out)
  out.parent.mkdir(parents=True, exist_ok=True)
  figures.draw_panel(panel).save(out)
  return '\n'.join([*_tell(query, trajectory), f'the picture: {out}'])


def _tell(
  query: world_lib.Query, trajectory: scores_lib.Trajectory
) -> list[str]:
  lines = [
    f'query {query.id}, from image {query.image}: {query.instruction}',
    'decision              score  p(stop)  p(back)',
  ]
  for number, decision in enumerate(trajectory.decisions, start=1):
    what = f'{number:2d} {decision.kind} {decision.image or ""}'
    score = f'{decision.score:.2f}' if decision.score else ''
    lines.append(
      f'{what:<21}{score:>6}{decision.p_stop:9.2f}{decision.p_backtrack:9.2f}'
    )
  ended = 'stopped' if trajectory.ended == scores_lib.STOP else 'ran out'
  right = scores_lib.is_success(query, trajectory)
  answer = scores_lib.answer_image(query, trajectory, 'last') or 'nothing'
  lines.append(
    f'{ended} on {answer}: {"right" if right else "wrong"}; valid:'
    f' {", ".join(query.answers)}'
  )
  return lines

"""Measures a router and the baselines on dev and test worlds; reports."""

from collections.abc import Callable, Sequence
import os
import pathlib
import platform
import sys
import time
from typing import Any, cast

import jax
import ml_collections
import numpy as np

from vhop_jax.evaluate import baselines, report, routing, strips
from vhop_jax.evaluate import failures as failures_lib
from vhop_jax.evaluate import hops as hops_lib
from vhop_jax.evaluate import results as results_lib
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.train import metrics as metrics_lib
from vhop_jax.train import sft
from vhop_jax.worlds import world as world_lib

ROUTER_ROW = 'SFT router'

_Method = Callable[[gallery_lib.Gallery], list[scores_lib.Trajectory]]


def _make_methods(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  sources: Sequence[routing.GallerySource],
) -> list[tuple[str, str, scores_lib.Answer, bool, _Method]]:
  """Lists the baselines: name, description, answer rule, reference, method."""
  steps = config.decisions
  methods: list[tuple[str, str, scores_lib.Answer, bool, _Method]] = [
    (
      'Single-shot',
      f'instruction and query image embedded once, top {steps}',
      'first',
      False,
      lambda gallery: baselines.run_single_shot(embedder, gallery, steps=steps),
    ),
    (
      'Greedy',
      f'{steps} steps, the last image found is the query image',
      'hops',
      False,
      lambda gallery: baselines.run_steps(
        embedder, gallery, steps=steps, keep_history=False
      ),
    ),
    (
      'History',
      f'{steps} steps, all images found are in the query',
      'hops',
      False,
      lambda gallery: baselines.run_steps(
        embedder, gallery, steps=steps, keep_history=True
      ),
    ),
  ]
  if all(source.world.spec.prompt == 'precise' for source in sources):
    methods.append(
      (
        'Best-path search',
        f'told each hop by itself, beam of {config.beam} whole paths',
        'hops',
        True,
        lambda gallery: baselines.search_best_path(
          embedder, gallery, beam=config.beam, wording=config.seed
        ),
      )
    )
  return methods


def _measure_rows(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  router: pretrained_lib.RouterModel | None,
  sources: Sequence[routing.GallerySource],
) -> tuple[
  list[results_lib.Row],
  list[results_lib.TeacherForced],
  list[list[scores_lib.Trajectory]],
]:
  """Runs everything over some worlds.

  Returns:
    The rows, the recalls of each hop, and the router's trajectories of each
    world.
  """
  galleries = [
    gallery_lib.Gallery(
      source.world,
      source.visual,
      gallery_lib.embed_images(embedder, source.visual),
    )
    for source in sources
  ]
  clusters = tuple(
    c for source in sources for c in scores_lib.get_clusters(source.world)
  )
  rows: list[results_lib.Row] = []
  for name, description, answer, is_reference, method in _make_methods(
    config, embedder, sources
  ):
    started = time.monotonic()
    row = _make_row(
      name, description, answer, sources, [method(g) for g in galleries]
    )
    row['is_reference'] = is_reference
    rows.append(row)
    print(f'{name}: {time.monotonic() - started:.1f} s', flush=True)
  told = [
    hops_lib.compute_told_ranks(embedder, gallery, seed=config.seed)
    for gallery in galleries
  ]
  recalls: list[results_lib.TeacherForced] = [
    {
      'name': 'Embedding model, told each hop',
      'hops': scores_lib.compute_recalls(
        np.concatenate(
          [np.stack([r[h] for h in sorted(r)], axis=1) for r in told]
        ),
        clusters,
      ),
    }
  ]
  if router is None:
    return rows, recalls, []
  started = time.monotonic()
  routed = [routing.make_gallery(router, source) for source in sources]
  if router.has_gates:
    description = (
      f'at most {config.budget} decisions, by its gates; the instruction given'
      ' once'
    )
    trajectories = [
      routing.route(router, gallery, budget=config.budget) for gallery in routed
    ]
  else:
    description = (
      f'{config.decisions} greedy decisions, the instruction given once'
    )
    trajectories = [
      routing.select_greedily(router, gallery, steps=config.decisions)
      for gallery in routed
    ]
  rows.append(
    _make_row(
      ROUTER_ROW,
      description,
      'last' if router.has_gates else 'hops',
      sources,
      trajectories,
    )
  )
  if router.has_gates:
    rows.append(
      _make_row(
        f'{ROUTER_ROW}, beam',
        f'the most probable chain, found by a beam of {config.router_beam}',
        'last',
        sources,
        [
          routing.search_chains(
            router, gallery, longest=config.longest, width=config.router_beam
          )
          for gallery in routed
        ],
      )
    )
  ranks = [
    routing.compute_teacher_forced_ranks(router, gallery) for gallery in routed
  ]
  recalls.append(
    {
      'name': ROUTER_ROW,
      'hops': scores_lib.compute_recalls(np.concatenate(ranks), clusters),
    }
  )
  print(f'{ROUTER_ROW}: {time.monotonic() - started:.1f} s', flush=True)
  return rows, recalls, trajectories


def _make_row(
  name: str,
  description: str,
  answer: scores_lib.Answer,
  sources: Sequence[routing.GallerySource],
  trajectories: Sequence[list[scores_lib.Trajectory]],
) -> results_lib.Row:
  outcomes = scores_lib.pool_outcomes(
    [
      scores_lib.compute_outcomes(source.world, done, answer=answer)
      for source, done in zip(sources, trajectories, strict=True)
    ]
  )
  return {
    'name': name,
    'description': description,
    'metrics': scores_lib.compute_metrics(outcomes),
  }


def _read_curves(folder: str) -> list[results_lib.Curve]:
  """Reads the curves of both phases of a training run."""
  curves: list[results_lib.Curve] = []
  for phase in sft.PHASES if folder else ():
    records = metrics_lib.read_rows(pathlib.Path(folder) / phase)
    for name, key in (
      (f'SFT, {phase}', 'loss'),
      (f'SFT, {phase}, on the dev world', 'set_success'),
    ):
      if records:
        curves.append({'name': name, 'records': records, 'keys': [key]})
  return curves


def _describe_run(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  sources: Sequence[routing.GallerySource],
  secs: float,
) -> dict[str, Any]:
  return {
    'command': 'python -m vhop_jax.main ' + ' '.join(sys.argv[1:]),
    'seed': config.seed,
    'machine': f'{platform.machine()}, {os.cpu_count()} cores,'
    f' {jax.default_backend()} x {jax.device_count()}',
    'python': platform.python_version(),
    'jax': jax.__version__,
    'embedding model': f'{config.embedder} {embedder.fingerprint[:12]}',
    'router': config.router or 'none',
    'worlds': ', '.join(
      f'{s.world.spec.name} ({len(s.world.images)} images,'
      f' {len(s.world.queries)} queries)'
      for s in sources
    ),
    'seconds': round(secs, 1),
  }


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Writes metrics.json, report.md and report.html into `workdir`."""
  started = time.monotonic()
  embedder = pretrained_lib.load_embedder(config.embedder)
  router = None
  if config.router:
    router = pretrained_lib.load_router(config.router, embedder)
  print('encoding the worlds ...', flush=True)
  dev = [routing.load_gallery_source(config.dev, embedder)]
  test = [routing.load_gallery_source(path, embedder) for path in config.test]
  dev_rows, _, _ = _measure_rows(config, embedder, router, dev)
  rows, recalls, trajectories = _measure_rows(config, embedder, router, test)
  main_row = ROUTER_ROW if router else 'Single-shot'

  judges = [failures_lib.Judge(source.world) for source in test]
  pairs = list(zip(judges, trajectories, strict=False))
  failures: results_lib.Failures | None = None
  drawn = []
  if pairs:
    failures = cast(
      results_lib.Failures,
      {'name': ROUTER_ROW, **failures_lib.compute_breakdown(pairs)},
    )
    drawn = strips.choose_trajectories(
      pairs, right=config.right, wrong=config.wrong
    )
  pixels = {
    id(judge): world_lib.read_pixels(path)
    for judge, path in zip(judges, config.test, strict=True)
  }
  families = sorted({query.family for query in test[0].world.queries})
  results: results_lib.Results = {
    'title': config.title,
    'summary': report.compose_summary(
      [source.world for source in test], rows, main_row
    ),
    'rows': rows,
    'main_row': main_row,
    'more_tables': [{'title': 'The dev world', 'rows': dev_rows}],
    'teacher_forced': recalls,
    'failures': failures,
    'curves': _read_curves(config.training),
    'run': _describe_run(config, embedder, test, time.monotonic() - started),
  }
  paths = report.write_report(
    results,
    pathlib.Path(workdir),
    families=[
      strips.make_family_panel(judges[0], pixels[id(judges[0])], family)
      for family in families[: config.families]
    ],
    trajectories=[
      strips.make_trajectory_panel(judge, pixels[id(judge)], trajectory)
      for judge, trajectory in drawn
    ],
  )
  print(report.format_table(rows))
  print(report.format_recalls(recalls))
  if failures:
    print(report.format_failures(failures))
  print(f'the report: {paths.html}')

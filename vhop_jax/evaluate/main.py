"""Measures routers and the baselines on dev and test worlds; reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import glob
import os
import pathlib
import platform
import sys
import time
from typing import Any, cast

import jax
import ml_collections
import numpy as np

from vhop_jax import errors
from vhop_jax.evaluate import (
  baselines,
  checkpoints,
  experiments,
  paper,
  report,
  routing,
  strips,
)
from vhop_jax.evaluate import failures as failures_lib
from vhop_jax.evaluate import hops as hops_lib
from vhop_jax.evaluate import results as results_lib
from vhop_jax.evaluate import scores as scores_lib
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.train import metrics as metrics_lib
from vhop_jax.worlds import world as world_lib

UNTRAINED = 'untrained'
_BASELINE_ROW = 'Single-shot'
_ROUTER = 'Router'

_Method = Callable[[gallery_lib.Gallery], list[scores_lib.Trajectory]]


@dataclasses.dataclass(frozen=True)
class _Line:
  """Is one line of the results, and how it comes about.

  Attributes:
    name: of the line in the report.
    description: what it does.
    answer: see `scores.answer_image`.
    method: makes the trajectories of a world.
    stage: a key of `experiments.STAGES`.
    policy: as in `experiments.ResultRow`.
    decoding: likewise.
    has_gates: whether it stops by itself.
    is_reference: whether it is no competitor.
  """

  name: str
  description: str
  answer: scores_lib.Answer
  method: _Method
  stage: str
  policy: str
  decoding: str
  has_gates: bool = False
  is_reference: bool = False


def _list_baselines(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  sources: Sequence[routing.GallerySource],
) -> Iterator[_Line]:
  steps = config.decisions
  yield _Line(
    _BASELINE_ROW,
    f'instruction and query image embedded once, top {steps}',
    'first',
    lambda gallery: baselines.run_single_shot(embedder, gallery, steps=steps),
    policy=_BASELINE_ROW,
    decoding='single',
    stage=UNTRAINED,
  )
  yield _Line(
    'Greedy',
    f'{steps} steps, the last image found is the query image',
    'hops',
    lambda gallery: baselines.run_steps(
      embedder, gallery, steps=steps, keep_history=False
    ),
    policy='Greedy',
    decoding='five steps',
    stage=UNTRAINED,
  )
  yield _Line(
    'History',
    f'{steps} steps, all images found are in the query',
    'hops',
    lambda gallery: baselines.run_steps(
      embedder, gallery, steps=steps, keep_history=True
    ),
    policy='History',
    decoding='five steps',
    stage=UNTRAINED,
  )
  if all(source.world.spec.prompt == 'precise' for source in sources):
    yield _Line(
      'Best-path search',
      f'told each hop by itself, beam of {config.beam} whole paths',
      'hops',
      lambda gallery: baselines.search_best_path(
        embedder, gallery, beam=config.beam, wording=config.seed
      ),
      policy='Best-path search',
      decoding='beam',
      is_reference=True,
      stage=UNTRAINED,
    )


def _list_routers(
  config: ml_collections.ConfigDict,
  stage: str,
  router: pretrained_lib.RouterModel,
) -> Iterator[_Line]:
  """Lists how a router is decoded; its own way comes first."""
  name = name_router(stage)
  if not router.has_gates:
    yield _Line(
      name,
      f'{config.decisions} greedy decisions, the instruction given once',
      'hops',
      lambda gallery: routing.select_greedily(
        router, gallery, steps=config.decisions
      ),
      decoding='five steps',
      stage=stage,
      policy=_ROUTER,
    )
    return
  yield _Line(
    name,
    f'at most {config.budget} decisions, by its gates; the instruction given'
    ' once',
    'last',
    lambda gallery: routing.route(
      router, gallery, budget=config.budget, rejection=config.rejection
    ),
    decoding=paper.GATES,
    has_gates=True,
    stage=stage,
    policy=_ROUTER,
  )
  yield _Line(
    f'{name}, told the hops',
    "by its gates, but it may stop at the prompt's hop count alone",
    'last',
    lambda gallery: routing.route(
      router,
      gallery,
      budget=config.budget,
      rejection=config.rejection,
      stops_at_hops=True,
    ),
    decoding=paper.GATES_AT_HOPS,
    has_gates=True,
    stage=stage,
    policy=_ROUTER,
  )
  yield _Line(
    f'{name}, beam',
    f'the most probable chain, found by a beam of {config.router_beam}',
    'last',
    lambda gallery: routing.search_chains(
      router, gallery, longest=config.longest, width=config.router_beam
    ),
    decoding='beam',
    stage=stage,
    policy=_ROUTER,
  )


def name_router(stage: str) -> str:
  """Returns what a router's line is called."""
  return f'{experiments.STAGES[stage]} router'


@dataclasses.dataclass(frozen=True)
class _Measured:
  """Holds what was measured over the worlds of one kind.

  Attributes:
    lines: what was run, in order.
    rows: its results.
    recalls: teacher-forced, of the embedding model and of each router.
    trajectories: by name of a line, those of each world.
  """

  lines: list[_Line]
  rows: list[results_lib.Row]
  recalls: list[results_lib.TeacherForced]
  trajectories: dict[str, list[list[scores_lib.Trajectory]]]


def _measure(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  routers: Mapping[str, pretrained_lib.RouterModel],
  sources: Sequence[routing.GallerySource],
  title: str,
) -> _Measured:
  """Runs everything over some worlds.

  Raises:
    UsageError: a world has no more images than there are decisions.
  """
  for source in sources:
    count = len(source.world.images)
    for name in ('decisions', 'budget'):
      if config[name] >= count:
        raise errors.UsageError(
          f'{name}={config[name]}: {config[name]} decisions are too many for'
          f' the {count} images of {source.world.spec.name}: take fewer, or a'
          ' larger world'
        )
  clusters = tuple(
    c for source in sources for c in scores_lib.get_clusters(source.world)
  )
  measured = _Measured([], [], [], {})

  def run(
    lines: Iterator[_Line], galleries: Sequence[gallery_lib.Gallery]
  ) -> None:
    for line in lines:
      started = time.monotonic()
      done = [line.method(gallery) for gallery in galleries]
      measured.lines.append(line)
      measured.rows.append(_make_row(line, sources, done))
      measured.trajectories[line.name] = done
      secs = time.monotonic() - started
      print(f'{title}: {line.name}: {secs:.1f} s', flush=True)

  galleries = [
    gallery_lib.Gallery(
      source.world,
      source.visual,
      gallery_lib.embed_images(embedder, source.visual),
    )
    for source in sources
  ]
  run(_list_baselines(config, embedder, sources), galleries)
  if all(source.world.spec.prompt == 'precise' for source in sources):
    told = [
      hops_lib.compute_told_ranks(embedder, gallery, seed=config.seed)
      for gallery in galleries
    ]
    ranks = [np.stack([r[h] for h in sorted(r)], axis=1) for r in told]
    measured.recalls.append(
      {
        'name': 'Embedding model, told each hop',
        'hops': scores_lib.compute_recalls(np.concatenate(ranks), clusters),
      }
    )
  for stage, router in routers.items():
    galleries = [routing.make_gallery(router, source) for source in sources]
    run(_list_routers(config, stage, router), galleries)
    ranks = [
      routing.compute_teacher_forced_ranks(router, gallery)
      for gallery in galleries
    ]
    measured.recalls.append(
      {
        'name': name_router(stage),
        'hops': scores_lib.compute_recalls(np.concatenate(ranks), clusters),
      }
    )
  return measured


def _make_row(
  line: _Line,
  sources: Sequence[routing.GallerySource],
  trajectories: Sequence[list[scores_lib.Trajectory]],
) -> results_lib.Row:
  pairs = list(zip(sources, trajectories, strict=True))
  pooled = [
    scores_lib.pool_outcomes(
      [
        scores_lib.compute_outcomes(source.world, done, answer=line.answer)
        for source, done in pairs
      ]
    )
  ]
  if line.has_gates:
    pooled.append(
      scores_lib.pool_outcomes(
        [
          scores_lib.compute_counts(source.world, done)
          for source, done in pairs
        ]
      )
    )
  metrics: dict[str, scores_lib.Interval] = {}
  for outcomes in pooled:
    metrics |= scores_lib.compute_metrics(outcomes)
  return {
    'name': line.name,
    'description': line.description,
    'metrics': metrics,
    'is_reference': line.is_reference,
  }


def _make_result_rows(
  config: ml_collections.ConfigDict,
  measured: _Measured,
  test_set: str,
  sources: Sequence[routing.GallerySource],
) -> list[experiments.ResultRow]:
  """Makes the lines of results.jsonl."""
  queries = sum(len(source.world.queries) for source in sources)
  return [
    {
      'experiment': config.experiment,
      'seed': config.seed,
      'stage': line.stage,
      'policy': line.policy,
      'decoding': line.decoding,
      'test_set': test_set,
      'queries': queries,
      'metrics': row['metrics'],
      # Baselines know nothing of how a router was trained.
      'settings': {} if line.stage == UNTRAINED else config.settings.to_dict(),
      'machine': _describe_machine(),
    }
    for line, row in zip(measured.lines, measured.rows, strict=True)
  ]


def _read_curves(folders: Mapping[str, str]) -> list[results_lib.Curve]:
  """Reads the curves of every phase of training runs.

  Args:
    folders: by stage, a training run's folder or ''.
  """
  curves: list[results_lib.Curve] = []
  for stage, folder in folders.items():
    files = (
      sorted(pathlib.Path(folder).glob('*/metrics.jsonl')) if folder else []
    )
    # A run's phases follow one another.
    for file in sorted(files, key=os.path.getmtime):
      records = metrics_lib.read_rows(file.parent)
      name = experiments.STAGES[stage]
      if file.parent.name != stage:
        name += f', {file.parent.name}'
      for title, key in (
        (name, 'loss'),
        (f'{name}, reward of rollouts', 'reward'),
        (f'{name}, set success on the dev world', 'set_success'),
        (f'{name}, success on the dev world', 'success'),
      ):
        if any(key in record for record in records):
          curves.append({'name': title, 'records': records, 'keys': [key]})
  return curves


def _describe_machine() -> str:
  return (
    f'{platform.machine()}, {os.cpu_count()} cores,'
    f' {jax.default_backend()} x {jax.device_count()}'
  )


def _describe_run(
  config: ml_collections.ConfigDict,
  embedder: pretrained_lib.Pretrained,
  sources: Sequence[routing.GallerySource],
  secs: float,
) -> dict[str, Any]:
  return {
    'command': 'python -m vhop_jax.main ' + ' '.join(sys.argv[1:]),
    'seed': config.seed,
    'machine': _describe_machine(),
    'python': platform.python_version(),
    'jax': jax.__version__,
    'embedding model': f'{config.embedder} {embedder.fingerprint[:12]}',
    'routers': ', '.join(path for path in config.routers.values() if path)
    or 'none',
    'worlds': ', '.join(
      f'{s.world.spec.name} ({len(s.world.images)} images,'
      f' {len(s.world.queries)} queries)'
      for s in sources
    ),
    'seconds': round(secs, 1),
  }


def find_test_sets(
  test_sets: Sequence[tuple[str, str]],
) -> dict[str, list[str]]:
  """Returns the folders of each test set.

  Args:
    test_sets: names with patterns of folders.

  Raises:
    DataError: there is no such world.
  """
  found = {}
  for name, pattern in test_sets:
    found[name] = sorted(glob.glob(pattern))
    if not found[name]:
      names = os.path.basename(pattern)
      out = os.path.dirname(pattern) or '.'
      raise errors.DataError(
        f'no world of the test set {name!r} matches {pattern}: build it with'
        f" `vhop worlds build --split='{names}' --out={out}`, or leave it out"
      )
  return found


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Writes metrics.json, results.jsonl and the report into `workdir`.

  The first test set is what the report is about; of the others it has a table
  each, and what was measured on them is kept: a run that was interrupted goes
  on after the last of them.

  Raises:
    UsageError: there is no test set, or a stage is unknown.
    DataError: a world or router is missing or damaged.
  """
  started = time.monotonic()
  unknown = set(config.routers) - set(experiments.STAGES)
  if unknown:
    raise errors.UsageError(
      f'routers.{min(unknown)}: name a router by its stage,'
      f' {", ".join(experiments.STAGES)}'
    )
  if not config.test_sets:
    raise errors.UsageError('test_sets is empty: name one at least')
  embedder = pretrained_lib.load_embedder(
    config.embedder, config.backbone.to_dict()
  )
  routers = {
    stage: pretrained_lib.load_router(config.routers[stage], embedder)
    for stage in experiments.STAGES
    if config.routers.get(stage)
  }
  folders = find_test_sets(config.test_sets)
  main_set = next(iter(folders))
  print('encoding the worlds ...', flush=True)
  of_others: list[results_lib.Table] = []
  results_file = pathlib.Path(workdir) / experiments.FILE_NAME
  keeper = checkpoints.make_keeper(workdir, config, config.routers.to_dict())

  def measure(
    paths: Sequence[str], name: str
  ) -> tuple[list[routing.GallerySource], _Measured]:
    sources = [routing.load_gallery_source(path, embedder) for path in paths]
    return sources, _measure(config, embedder, routers, sources, name)

  _, of_dev = measure([config.dev], 'dev')
  test, measured = measure(folders[main_set], main_set)
  experiments.append_rows(
    results_file, _make_result_rows(config, measured, main_set, test)
  )
  for name in folders:
    if name == main_set:
      continue
    kept = keeper.load(name, folders[name])
    if kept is None:
      sources, found = measure(folders[name], name)
      kept = [found.rows, _make_result_rows(config, found, name, sources)]
      keeper.save(name, folders[name], kept)
    else:
      print(f'{name}: measured before', flush=True)
    rows, result_rows = kept
    for row in (*rows, *result_rows):
      # JSON has made lists of them.
      row['metrics'] = {
        metric: scores_lib.Interval(*values)
        for metric, values in row['metrics'].items()
      }
    of_others.append({'title': name, 'rows': rows})
    experiments.append_rows(results_file, result_rows)

  main_row = name_router([*routers][-1]) if routers else _BASELINE_ROW
  judges = [failures_lib.Judge(source.world) for source in test]
  failures: dict[str, results_lib.Failures] = {}
  drawn: list[Any] = []
  for stage in routers:
    name = name_router(stage)
    pairs = list(zip(judges, measured.trajectories[name], strict=True))
    failures[name] = cast(
      results_lib.Failures,
      {'name': name, **failures_lib.compute_breakdown(pairs)},
    )
    if name == main_row:
      drawn = strips.choose_trajectories(
        pairs, right=config.right, wrong=config.wrong
      )
  pixels = {
    id(judge): world_lib.read_pixels(path)
    for judge, path in zip(judges, folders[main_set], strict=True)
  }
  families = sorted({query.family for query in test[0].world.queries})
  results: results_lib.Results = {
    'title': config.title,
    'summary': report.compose_summary(
      [source.world for source in test], measured.rows, main_row
    ),
    'rows': measured.rows,
    'main_row': main_row,
    'more_tables': [
      {'title': 'The dev world', 'rows': of_dev.rows},
      *of_others,
    ],
    'teacher_forced': measured.recalls,
    'failures': failures.get(main_row),
    'curves': _read_curves(config.training.to_dict()),
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
    comparisons=_compare(
      config, judges[0], pixels[id(judges[0])], measured, routers
    ),
  )
  print(report.format_table(measured.rows))
  for table in of_others:
    print(f'\n{table["title"]}')
    print(report.format_table(table['rows']))
  print(report.format_recalls(measured.recalls))
  for name, breakdown in failures.items():
    print(f'{name}: {report.format_failures(breakdown)}')
  print(f'the report: {paths.html}')


def _compare(
  config: ml_collections.ConfigDict,
  judge: failures_lib.Judge,
  pixels: np.ndarray,
  measured: _Measured,
  routers: Mapping[str, pretrained_lib.RouterModel],
) -> list[strips.Panel]:
  """Shows the same queries of the first world under all policies."""
  names = ['Greedy', *(name_router(stage) for stage in routers)]
  if len(names) < 2:
    return []
  done = [measured.trajectories[name][0] for name in names]
  chosen = strips.choose_queries_for_comparison(
    judge, done, count=config.comparisons
  )
  by_id = [{t.query_id: t for t in each} for each in done]
  return [
    strips.make_policies_panel(
      judge,
      pixels,
      query,
      [
        (
          name if name != 'Greedy' else f'Untrained, {name.lower()}',
          each[query],
        )
        for name, each in zip(names, by_id, strict=True)
      ],
    )
    for query in chosen
  ]

"""Writes evaluations and experiments as metrics.json, report.md and .html."""

from collections.abc import Sequence
import json
import math
import os
from pathlib import Path
import shutil
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from vhop_jax import errors
from vhop_jax.evaluate import experiments, paper, published
from vhop_jax.evaluate.experiments import ResultRow
from vhop_jax.evaluate.failures import FAILURES
from vhop_jax.evaluate.figures import draw_panel
from vhop_jax.evaluate.markdown import make_experiments_markdown, make_markdown
from vhop_jax.evaluate.page import make_experiments_page, make_page
from vhop_jax.evaluate.results import (
  SCHEMA,
  Failures,
  Results,
  Row,
  TeacherForced,
  find_best,
  list_metrics,
)
from vhop_jax.evaluate.scores import METRICS, Interval
from vhop_jax.evaluate.strips import COMPARISON, Panel
from vhop_jax.train import metrics as metrics_lib
from vhop_jax.worlds.world import World

EXPERIMENTS_TITLE = 'Experiments with VHOP-Router'
EXPERIMENTS_SCHEMA = 'vhop_jax.experiments/1'
_HOW_TO_MAKE = f'{experiments.COMMAND} makes them'

_NAME_WIDTH = 24
_TERMINAL_METRICS = 4
_SHORT = METRICS | {'answer_accuracy': 'Answer'}


class Paths(NamedTuple):
  """Holds where the parts of a report were written."""

  metrics: Path
  markdown: Path
  html: Path


def write_report(
  results: Results,
  out_dir: Path,
  *,
  families: Sequence[Panel] = (),
  trajectories: Sequence[Panel] = (),
  comparisons: Sequence[Panel] = (),
) -> Paths:
  """Writes metrics.json, report.md with assets/, and report.html.

  Args:
    results: all numbers.
    out_dir: made if missing; an earlier report there is replaced.
    families: a few panels made by `strips.make_family_panel`.
    trajectories: panels made by `strips.make_trajectory_panel`.
    comparisons: panels made by `strips.make_policies_panel`.

  Returns:
    The paths of the three files. The page stands on its own.
  """
  assets = _clear_assets(out_dir)
  write_panels((*families, *trajectories, *comparisons), assets)
  return _write_files(
    out_dir,
    document=make_document(results, (*trajectories, *comparisons)),
    markdown=make_markdown(
      results, families, trajectories, comparisons, assets
    ),
    html=make_page(
      results,
      families=families,
      trajectories=trajectories,
      comparisons=comparisons,
    ),
  )


def write_panels(panels: Sequence[Panel], folder: Path) -> None:
  """Writes each panel as `<name>.png` into a folder, made if missing.

  Those of several policies that lie in an experiment's folder are shown by
  `write_experiments`.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for panel in panels:
    draw_panel(panel).save(folder / f'{panel.name}.png')


def write_experiments(folders: Sequence[Path], out_dir: Path) -> Paths:
  """Writes one report on all experiments found in some folders.

  Args:
    folders: searched with everything below them for `results.jsonl`, for the
      metrics files of training and for pictures of several policies.
    out_dir: made if missing; an earlier report there is replaced. Nothing in
      it is read.

  Returns:
    The paths of the three files. The page stands on its own.

  Raises:
    UsageError: there are no folders.
    DataError: a folder is missing, no results were found, or a file of them
      has a broken line.
  """
  if not folders:
    raise errors.UsageError('no folder given: name those of the experiments')
  for folder in folders:
    if not folder.is_dir():
      raise errors.DataError(f'{folder} is no folder: {_HOW_TO_MAKE}')
  rows = experiments.read_rows(_find(folders, out_dir, experiments.FILE_NAME))
  if not rows:
    where = ', '.join(map(str, folders))
    raise errors.DataError(
      f'no results in {experiments.FILE_NAME} at or below {where}:'
      f' {_HOW_TO_MAKE}'
    )
  files = _find(folders, out_dir, metrics_lib.FILE_NAME)
  names = _name_runs([file.parent for file in files])
  runs = {
    name: metrics_lib.read_rows(file.parent)
    for name, file in zip(names, files, strict=True)
  }
  sections = [
    *paper.make_sections(experiments.summarise(rows)),
    *experiments.make_curve_sections(runs),
    *published.make_sections(),
  ]
  summary = _compose_experiments_summary(rows)
  assets = _clear_assets(out_dir)
  drawn = []
  for number, file in enumerate(_find(folders, out_dir, f'{COMPARISON}_*.png')):
    copy = assets / f'{number:02d}_{file.name}'
    shutil.copyfile(file, copy)
    drawn.append((f'{file.parent.name}: {file.stem}', copy))
  return _write_files(
    out_dir,
    document={
      'schema': EXPERIMENTS_SCHEMA,
      'rows': _to_json(rows),
      'tables': [
        _to_json(
          {
            'title': s.title,
            'note': s.note,
            'columns': s.list_columns(),
            'rows': s.rows,
          }
        )
        for s in sections
        if s.rows
      ],
    },
    markdown=make_experiments_markdown(
      EXPERIMENTS_TITLE,
      summary,
      sections,
      [(title, copy.name) for title, copy in drawn],
      assets,
    ),
    html=make_experiments_page(
      EXPERIMENTS_TITLE,
      summary,
      sections,
      [
        (title, np.asarray(Image.open(copy).convert('RGB')))
        for title, copy in drawn
      ],
    ),
  )


def _find(folders: Sequence[Path], out_dir: Path, pattern: str) -> list[Path]:
  """Finds files at and below some folders, each once, none of the report's."""
  found = {
    path.resolve()
    for folder in folders
    for path in folder.rglob(pattern)
    if not path.resolve().is_relative_to(out_dir.resolve())
  }
  return sorted(found)


def _name_runs(folders: Sequence[Path]) -> list[str]:
  """Names runs by those parts of their folders that are not all the same."""
  paths = [folder.parts for folder in folders]
  if len(paths) < 2:
    return [folder.name for folder in folders]
  start = len(os.path.commonprefix(paths))
  end = len(os.path.commonprefix([path[start:][::-1] for path in paths]))
  return [
    '/'.join(path[start : len(path) - end]) or folder.name
    for path, folder in zip(paths, folders, strict=True)
  ]


def _compose_experiments_summary(rows: Sequence[ResultRow]) -> str:
  """Words what was measured."""
  found = {
    'Experiments': [row['experiment'] for row in rows],
    'test sets': [row['test_set'] for row in rows],
    'seeds': [str(row['seed']) for row in rows],
  }
  listed = '; '.join(
    f'{noun}: {", ".join(dict.fromkeys(names))}'
    for noun, names in found.items()
  )
  return (
    f'{listed}. Shares are in percent. What is marked "{published.LABEL}" was'
    ' published by [VHOP] and was not measured here: it shows what is usual,'
    ' and the two cannot be compared number by number.'
  )


def _clear_assets(out_dir: Path) -> Path:
  """Makes the folder of a report's pictures and empties it."""
  assets = out_dir / 'assets'
  assets.mkdir(parents=True, exist_ok=True)
  for old in (*assets.glob('*.png'), *assets.glob('*.svg')):
    old.unlink()
  return assets


def _write_files(
  out_dir: Path, *, document: dict[str, Any], markdown: str, html: str
) -> Paths:
  paths = Paths(
    out_dir / 'metrics.json', out_dir / 'report.md', out_dir / 'report.html'
  )
  paths.metrics.write_text(
    json.dumps(document, indent=2, allow_nan=False) + '\n', encoding='utf-8'
  )
  paths.markdown.write_text(markdown, encoding='utf-8')
  paths.html.write_text(html, encoding='utf-8')
  return paths


def make_document(
  results: Results, trajectories: Sequence[Panel] = ()
) -> dict[str, Any]:
  """Makes what is written to metrics.json.

  Returns:
    `schema`, the results with each interval as `mean`, `low` and `high`
    (numbers that are not finite become null), and `drawn`: the trajectories
    of the pictures.
  """
  drawn = [
    {
      'name': panel.name,
      'title': panel.title,
      'instruction': panel.text,
      'verdict': panel.verdict,
      'strips': [
        {
          'title': strip.title,
          'frames': [
            {
              'image': frame.image_id,
              'kind': frame.kind,
              'label': frame.label,
              'caption': frame.caption,
            }
            for frame in strip.frames
          ],
        }
        for strip in panel.strips
      ],
    }
    for panel in trajectories
  ]
  document = {'schema': SCHEMA, **results, 'drawn': drawn}
  return dict(_to_json(document))


def compose_summary(worlds: Sequence[World], rows: list[Row], main: str) -> str:
  """Words in two sentences what was measured, on what, with what result.

  Args:
    worlds: the measured worlds, all of one kind.
    rows: the results table.
    main: name of the row that the report is about.

  Returns:
    The summary; the best other row is named if there is a competing one.
  """
  spec = worlds[0].spec
  names = ', '.join(world.spec.name for world in worlds)
  queries = sum(len(world.queries) for world in worlds)
  images = sorted({len(world.images) for world in worlds})
  gallery = f'{images[0]:,}'
  if len(images) > 1:
    gallery += f' to {images[-1]:,}'
  noun = 'world' if len(worlds) == 1 else 'worlds'
  text = (
    f'Measured on {queries} queries of {len(worlds)} {noun} ({names}) of'
    f' level L{spec.level} with {spec.prompt} {spec.hops}-hop prompts; the'
    f' gallery of a world has {gallery} images at {spec.resolution} px.'
  )
  success = {row['name']: row['metrics']['set_success'] for row in rows}
  value = success[main]
  text += (
    f' {main} has a valid answer in its stack for {100 * value.mean:.1f} %'
    f' of them (95 % interval {100 * value.low:.1f} to'
    f' {100 * value.high:.1f})'
  )
  rivals = [
    row['name']
    for row in rows
    if row['name'] != main and not row.get('is_reference', False)
  ]
  if rivals:
    best = max(rivals, key=lambda name: success[name].mean)
    text += (
      f'; the best of the others, {best}, for {100 * success[best].mean:.1f} %'
    )
  return text + '.'


def format_table(rows: list[Row]) -> str:
  """Formats the results for a terminal of 80 columns.

  Returns:
    Percent with the 95 % interval in whole percent; `*` marks the best row
    of a column, references excepted. The first four metrics have room; the
    report has all.
  """
  metrics = list_metrics(rows)[:_TERMINAL_METRICS]
  best = find_best(rows)
  lines = [
    _format_line(
      '% (95 % interval)', [_SHORT.get(m, m)[:13] + ' ' for m in metrics]
    )
  ]
  for row in rows:
    cells = []
    for metric in metrics:
      value = row['metrics'].get(metric)
      is_best = (
        value is not None
        and value.mean == best.get(metric)
        and not row.get('is_reference', False)
      )
      cells.append(_format_short(value) + ('*' if is_best else ' '))
    lines.append(_format_line(row['name'], cells))
  return '\n'.join([lines[0], '-' * max(map(len, lines)), *lines[1:]])


def format_recalls(models: list[TeacherForced]) -> str:
  """Formats the recall of each hop for a terminal of 80 columns."""
  lines = []
  for model in models:
    lines.append(f'Recall of the next image (teacher-forced): {model["name"]}')
    for hop, recalls in enumerate(model['hops'], start=1):
      cells = [f'R@{k} {_format_short(v)}' for k, v in recalls.items()]
      lines.append(f'  hop {hop}  ' + '  '.join(cells))
  return '\n'.join(lines)


def format_failures(failures: Failures) -> str:
  """Formats the first mistakes for a terminal."""
  lines = [
    f'{failures["failed"]} of {failures["queries"]} failed;'
    ' the first mistake, by hop:'
  ]
  for failure, counts in failures['counts'].items():
    if any(counts):
      numbers = ''.join(f'{count:6d}' for count in counts)
      lines.append(f'  {FAILURES[failure]:<38}{numbers}   = {sum(counts)}')
  return '\n'.join(lines)


def _format_line(name: str, cells: Sequence[str]) -> str:
  if len(name) > _NAME_WIDTH:
    name = name[: _NAME_WIDTH - 1] + '…'
  return f'{name:<{_NAME_WIDTH}}' + ''.join(f'{cell:>14}' for cell in cells)


def _format_short(value: Interval | None) -> str:
  if value is None:
    return '-'
  mean, low, high = (100 * share for share in value)
  return f'{mean:.1f} ({low:.0f}-{high:.0f})'


def _to_json(value: Any) -> Any:
  """Turns nested results into what JSON can hold."""
  if isinstance(value, Interval):
    return {k: _to_json(v) for k, v in value._asdict().items()}
  if isinstance(value, dict):
    return {str(key): _to_json(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [_to_json(item) for item in value]
  if hasattr(value, 'item') and not isinstance(value, str):
    return _to_json(value.item())  # A NumPy scalar.
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value

"""Writes an evaluation as metrics.json, report.md and report.html."""

from collections.abc import Sequence
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from vhop_jax.evaluate.failures import FAILURES
from vhop_jax.evaluate.figures import draw_panel
from vhop_jax.evaluate.markdown import make_markdown
from vhop_jax.evaluate.page import make_page
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
from vhop_jax.evaluate.strips import Panel
from vhop_jax.worlds.world import World

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
) -> Paths:
  """Writes metrics.json, report.md with assets/, and report.html.

  Args:
    results: all numbers.
    out_dir: made if missing; an earlier report there is replaced.
    families: a few panels made by `strips.make_family_panel`.
    trajectories: panels made by `strips.make_trajectory_panel`.

  Returns:
    The paths of the three files. The page stands on its own.
  """
  out_dir = Path(out_dir)
  assets = out_dir / 'assets'
  assets.mkdir(parents=True, exist_ok=True)
  for old in (*assets.glob('*.png'), *assets.glob('*.svg')):
    old.unlink()
  paths = Paths(
    out_dir / 'metrics.json', out_dir / 'report.md', out_dir / 'report.html'
  )
  document = make_document(results, trajectories)
  paths.metrics.write_text(
    json.dumps(document, indent=2, allow_nan=False) + '\n', encoding='utf-8'
  )
  for panel in (*families, *trajectories):
    draw_panel(panel).save(assets / f'{panel.name}.png')
  paths.markdown.write_text(
    make_markdown(results, families, trajectories, assets), encoding='utf-8'
  )
  paths.html.write_text(
    make_page(results, families=families, trajectories=trajectories),
    encoding='utf-8',
  )
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

"""Writes reports as Markdown, their pictures beside them."""

from collections.abc import Sequence
from pathlib import Path

from vhop_jax.evaluate import charts
from vhop_jax.evaluate.experiments import Section
from vhop_jax.evaluate.failures import FAILURES
from vhop_jax.evaluate.results import (
  COLUMNS,
  COMPARISONS,
  GLOSSARY,
  Results,
  Row,
  find_best,
  get_scale,
  list_metrics,
)
from vhop_jax.evaluate.scores import METRICS, Interval
from vhop_jax.evaluate.strips import Panel


def make_markdown(
  results: Results,
  families: Sequence[Panel],
  trajectories: Sequence[Panel],
  comparisons: Sequence[Panel],
  assets: Path,
) -> str:
  """Makes the Markdown text and writes the curves it shows.

  Args:
    results: all numbers.
    families: panels of a few families.
    trajectories: panels of right and wrong trajectories.
    comparisons: panels of one query under several policies.
    assets: folder `assets` beside the report; the panels are drawn there as
      `<name>.png`.

  Returns:
    The text; pictures are named by relative paths.
  """
  parts = [f'# {results["title"]}', results['summary']]
  parts.append('## Results\n\nPercent with 95 % intervals; the best is bold.')
  parts.append(_make_markdown_table(results['rows']))
  parts.append(
    '\n'.join(
      f'- **{row["name"]}**: {row["description"]}' for row in results['rows']
    )
  )
  for table in results.get('more_tables', []):
    parts.append(f'## {table["title"]}')
    parts.append(_make_markdown_table(table['rows']))
  for model in results['teacher_forced']:
    ks = list(model['hops'][0])
    parts.append(f'## Recall of the next image, hop by hop: {model["name"]}')
    parts.append(
      _join_table(
        ['', *(f'R@{k}' for k in ks)],
        [
          [f'hop {hop}', *(_format_long(recalls[k]) for k in ks)]
          for hop, recalls in enumerate(model['hops'], start=1)
        ],
      )
    )
  targets = results.get('targets', [])
  if targets:
    parts.append('## Figures aimed at')
    parts.append(
      _join_table(
        ['', 'at least', 'measured', ''],
        [
          [
            target['name'],
            f'{100 * target["goal"]:.1f}',
            _format_long(target['value']),
            'reached' if target['value'].mean >= target['goal'] else 'missed',
          ]
          for target in targets
        ],
      )
    )
  failures = results['failures']
  if failures is not None:
    parts.append('## What went wrong')
    parts.append(
      f'{failures["name"]}: {failures["failed"]} of {failures["queries"]}'
      f' queries failed ({failures["criterion"]}). The first mistake of each;'
      ' besides,'
      f' {failures["recovered"]} went wrong but came upon a valid answer.'
    )
    hops = [f'hop {hop + 1}' for hop in range(failures['hops'])]
    parts.append(
      _join_table(
        ['', *hops, 'all'],
        [
          [FAILURES[failure], *map(str, counts), str(sum(counts))]
          for failure, counts in failures['counts'].items()
        ],
      )
    )
  wrongs = [panel for panel in trajectories if panel.verdict == 'wrong']
  rights = [panel for panel in trajectories if panel.verdict == 'right']
  for title, panels in (
    ('Trajectories that went wrong', wrongs),
    ('Trajectories that are right', rights),
    (COMPARISONS, comparisons),
    ('What a family looks like', families),
  ):
    if panels:
      parts.append(f'## {title}')
    parts.extend(
      f'![{panel.title}](assets/{panel.name}.png)' for panel in panels
    )
  drawn = _write_curves(results, assets)
  if drawn:
    parts.append('## Training')
    parts.extend(drawn)
  parts.append('## How this was made')
  parts.append(
    _join_table(
      ['', ''],
      [
        [key.replace('_', ' '), f'`{value}`']
        for key, value in results['run'].items()
      ],
    )
  )
  parts.append('## Words')
  parts.append('\n'.join(f'- **{term}**: {text}' for term, text in GLOSSARY))
  return '\n\n'.join(parts) + '\n'


def make_experiments_markdown(
  title: str,
  summary: str,
  sections: Sequence[Section],
  pictures: Sequence[tuple[str, str]],
  assets: Path,
) -> str:
  """Makes the Markdown text of a report on experiments.

  Args:
    title: one line.
    summary: a sentence or two.
    sections: tables and charts, top to bottom.
    pictures: title and file name of each picture in `assets`.
    assets: folder `assets` beside the report; the charts are written there.

  Returns:
    The text; pictures are named by relative paths.
  """
  parts = [f'# {title}', summary]
  for section in sections:
    parts += [f'## {section.title}', section.note]
    for chart in section.charts:
      name = f'{chart.name}.svg'
      drawing = chart.draw(is_inline=False)
      (assets / name).write_text(drawing, encoding='utf-8')
      parts.append(f'![{chart.title}](assets/{name})')
    if section.rows:
      parts.append(
        _join_rows(
          section.rows,
          section.list_columns(),
          marks_best=section.marks_best,
        )
      )
  if pictures:
    parts.append(f'## {COMPARISONS}')
    parts.extend(f'![{name}](assets/{file})' for name, file in pictures)
  parts.append('## Words')
  parts.append('\n'.join(f'- **{term}**: {text}' for term, text in GLOSSARY))
  return '\n\n'.join(parts) + '\n'


def _write_curves(results: Results, assets: Path) -> list[str]:
  """Writes each curve as an SVG file and gives the lines that show them."""
  lines = []
  for number, curve in enumerate(results.get('curves', [])):
    for key in curve['keys']:
      title = f'{curve["name"]}: {key}'
      drawing = charts.draw_curve(title, curve['records'], key, is_inline=False)
      if drawing:
        name = f'curve_{number}_{key.replace("/", "_")}.svg'
        (assets / name).write_text(drawing, encoding='utf-8')
        lines.append(f'![{title}](assets/{name})')
  return lines


def _make_markdown_table(rows: list[Row]) -> str:
  return _join_rows(rows, list_metrics(rows), marks_best=True)


def _join_rows(
  rows: Sequence[Row], metrics: Sequence[str], *, marks_best: bool
) -> str:
  best = find_best(list(rows))
  lines = []
  for row in rows:
    is_reference = row.get('is_reference', False)
    cells = [row['name'] + (' (reference)' if is_reference else '')]
    for metric in metrics:
      value = row['metrics'].get(metric)
      cell = _format_long(value, get_scale(metric))
      is_judged = marks_best and metric in METRICS and not is_reference
      if value and is_judged and value.mean == best[metric]:
        cell = f'**{cell}**'
      cells.append(cell)
    lines.append(cells)
  return _join_table(['', *(COLUMNS.get(m, m) for m in metrics)], lines)


def _join_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  lines = [head, ['---', *['---:'] * (len(head) - 1)], *rows]
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in line) + ' |'
    for line in lines
  )


def _format_long(value: Interval | None, scale: int = 100) -> str:
  if value is None:
    return '–'
  mean, low, high = (scale * number for number in value)
  if low == high:
    return f'{mean:.1f}'
  return f'{mean:.1f} ({low:.1f}–{high:.1f})'

"""Writes reports as one HTML page that needs nothing beside itself."""

import base64
from collections.abc import Sequence
import html
from typing import Any

import numpy as np

from vhop_jax.evaluate import charts
from vhop_jax.evaluate.experiments import Section
from vhop_jax.evaluate.failures import FAILURES
from vhop_jax.evaluate.figures import KIND_COLOURS, encode_jpeg
from vhop_jax.evaluate.page_style import PAGE_STYLE
from vhop_jax.evaluate.results import (
  COLUMNS,
  COMPARISONS,
  GLOSSARY,
  Failures,
  Results,
  Row,
  Target,
  TeacherForced,
  find_best,
  get_scale,
  list_metrics,
)
from vhop_jax.evaluate.scores import COUNT_NUMBERS, METRICS, Interval
from vhop_jax.evaluate.strips import KINDS, Frame, Panel, Strip

# A second sign beside the colour, for whoever cannot tell the colours apart.
_SIGNS = {
  'query': '●',
  'gold': '✓',
  'wrong': '✗',
  'dead_end': '▲',
  'neutral': '○',
}
_CHARTS = ('answer_accuracy', 'set_success')


def make_page(
  results: Results,
  *,
  families: Sequence[Panel],
  trajectories: Sequence[Panel],
  comparisons: Sequence[Panel],
) -> str:
  """Makes the whole page of an evaluation.

  Args:
    results: all numbers.
    families: panels of a few families.
    trajectories: panels of right and wrong trajectories.
    comparisons: panels of one query under several policies.

  Returns:
    HTML with all pictures inline, without scripts and outside resources.
  """
  rights = [panel for panel in trajectories if panel.verdict == 'right']
  wrongs = [panel for panel in trajectories if panel.verdict == 'wrong']
  parts = [
    _make_header(results),
    _section('Results', _make_charts(results), _make_table(results['rows'])),
    *(
      _section(table['title'], _make_table(table['rows']))
      for table in results.get('more_tables', [])
    ),
    _section(
      'Recall of the next image, hop by hop',
      '<p>The rank of the gold image when everything before it is right'
      ' (teacher-forced), in percent of the queries. A dead end fits the'
      ' question as well as the gold image does: where one is present, no'
      ' retriever can tell the two apart by looking one hop ahead.</p>',
      _make_recall_table(results['teacher_forced']),
    ),
    _section('Figures aimed at', _make_targets(results.get('targets', []))),
    _section('What went wrong', _make_failures(results['failures'])),
    _section('Trajectories that went wrong', _make_panels(wrongs, legend=True)),
    _section('Trajectories that are right', _make_panels(rights, legend=True)),
    _section(COMPARISONS, _make_panels(comparisons, legend=True)),
    _section('What a family looks like', _make_panels(families, legend=False)),
    _section('Training', _make_curves(results)),
    _section('How this was made', _make_run(results['run'])),
    _section('Words', _make_glossary(results['rows'])),
  ]
  return _wrap_page(results['title'], parts)


def make_experiments_page(
  title: str,
  summary: str,
  sections: Sequence[Section],
  pictures: Sequence[tuple[str, np.ndarray]],
) -> str:
  """Makes the page of a report on experiments.

  Args:
    title: one line.
    summary: a sentence or two.
    sections: tables and charts, top to bottom.
    pictures: title and pixels, uint8 [H, W, C], of each picture.

  Returns:
    HTML with all pictures inline, without scripts and outside resources.
  """
  parts = [
    f'<header><h1>{_text(title)}</h1><p class="lead">{_text(summary)}</p>'
    '</header>',
    *(
      _section(
        section.title,
        f'<p>{_text(section.note)}</p>',
        _join_charts([c.draw(is_inline=True) for c in section.charts])
        + _join_rows(
          section.rows,
          section.list_columns(),
          marks_best=section.marks_best,
        ),
      )
      for section in sections
    ),
    _section(COMPARISONS, ''.join(_make_picture(*p) for p in pictures)),
    _section('Words', _make_glossary([])),
  ]
  return _wrap_page(title, parts)


def _wrap_page(title: str, parts: Sequence[str]) -> str:
  """Makes a page of its sections, leaving out those that are empty."""
  return (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    f'<title>{_text(title)}</title>'
    f'<style>{PAGE_STYLE}{_make_kind_style()}</style></head>\n<body><main>'
    + '\n'.join(part for part in parts if part)
    + '</main></body></html>\n'
  )


def _section(title: str, *parts: str) -> str:
  """Makes a section, or nothing where there is nothing to show."""
  if not parts[-1]:
    return ''
  return f'<section><h2>{_text(title)}</h2>{"".join(parts)}</section>'


def _make_header(results: Results) -> str:
  tiles = []
  for row in results['rows']:
    if row['name'] == results['main_row']:
      for metric, value in row['metrics'].items():
        tiles.append((metric, value))
  drawn = ''.join(
    f'<div class="tile"><span>{_text(COLUMNS.get(metric, metric))}</span>'
    f'<b>{get_scale(metric) * value.mean:.1f}<small>'
    f'{"" if metric in COUNT_NUMBERS else " %"}</small></b>'
    f'<span>{_range(value, get_scale(metric))}</span></div>'
    for metric, value in tiles
  )
  return (
    f'<header><h1>{_text(results["title"])}</h1>'
    f'<p class="lead">{_text(results["summary"])}</p>'
    f'<p class="small">{_text(results["main_row"])}, 95 % intervals:</p>'
    f'<div class="tiles">{drawn}</div></header>'
  )


def _make_charts(results: Results) -> str:
  rows = results['rows']
  drawn = [
    charts.draw_intervals(
      f'{METRICS[metric]}, percent of queries, 95 % intervals',
      [
        (r['name'], r['metrics'][metric])
        for r in rows
        if metric in r['metrics']
      ],
      highlight=results['main_row'],
      is_inline=True,
    )
    for metric in _CHARTS
    if any(metric in row['metrics'] for row in rows)
  ]
  return _join_charts(drawn)


def _join_charts(drawn: Sequence[str]) -> str:
  return f'<div class="charts">{"".join(drawn)}</div>' if any(drawn) else ''


def _make_table(rows: list[Row]) -> str:
  return _join_rows(rows, list_metrics(rows), marks_best=True)


def _join_rows(
  rows: Sequence[Row], metrics: Sequence[str], *, marks_best: bool
) -> str:
  if not rows:
    return ''
  best = find_best(list(rows))
  head = ''.join(f'<th>{_text(COLUMNS.get(m, m))}</th>' for m in metrics)
  body = []
  for row in rows:
    is_reference = row.get('is_reference', False)
    note = ' <i>(reference)</i>' if is_reference else ''
    cells = ''.join(
      _cell(
        row['metrics'].get(metric),
        is_best=marks_best
        and not is_reference
        and metric in METRICS
        and metric in row['metrics']
        and row['metrics'][metric].mean == best[metric],
        scale=get_scale(metric),
      )
      for metric in metrics
    )
    body.append(f'<tr><th>{_text(row["name"])}{note}</th>{cells}</tr>')
  return _table(f'<th></th>{head}', ''.join(body))


def _make_recall_table(models: list[TeacherForced]) -> str:
  if not models:
    return ''
  ks = list(models[0]['hops'][0])
  body = ''
  for hop in range(max(len(model['hops']) for model in models)):
    present = [model for model in models if hop < len(model['hops'])]
    for model in present:
      cells = ''.join(
        _cell(
          model['hops'][hop][k],
          is_best=model['hops'][hop][k].mean
          == max(other['hops'][hop][k].mean for other in present),
        )
        for k in ks
      )
      body += (
        f'<tr><th>Hop {hop + 1} <i>{_text(model["name"])}</i></th>{cells}</tr>'
      )
  head = ''.join(f'<th>R@{k}</th>' for k in ks)
  return _table(f'<th></th>{head}', body)


def _make_targets(targets: list[Target]) -> str:
  if not targets:
    return ''
  body = []
  for target in targets:
    is_reached = target['value'].mean >= target['goal']
    sign = '✓ reached' if is_reached else '✗ missed'
    body.append(
      f'<tr><th>{_text(target["name"])}</th>'
      f'<td>{100 * target["goal"]:.1f}</td>'
      f'{_cell(target["value"], is_best=False)}<td>{sign}</td></tr>'
    )
  return _table(
    '<th></th><th>at least</th><th>measured</th><th></th>', ''.join(body)
  )


def _make_failures(failures: Failures | None) -> str:
  if failures is None:
    return ''
  head = ''.join(f'<th>hop {hop + 1}</th>' for hop in range(failures['hops']))
  most = max(map(sum, failures['counts'].values()))
  body = []
  for failure, counts in failures['counts'].items():
    total = sum(counts)
    width = 100 * total / max(most, 1)
    share = 100 * total / max(failures['failed'], 1)
    cells = ''.join(f'<td>{count or "·"}</td>' for count in counts)
    body.append(
      f'<tr><th>{_text(FAILURES.get(failure, failure))}</th>{cells}'
      f'<td><b>{total}</b></td><td class="bar"><div class="track"><div'
      f' style="width:{width:.1f}%"></div></div>{share:.0f} %</td></tr>'
    )
  return (
    f'<p>{_text(failures["name"])}: {failures["failed"]} of'
    f' {failures["queries"]} queries failed ({_text(failures["criterion"])}).'
    ' The first mistake of each, from the link graph:</p>'
    + _table(
      f'<th></th>{head}<th>all</th><th class="bar">share</th>', ''.join(body)
    )
    + f'<p class="small">Besides, {failures["recovered"]} went wrong but'
    ' came upon a valid answer later; they are not failures.</p>'
  )


def _make_panels(panels: Sequence[Panel], *, legend: bool) -> str:
  if not panels:
    return ''
  drawn = ''
  if legend:
    drawn = '<p class="legend">' + ''.join(
      f'<span class="key k-{kind}">{_SIGNS[kind]} {_text(name)}</span>'
      for kind, name in KINDS.items()
    )
    drawn += '</p>'
  for panel in panels:
    text = f'<p class="ask">{_text(panel.text)}</p>' if panel.text else ''
    drawn += (
      f'<article class="{panel.verdict}"><h3>{_text(panel.title)}</h3>{text}'
      + ''.join(map(_make_strip, panel.strips))
      + '</article>'
    )
  return drawn


def _make_strip(strip: Strip) -> str:
  frames = ''.join(map(_make_frame, strip.frames))
  return f'<h4>{_text(strip.title)}</h4><div class="strip">{frames}</div>'


def _make_frame(frame: Frame) -> str:
  data = _encode(frame.image)
  height, width, _ = frame.image.shape
  rejected = ' rejected' if frame.is_rejected else ''
  return (
    f'<figure class="k-{frame.kind}{rejected}"><div class="tag">'
    f'{_SIGNS[frame.kind]}'
    f' {_text(frame.label)}</div>'
    f'<img loading="lazy" style="aspect-ratio:{width}/{height}"'
    f' alt="{_text(f"{KINDS[frame.kind]} {frame.image_id}")}"'
    f' src="{data}">'
    f'<figcaption>{_text(frame.caption)}</figcaption></figure>'
  )


def _make_picture(title: str, pixels: np.ndarray) -> str:
  return (
    f'<p><img loading="lazy" style="max-width:100%" alt="{_text(title)}"'
    f' src="{_encode(pixels)}"></p>'
  )


def _encode(pixels: np.ndarray) -> str:
  data = base64.b64encode(encode_jpeg(pixels)).decode()
  return f'data:image/jpeg;base64,{data}'


def _make_curves(results: Results) -> str:
  return _join_charts(
    [
      charts.draw_curve(
        f'{curve["name"]}: {key}', curve['records'], key, is_inline=True
      )
      for curve in results.get('curves', [])
      for key in curve['keys']
    ]
  )


def _make_run(run: dict[str, Any]) -> str:
  rows = ''.join(
    f'<tr><th>{_text(key.replace("_", " "))}</th>'
    f'<td class="wide"><code>{_text(value)}</code></td></tr>'
    for key, value in run.items()
  )
  return f'<div class="scroll"><table class="run">{rows}</table></div>'


def _make_glossary(rows: list[Row]) -> str:
  described = [(row['name'], row['description']) for row in rows]
  entries = ''.join(
    f'<dt>{_text(term)}</dt><dd>{_text(meaning)}</dd>'
    for term, meaning in [*described, *GLOSSARY]
  )
  return f'<dl>{entries}</dl>'


def _make_kind_style() -> str:
  return ''.join(
    f'.k-{kind}{{--kind:{colour}}}' for kind, colour in KIND_COLOURS.items()
  )


def _table(head: str, body: str) -> str:
  return (
    f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
    f'<tbody>{body}</tbody></table></div>'
  )


def _cell(value: Interval | None, *, is_best: bool, scale: int = 100) -> str:
  if value is None:
    return '<td>–</td>'
  number = f'{scale * value.mean:.1f}'
  if is_best:
    number = f'<b>{number}</b>'
  return f'<td>{number}<small>{_range(value, scale)}</small></td>'


def _range(value: Interval, scale: int) -> str:
  """Words an interval; nothing where it is a single number."""
  if value.low == value.high:
    return ''
  return f'{scale * value.low:.1f} – {scale * value.high:.1f}'


def _text(value: object) -> str:
  return html.escape(str(value))

"""Draws charts as SVG text, readable on light and on dark paper."""

from collections.abc import Mapping, Sequence
import html
import math
from typing import Any

import numpy as np

from vhop_jax.evaluate.scores import Interval

_WIDTH = 460
_ROW = 34
_MAX_POINTS = 400
_NAMESPACE = 'xmlns="http://www.w3.org/2000/svg" '

# The classes are used by nothing else in a page that has the chart inline.
_STYLE = """<style>
.vh-t{font:12px system-ui,sans-serif;fill:#1c2128}
.vh-f{font:11px system-ui,sans-serif;fill:#5a6270}
.vh-g{stroke:#d9dde3;stroke-width:1}
.vh-b{fill:#2f62c9}.vh-n{fill:#9aa3b0}
.vh-w{stroke:#1c2128;stroke-width:1.5;fill:none}
.vh-l{stroke:#2f62c9;stroke-width:2;fill:none;stroke-linejoin:round}
.vh-r{stroke:#2f62c9;stroke-width:1;fill:none;opacity:.28}
@media(prefers-color-scheme:dark){
.vh-t{fill:#e6e9ee}.vh-f{fill:#a3abb8}.vh-g{stroke:#343b46}
.vh-b{fill:#6b9bff}.vh-n{fill:#67707e}.vh-w{stroke:#e6e9ee}
.vh-l,.vh-r{stroke:#6b9bff}}
</style>"""


def draw_intervals(
  title: str,
  rows: Sequence[tuple[str, Interval]],
  *,
  highlight: str,
  is_inline: bool,
) -> str:
  """Draws shares as bars with their 95 % intervals as whiskers.

  Args:
    title: what is measured.
    rows: name and interval, top to bottom; values in [0, 1].
    highlight: name of the row that is coloured, the others are grey.
    is_inline: goes into an HTML page and needs no namespace.

  Returns:
    An `<svg>` element.
  """
  label_px = 150
  plot_px = _WIDTH - label_px - 62
  height = 34 + _ROW * len(rows) + 22
  bottom = height - 22
  parts = [f'<text class="vh-t" x="0" y="16">{html.escape(title)}</text>']
  for tick in (0, 0.25, 0.5, 0.75, 1):
    x = label_px + tick * plot_px
    parts.append(
      f'<line class="vh-g" x1="{x:g}" y1="28" x2="{x:g}" y2="{bottom}"/>'
      f'<text class="vh-f" x="{x:g}" y="{bottom + 15}"'
      f' text-anchor="middle">{tick * 100:g} %</text>'
    )
  for number, (name, value) in enumerate(rows):
    y = 34 + _ROW * number + 6
    mean, low, high = (label_px + share * plot_px for share in value)
    colour = 'vh-b' if name == highlight else 'vh-n'
    middle = y + 9
    parts.append(
      f'<text class="vh-t" x="0" y="{middle + 4}">'
      f'{html.escape(_shorten(name, 24))}</text>'
      f'<rect class="{colour}" x="{label_px}" y="{y}" height="18" rx="2"'
      f' width="{max(mean - label_px, 1):.1f}"/>'
      f'<path class="vh-w" d="M{low:.1f} {middle}H{high:.1f}'
      f'M{low:.1f} {y + 4}v10M{high:.1f} {y + 4}v10"/>'
      f'<text class="vh-t" x="{high + 6:.1f}" y="{middle + 4}">'
      f'{value.mean * 100:.1f}</text>'
    )
  return _wrap(parts, height, title, is_inline)


def draw_curve(
  title: str,
  records: Sequence[Mapping[str, Any]],
  key: str,
  *,
  x_key: str = 'step',
  is_inline: bool,
) -> str:
  """Draws one logged metric over updates, raw and smoothed.

  Args:
    title: of the chart.
    records: lines of a metrics file; lines that lack the key, or have
      something other than a finite number there, are skipped.
    key: the metric.
    x_key: what stands on the other axis.
    is_inline: goes into an HTML page and needs no namespace.

  Returns:
    An `<svg>` element, or the empty string if fewer than two points exist.
  """
  points = extract_curve(records, key, x_key=x_key)
  if len(points) < 2:
    return ''
  left, top, height = 52, 30, 220
  right, bottom = _WIDTH - 12, height - 28
  xs, ys = points.T
  x_ticks, y_ticks = (_make_ticks(v.min(), v.max()) for v in (xs, ys))
  y_low, y_high = min(y_ticks[0], ys.min()), max(y_ticks[-1], ys.max())

  def place(xs: np.ndarray, ys: np.ndarray) -> str:
    across = left + (xs - xs[0]) / (xs[-1] - xs[0]) * (right - left)
    down = bottom - (ys - y_low) / (y_high - y_low) * (bottom - top)
    return 'M' + 'L'.join(
      f'{x:.1f} {y:.1f}' for x, y in zip(across, down, strict=True)
    )

  parts = [f'<text class="vh-t" x="0" y="16">{html.escape(title)}</text>']
  for tick in y_ticks:
    y = bottom - (tick - y_low) / (y_high - y_low) * (bottom - top)
    parts.append(
      f'<line class="vh-g" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
      f'<text class="vh-f" x="{left - 6}" y="{y + 4:.1f}"'
      f' text-anchor="end">{tick:g}</text>'
    )
  for tick in x_ticks:
    if xs[0] <= tick <= xs[-1]:
      x = left + (tick - xs[0]) / (xs[-1] - xs[0]) * (right - left)
      parts.append(
        f'<text class="vh-f" x="{x:.1f}" y="{bottom + 16}"'
        f' text-anchor="middle">{tick:,.10g}</text>'
      )
  parts.append(
    f'<text class="vh-f" x="{right}" y="16" text-anchor="end">'
    f'{html.escape(x_key)} {xs[-1]:,.10g}: {_smooth(ys)[-1]:.3g}</text>'
    f'<path class="vh-r" d="{place(xs, ys)}"/>'
    f'<path class="vh-l" d="{place(xs, _smooth(ys))}"/>'
  )
  return _wrap(parts, height, title, is_inline)


def extract_curve(
  records: Sequence[Mapping[str, Any]], key: str, *, x_key: str = 'step'
) -> np.ndarray:
  """Reads a curve off metric records, thinned to what a chart can show.

  Returns:
    [n, 2] of x and y with increasing x. A record that repeats an x replaces
    the earlier one, as happens when training was resumed. Above 400 points,
    neighbours are averaged.
  """
  values: dict[float, float] = {}
  for record in records:
    if _is_number(record.get(x_key)) and _is_number(record.get(key)):
      values[float(record[x_key])] = float(record[key])
  points = np.array(sorted(values.items()), float).reshape(-1, 2)
  if len(points) <= _MAX_POINTS:
    return points
  return np.array([p.mean(0) for p in np.array_split(points, _MAX_POINTS)])


def _is_number(value: Any) -> bool:
  return (
    isinstance(value, int | float | np.number)
    and not isinstance(value, bool)
    and math.isfinite(value)
  )


def _smooth(ys: np.ndarray) -> np.ndarray:
  """Averages over a centred window of a tenth of the points."""
  half = len(ys) // 20
  return np.array(
    [ys[max(0, i - half) : i + half + 1].mean() for i in range(len(ys))]
  )


def _make_ticks(low: float, high: float) -> list[float]:
  """Makes about five round numbers that span a range."""
  if high <= low:
    low, high = low - 0.5, high + 0.5
  rough = (high - low) / 4
  power = 10.0 ** math.floor(math.log10(rough))
  size = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
  first, last = math.floor(low / size), math.ceil(high / size)
  return [round(i * size, 12) for i in range(first, last + 1)]


def _shorten(text: str, length: int) -> str:
  return text if len(text) <= length else text[: length - 1] + '…'


def _wrap(
  parts: Sequence[str], height: float, title: str, is_inline: bool
) -> str:
  return (
    f'<svg {"" if is_inline else _NAMESPACE}viewBox="0 0 {_WIDTH} {height}"'
    f' role="img" aria-label="{html.escape(title)}">{_STYLE}'
    + ''.join(parts)
    + '</svg>'
  )

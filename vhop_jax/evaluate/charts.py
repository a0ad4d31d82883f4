"""Draws charts as SVG text, readable on light and on dark paper."""

from collections.abc import Mapping, Sequence
import html
import math
from typing import Any

import numpy as np

from vhop_jax.evaluate.scores import Interval

# Runs that can be told apart in one chart: each has a colour of its own, as
# (on light paper, on dark paper), and a dash pattern besides.
LINE_COLOURS = (
  ('#2f62c9', '#6b9bff'),
  ('#b85c00', '#f0a04b'),
  ('#147a43', '#4cc585'),
  ('#a3368f', '#e08ad8'),
  ('#0b7285', '#4fc3d9'),
  ('#c62f3a', '#f0727b'),
)
_DASHES = ('none', '7 3', '2 2', '9 3 2 3', '12 4', '4 4')
MAX_LINES = len(LINE_COLOURS)

_WIDTH = 460
_ROW = 34
_MAX_POINTS = 400
_NAMESPACE = 'xmlns="http://www.w3.org/2000/svg" '

_LIGHT, _DARK = (
  ''.join(
    f'.vh-c{number}{{stroke:{colours[paper]}}}'
    for number, colours in enumerate(LINE_COLOURS)
  )
  for paper in (0, 1)
)
# The classes are used by nothing else in a page that has the chart inline.
_STYLE = f"""<style>
.vh-t{{font:12px system-ui,sans-serif;fill:#1c2128}}
.vh-f{{font:11px system-ui,sans-serif;fill:#5a6270}}
.vh-g{{stroke:#d9dde3;stroke-width:1}}
.vh-b{{fill:#2f62c9}}.vh-n{{fill:#9aa3b0}}
.vh-w{{stroke:#1c2128;stroke-width:1.5;fill:none}}
.vh-l{{stroke-width:2;fill:none;stroke-linejoin:round}}
.vh-r{{stroke-width:1;fill:none;opacity:.28}}
{_LIGHT}
@media(prefers-color-scheme:dark){{
.vh-t{{fill:#e6e9ee}}.vh-f{{fill:#a3abb8}}.vh-g{{stroke:#343b46}}
.vh-b{{fill:#6b9bff}}.vh-n{{fill:#67707e}}.vh-w{{stroke:#e6e9ee}}
{_DARK}}}
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
  plot = _Plot([points])
  xs, ys = points.T
  parts = [
    *plot.draw_axes(title),
    f'<text class="vh-f" x="{plot.right}" y="16" text-anchor="end">'
    f'{html.escape(x_key)} {xs[-1]:,.10g}: {_smooth(ys)[-1]:.3g}</text>',
    *plot.draw_line(points, 0),
  ]
  return _wrap(parts, plot.height, title, is_inline)


def draw_curves(
  title: str,
  lines: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
  key: str,
  *,
  x_key: str = 'step',
  is_inline: bool,
) -> str:
  """Draws one logged metric of several runs, with a legend below.

  Args:
    title: of the chart.
    lines: name and metric records of each run, at most `MAX_LINES`. A run
      that has fewer than two points is left out; the others keep their
      colours.
    key: the metric.
    x_key: what stands on the other axis.
    is_inline: goes into an HTML page and needs no namespace.

  Returns:
    An `<svg>` element, or the empty string if no run has two points.

  Raises:
    ValueError: there are more lines than colours.
  """
  if len(lines) > MAX_LINES:
    raise ValueError(f'{len(lines)} lines, at most {MAX_LINES} have a colour')
  curves = {
    number: extract_curve(records, key, x_key=x_key)
    for number, (_, records) in enumerate(lines)
  }
  curves = {n: points for n, points in curves.items() if len(points) > 1}
  if not curves:
    return ''
  plot = _Plot(list(curves.values()))
  parts = [
    *plot.draw_axes(title),
    f'<text class="vh-f" x="{plot.right}" y="16" text-anchor="end">'
    f'{html.escape(x_key)}</text>',
  ]
  height = plot.height
  for number, points in curves.items():
    parts += plot.draw_line(points, number)
    last = _smooth(points[:, 1])[-1]
    parts.append(
      f'<path class="vh-l vh-c{number}" {_dash(number)}'
      f' d="M{plot.left} {height + 4}h34"/>'
      f'<text class="vh-t" x="{plot.left + 42}" y="{height + 8}">'
      f'{html.escape(_shorten(lines[number][0], 36))}</text>'
      f'<text class="vh-f" x="{plot.right}" y="{height + 8}"'
      f' text-anchor="end">at {points[-1, 0]:,.10g}: {last:.3g}</text>'
    )
    height += 18
  return _wrap(parts, height, title, is_inline)


class _Plot:
  """Places curves in a chart whose axes span all of them."""

  left, top, height = 52, 30, 220
  right, bottom = _WIDTH - 12, 220 - 28

  def __init__(self, curves: Sequence[np.ndarray]):
    """Takes the curves, each [n, 2] with n of at least 2."""
    xs, ys = np.concatenate(curves).T
    self._x_ticks, self._y_ticks = (
      _make_ticks(v.min(), v.max()) for v in (xs, ys)
    )
    self._x_low, self._x_high = xs.min(), xs.max()
    self._y_low = min(self._y_ticks[0], ys.min())
    self._y_high = max(self._y_ticks[-1], ys.max())

  def _across(self, x: Any) -> Any:
    share = (x - self._x_low) / (self._x_high - self._x_low)
    return self.left + share * (self.right - self.left)

  def _down(self, y: Any) -> Any:
    share = (y - self._y_low) / (self._y_high - self._y_low)
    return self.bottom - share * (self.bottom - self.top)

  def draw_axes(self, title: str) -> list[str]:
    """Draws the title, the ticks and the grid."""
    parts = [f'<text class="vh-t" x="0" y="16">{html.escape(title)}</text>']
    for tick in self._y_ticks:
      y = self._down(tick)
      parts.append(
        f'<line class="vh-g" x1="{self.left}" y1="{y:.1f}" x2="{self.right}"'
        f' y2="{y:.1f}"/>'
        f'<text class="vh-f" x="{self.left - 6}" y="{y + 4:.1f}"'
        f' text-anchor="end">{tick:g}</text>'
      )
    for tick in self._x_ticks:
      if self._x_low <= tick <= self._x_high:
        parts.append(
          f'<text class="vh-f" x="{self._across(tick):.1f}"'
          f' y="{self.bottom + 16}" text-anchor="middle">{tick:,.10g}</text>'
        )
    return parts

  def draw_line(self, points: np.ndarray, number: int) -> list[str]:
    """Draws a curve, raw and smoothed, in the colour of its number."""
    xs, ys = points.T
    return [
      f'<path class="vh-r vh-c{number}" d="{self._trace(xs, ys)}"/>',
      f'<path class="vh-l vh-c{number}" {_dash(number)}'
      f' d="{self._trace(xs, _smooth(ys))}"/>',
    ]

  def _trace(self, xs: np.ndarray, ys: np.ndarray) -> str:
    return 'M' + 'L'.join(
      f'{x:.1f} {y:.1f}'
      for x, y in zip(self._across(xs), self._down(ys), strict=True)
    )


def _dash(number: int) -> str:
  return f'stroke-dasharray="{_DASHES[number]}"'


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

import re
from xml.etree import ElementTree

import numpy as np
from PIL import ImageColor
import pytest

from vhop_jax.evaluate import charts
from vhop_jax.evaluate.scores import Interval


def _read(drawing):
  root = ElementTree.fromstring(drawing)
  return root, [e.text for e in root.iter() if e.tag.endswith('text')]


def test_bars_are_as_long_as_their_means():
  rows = [
    ('a <b>', Interval(0.5, 0.25, 0.75)),
    ('c', Interval(0.25, 0.25, 0.25)),
  ]
  drawing = charts.draw_intervals('T', rows, highlight='c', is_inline=True)
  root, texts = _read(drawing)
  first, second = [e for e in root.iter() if e.tag == 'rect']
  assert float(first.get('width')) == 2 * float(second.get('width'))
  assert (first.get('class'), second.get('class')) == ('vh-n', 'vh-b')
  assert {'a <b>', 'c', '50.0', '25.0'} <= set(texts)
  # The whisker runs from half the bar's length to one and a half of it.
  whisker = next(e for e in root.iter() if e.get('class') == 'vh-w')
  low, _, high = re.match(
    r'M([\d.]+) ([\d.]+)H([\d.]+)', whisker.get('d')
  ).groups()
  left, width = float(first.get('x')), float(first.get('width'))
  assert float(low) == pytest.approx(left + width / 2, abs=0.1)
  assert float(high) == pytest.approx(left + width * 1.5, abs=0.1)


def test_only_files_name_the_namespace():
  rows = [('a', Interval(0.5, 0.4, 0.6))]
  inline, alone = (
    charts.draw_intervals('T', rows, highlight='a', is_inline=flag)
    for flag in (True, False)
  )
  assert 'http' not in inline
  assert 'xmlns="http://www.w3.org/2000/svg"' in alone


def test_curve_skips_what_is_no_number_and_keeps_the_later_record():
  records = [
    {'step': 1, 'loss': 4.0},
    {'step': 2, 'loss': float('nan')},
    {'step': 3, 'other': 1.0},
    {'step': 4, 'loss': 9.0},
    {'step': 4, 'loss': 2},  # Written again after a resume.
    {'step': 0, 'loss': np.float32(5)},
  ]
  points = charts.extract_curve(records, 'loss')
  assert points.tolist() == [[0, 5], [1, 4], [4, 2]]


def test_long_curves_are_averaged_and_not_cut():
  records = [{'step': i, 'loss': float(i)} for i in range(1000)]
  points = charts.extract_curve(records, 'loss')
  assert len(points) == 400
  # Bins of three and of two neighbours: 0, 1, 2 and 998, 999.
  assert points[0].tolist() == [1, 1]
  assert points[-1].tolist() == [998.5, 998.5]


def test_curve_falls_where_values_fall():
  records = [{'step': i, 'loss': 10.0 - i} for i in range(5)]
  root, texts = _read(charts.draw_curve('T', records, 'loss', is_inline=True))
  path = next(e for e in root.iter() if e.get('class') == 'vh-r vh-c0')
  points = np.array(re.findall(r'([\d.]+) ([\d.]+)', path.get('d')), float)
  assert (np.diff(points[:, 0]) > 0).all()
  # Lower values lie lower on the page, where y is larger.
  assert (np.diff(points[:, 1]) > 0).all()
  assert 'step 4: 6' in texts


@pytest.mark.parametrize(
  'records', [[], [{'step': 1, 'loss': 1.0}], [{'step': 1}, {'step': 2}]]
)
def test_nothing_is_drawn_of_less_than_two_points(records):
  assert charts.draw_curve('T', records, 'loss', is_inline=True) == ''


def test_constant_curve_is_drawn():
  records = [{'step': i, 'loss': 1.0} for i in range(3)]
  drawing = charts.draw_curve('T', records, 'loss', is_inline=True)
  assert 'nan' not in drawing


def _lines(*ends):
  return [
    (f'run {n}', [{'step': 0, 'success': 0.0}, {'step': 10, 'success': end}])
    for n, end in enumerate(ends)
  ]


def test_several_runs_share_the_axes_and_have_colours_of_their_own():
  lines = _lines(1.0, 0.5)
  drawing = charts.draw_curves('T', lines, 'success', is_inline=True)
  root, texts = _read(drawing)
  ends = {}
  for path in root.iter():
    if (path.get('class') or '').startswith('vh-r'):
      points = np.array(re.findall(r'([\d.]+) ([\d.]+)', path.get('d')), float)
      ends[path.get('class')] = points
  first, second = ends['vh-r vh-c0'], ends['vh-r vh-c1']
  assert (first[0] == second[0]).all()
  assert first[-1, 0] == second[-1, 0]
  # The second run rises half as far.
  rises = [points[0, 1] - points[-1, 1] for points in (first, second)]
  assert rises[0] == pytest.approx(2 * rises[1], abs=0.2)
  assert {'run 0', 'run 1', 'at 10: 1', 'at 10: 0.5'} <= set(texts)


def test_run_of_one_point_is_left_out_and_colours_stay():
  lines = _lines(1.0, 0.5, 0.2)
  del lines[1][1][1]
  drawing = charts.draw_curves('T', lines, 'success', is_inline=True)
  _, texts = _read(drawing)
  assert 'run 1' not in texts
  assert 'class="vh-l vh-c2"' in drawing
  assert 'class="vh-l vh-c1"' not in drawing
  assert charts.draw_curves('T', lines, 'absent', is_inline=True) == ''


def test_more_runs_than_colours_are_refused():
  with pytest.raises(ValueError, match='7 lines, at most 6'):
    charts.draw_curves('T', _lines(*range(7)), 'success', is_inline=True)


def _luminance(colour):
  # WCAG 2, relative luminance.
  channels = np.array(ImageColor.getrgb(colour)) / 255
  linear = np.where(
    channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
  )
  return linear @ np.array([0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(('light', 'dark'), charts.LINE_COLOURS)
def test_lines_can_be_seen_on_light_and_on_dark_paper(light, dark):
  assert 1.05 / (_luminance(light) + 0.05) >= 4.5
  assert (_luminance(dark) + 0.05) / (_luminance('#14171c') + 0.05) >= 4.5

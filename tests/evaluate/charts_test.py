import re
from xml.etree import ElementTree

import numpy as np
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
  path = next(e for e in root.iter() if e.get('class') == 'vh-r')
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

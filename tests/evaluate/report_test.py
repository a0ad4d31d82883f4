import base64
from html.parser import HTMLParser
import io
import json
import re

from PIL import Image
import pytest

from vhop_jax import cli
from vhop_jax.evaluate import (
  experiments,
  failures,
  published,
  report,
  scores,
  strips,
)
from vhop_jax.evaluate.failures import Judge
from vhop_jax.evaluate.results import SCHEMA
from vhop_jax.evaluate.scores import Interval, Trajectory


class _Page(HTMLParser):
  """Collects what a browser would load, and checks that tags match."""

  VOID = {'meta', 'img', 'br', 'line', 'rect', 'path'}

  def __init__(self, text):
    super().__init__()
    self.sources = []
    self.texts = []
    self.open = []
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    named = dict(attributes)
    for name in ('src', 'href', 'srcset', 'data', 'poster'):
      if name in named:
        self.sources.append(named[name])
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag, attributes):
    pass

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.texts.append(data)

  @property
  def text(self):
    return ' '.join(' '.join(self.texts).split())


# What a retriever of a fixed number of steps is measured by.
FIXED = [metric for metric in scores.METRICS if metric != 'success']


def _make_trajectories(world):
  """Makes right ones, dead ends, and a wrong object, in turns."""
  kinds = {
    0: (1, 2, 3, 9, 8),
    1: (4, 5, 6, 7, 8),
    2: (7, 9, 8, 4, 5),
    3: (9, 8, 7, 1, 2),
  }
  trajectories = []
  for number, query in enumerate(world.queries):
    stack = kinds[number % 4]
    trajectories.append(
      Trajectory(
        query.id,
        tuple(f'{10 * query.family + i:05d}' for i in stack),
        (0.9, 0.8, 0.7, 0.6, 0.5),
      )
    )
  return trajectories


@pytest.fixture
def evaluation(make_world, draw_pixels):
  """Evaluates two worlds as the driver does, with invented rankings."""
  worlds = [make_world(name, families=4) for name in ('w1', 'w2')]
  judges = [Judge(world) for world in worlds]
  stacks = [_make_trajectories(world) for world in worlds]
  pixels = {world.spec.name: draw_pixels(world) for world in worlds}
  outcomes = scores.pool_outcomes(
    [
      scores.compute_outcomes(world, trajectories, answer='hops')
      for world, trajectories in zip(worlds, stacks, strict=True)
    ]
  )
  rows = [
    {
      'name': 'single-shot',
      'description': 'The whole <instruction> at once.',
      'metrics': dict.fromkeys(FIXED, Interval(0.125, 0.0625, 0.25)),
    },
    {
      'name': 'SFT router',
      'description': 'Five greedy steps.',
      'metrics': scores.compute_metrics(outcomes),
    },
    {
      'name': 'best path',
      'description': 'Told each hop.',
      'is_reference': True,
      'metrics': dict.fromkeys(FIXED, Interval(0.96875, 0.9, 1.0)),
    },
  ]
  recalls = [
    {k: Interval(0.1 * hop + 0.01 * k, 0.0, 1.0) for k in (1, 2, 5, 10)}
    for hop in (1, 2, 3)
  ]
  pairs = list(zip(judges, stacks, strict=True))
  results = {
    'title': 'A test & its report',
    'summary': report.compose_summary(worlds, rows, 'SFT router'),
    'rows': rows,
    'main_row': 'SFT router',
    'more_tables': [{'title': 'Dev world', 'rows': rows[:1]}],
    'teacher_forced': [{'name': 'SFT router', 'hops': recalls}],
    'failures': {
      'name': 'SFT router',
      **failures.compute_breakdown(pairs),
    },
    'targets': [
      {'name': 'hop 1 R@2', 'goal': 0.93, 'value': Interval(0.9, 0.8, 1.0)},
      {'name': 'hop 3 R@1', 'goal': 0.31, 'value': Interval(0.31, 0.2, 0.4)},
    ],
    'curves': [
      {
        'name': 'SFT',
        'records': [{'step': i, 'loss': 3.0 / (i + 1)} for i in range(30)],
        'keys': ['loss', 'absent'],
      }
    ],
    'run': {'command': 'vhop <evaluate>', 'seed': 7, 'wall_time': '1 s'},
  }
  chosen = strips.choose_trajectories(pairs, right=2, wrong=3)
  trajectories = [
    strips.make_trajectory_panel(
      judge, pixels[judge.world.spec.name], trajectory
    )
    for judge, trajectory in chosen
  ]
  families = [
    strips.make_family_panel(judges[0], pixels['w1'], family)
    for family in (0, 1, 2)
  ]
  return results, families, trajectories


@pytest.fixture
def written(evaluation, tmp_path):
  results, families, trajectories = evaluation
  paths = report.write_report(
    results, tmp_path, families=families, trajectories=trajectories
  )
  return results, families, trajectories, paths


def test_the_worlds_numbers(evaluation):
  # In each world families 0 and 2 are right and 1 and 3 wrong: one query of
  # these takes the dead end, the other the wrong object.
  results, _, _ = evaluation
  metrics = results['rows'][1]['metrics']
  assert metrics['set_success'].mean == 0.5
  assert metrics['answer_accuracy'].mean == 0.5
  assert metrics['exact_chain'].mean == 0.5
  # Of the wrong ones the leftof query has no image of 1, 2, 3 and the
  # rightof query, with 9, 8, 7, 1, 2, none of 4, 5, 6.
  assert metrics['path_recall'].mean == 0.5
  counts = results['failures']['counts']
  assert results['failures']['failed'] == 8
  assert counts['dead end'] == [4, 0, 0]
  assert counts['wrong object'] == [4, 0, 0]
  assert results['summary'] == (
    'Measured on 16 queries of 2 worlds (w1, w2) of level L4 with precise'
    ' 3-hop prompts; the gallery of a world has 40 images at 96 px. SFT'
    ' router has a valid answer in its stack for 50.0 % of them (95 % interval'
    f' {100 * metrics["set_success"].low:.1f} to'
    f' {100 * metrics["set_success"].high:.1f}); the best of the others,'
    ' single-shot, for 12.5 %.'
  )


def test_metrics_file_has_every_number(written):
  results, _, trajectories, paths = written
  document = json.loads(paths.metrics.read_text())
  assert document['schema'] == SCHEMA
  for row, stored in zip(results['rows'], document['rows'], strict=True):
    for metric, value in row['metrics'].items():
      assert stored['metrics'][metric] == value._asdict()
  hop = document['teacher_forced'][0]['hops'][1]
  assert hop['5']['mean'] == pytest.approx(0.25)
  assert document['failures'] == results['failures']
  assert document['targets'][0]['goal'] == 0.93
  assert document['curves'][0]['records'][29]['loss'] == 0.1
  assert document['run']['seed'] == 7
  assert len(document['drawn']) == len(trajectories) == 5
  frames = document['drawn'][0]['strips'][0]['frames']
  assert [f['image'] for f in frames][:4] == [
    '00000',
    '00001',
    '00002',
    '00003',
  ]


def test_numbers_that_are_not_finite_become_null(evaluation):
  results, _, _ = evaluation
  results['curves'][0]['records'].append({'step': 30, 'loss': float('nan')})
  document = report.make_document(results)
  assert document['curves'][0]['records'][-1] == {'step': 30, 'loss': None}


def test_page_is_whole_and_loads_nothing(written):
  *_, paths = written
  text = paths.html.read_text()
  page = _Page(text)
  assert not page.open
  assert page.sources
  assert all(s.startswith('data:image/jpeg;base64,') for s in page.sources)
  assert not re.search(r'https?:|//[a-z]|url\(|@import|<script|<link', text)
  assert '<meta name="viewport"' in text
  assert 'prefers-color-scheme:dark' in text


def test_page_has_every_picture(written):
  _, families, trajectories, paths = written
  page = _Page(paths.html.read_text())
  frames = [
    frame
    for panel in (*families, *trajectories)
    for strip in panel.strips
    for frame in strip.frames
  ]
  assert len(page.sources) == len(frames)
  # Families: 3 x (4 + 4 + 3). Right: 2 x 6. Wrong: 3 x (6 + 3).
  assert len(frames) == 33 + 12 + 27
  picture = Image.open(io.BytesIO(_decode(page.sources[0])))
  assert picture.size == (192, 128)


def _decode(source):
  return base64.b64decode(source.split(',', 1)[1], validate=True)


def test_page_has_every_number_and_word(written):
  results, families, trajectories, paths = written
  page = _Page(paths.html.read_text())
  text = page.text
  for row in results['rows']:
    assert row['name'] in text
    assert row['description'] in text
    for value in row['metrics'].values():
      assert f'{100 * value.mean:.1f}' in text
      assert f'{100 * value.low:.1f} – {100 * value.high:.1f}' in text
  for recalls in results['teacher_forced'][0]['hops']:
    for value in recalls.values():
      assert f'{100 * value.mean:.1f}' in text
  for failure in results['failures']['counts']:
    assert failures.FAILURES[failure] in text
  assert '8 of 16 queries failed' in text
  for panel in (*families, *trajectories):
    assert panel.title in text
    for strip in panel.strips:
      for frame in strip.frames:
        assert frame.label in text
        assert frame.caption in text
  assert results['summary'] in text
  assert 'vhop <evaluate>' in text
  assert 'SFT: loss' in text
  assert 'absent' not in text
  assert text.count('✓ reached') == 1
  assert text.count('✗ missed') == 1


def test_only_the_best_that_competes_is_bold(written):
  *_, paths = written
  text = paths.html.read_text()
  table = re.search(r'<table>.*?</table>', text).group()
  assert re.findall(r'<b>(.*?)</b>', table) == ['50.0'] * 4
  markdown = paths.markdown.read_text()
  assert markdown.count('**50.0 (') == 4
  assert '**96.9' not in markdown


def test_markdown_shows_every_picture_by_a_relative_path(written):
  results, families, trajectories, paths = written
  text = paths.markdown.read_text()
  shown = re.findall(r'!\[[^]]*\]\(([^)]*)\)', text)
  assert len(shown) == len(families) + len(trajectories) + 1
  assert len(set(shown)) == len(shown)
  for name in shown:
    assert name.startswith('assets/')
    assert (paths.markdown.parent / name).stat().st_size > 500
  on_disk = {f'assets/{p.name}' for p in paths.markdown.parent.glob('assets/*')}
  assert on_disk == set(shown)
  for row in results['rows']:
    for value in row['metrics'].values():
      assert f'{100 * value.mean:.1f} (' in text
  assert '| dead end taken | 4 | 0 | 0 | 4 |' in text
  assert '| hop 2 | 21.0 (0.0–100.0) |' in text
  assert '| hop 3 R@1 | 31.0 | 31.0 (20.0–40.0) | reached |' in text


def test_writing_again_leaves_no_old_pictures(written):
  results, families, _, paths = written
  report.write_report(results, paths.html.parent, families=families[:1])
  assert sorted(p.name for p in paths.html.parent.glob('assets/*.png')) == [
    'family_w1_0.png'
  ]
  assert 'Trajectories' not in paths.html.read_text()


def test_same_results_same_bytes(evaluation, tmp_path):
  results, families, trajectories = evaluation
  written = [
    report.write_report(
      results, tmp_path / name, families=families, trajectories=trajectories
    )
    for name in 'ab'
  ]
  for first, second in zip(*written, strict=True):
    assert first.read_bytes() == second.read_bytes()


def test_terminal_table_has_room_for_success(evaluation):
  results, _, _ = evaluation
  results['rows'][1]['metrics']['success'] = Interval(0.25, 0.0, 1.0)
  header, *lines = report.format_table(results['rows']).splitlines()
  assert max(map(len, (header, *lines))) <= 80
  assert header.split()[4:] == [
    'Success', 'Answer', 'Set', 'success', 'Path', 'recall'
  ]  # fmt: skip
  assert '25.0 (0-100)*' in lines[2]


def test_terminal_tables_fit_in_80_columns(evaluation):
  results, _, _ = evaluation
  results['rows'][0]['name'] = 'a name that is much too long for a column'
  table = report.format_table(results['rows'])
  assert max(map(len, table.splitlines())) <= 80
  header, line, first, second, third = table.splitlines()
  assert header.split()[-5:] == ['success', 'Path', 'recall', 'Exact', 'chain']
  assert set(line) == {'-'}
  assert first.split()[-2:] == ['12.5', '(6-25)']
  assert second.count('*') == 4
  assert '*' not in first + third
  recalls = report.format_recalls(results['teacher_forced'])
  assert max(map(len, recalls.splitlines())) <= 80
  assert 'hop 2  R@1 21.0 (0-100)' in recalls
  assert report.format_failures(results['failures']).splitlines() == [
    '8 of 16 failed; the first mistake, by hop:',
    f'  {"dead end taken":<38}     4     0     0   = 4',
    f'  {"wrong object":<38}     4     0     0   = 4',
  ]


def test_reference_that_equals_the_best_is_not_bold(evaluation, tmp_path):
  results, _, _ = evaluation
  results['rows'][2]['metrics'] = results['rows'][1]['metrics']
  paths = report.write_report(results, tmp_path)
  table = re.search(r'<table>.*?</table>', paths.html.read_text()).group()
  assert table.count('<b>50.0</b>') == 4
  assert paths.markdown.read_text().count('**50.0 (') == 4
  assert report.format_table(results['rows']).count('*') == 4


def test_numbers_of_decisions_are_no_percent_and_never_best(
  evaluation, tmp_path
):
  results, _, _ = evaluation
  results['rows'][1]['metrics']['decisions'] = Interval(5.5, 5.25, 6.0)
  results['rows'][1]['metrics']['stop_rate'] = Interval(0.5, 0.5, 0.5)
  paths = report.write_report(results, tmp_path)
  html, markdown = paths.html.read_text(), paths.markdown.read_text()
  assert '<td>5.5<small>5.2 – 6.0</small></td>' in html
  assert '<b>5.5<small></small></b>' in html  # The tile, without a %.
  assert '| 5.5 (5.2–6.0) | 50.0 |' in markdown
  assert 'Stop rate' in markdown
  assert 'Decisions' in html


def test_comparisons_are_shown(evaluation, tmp_path, make_world, draw_pixels):
  results, *_ = evaluation
  world = make_world()
  panel = _compare(world, draw_pixels(world))
  paths = report.write_report(results, tmp_path, comparisons=[panel])
  assert 'SFT: 1 image, not the answer' in _Page(paths.html.read_text()).text
  assert f'](assets/{panel.name}.png)' in paths.markdown.read_text()
  assert (tmp_path / 'assets' / f'{panel.name}.png').exists()
  drawn = json.loads(paths.metrics.read_text())['drawn']
  assert [d['name'] for d in drawn] == [panel.name]


def _compare(world, pixels):
  trajectory = Trajectory('0_leftof', ('00009',))
  return strips.make_policies_panel(
    Judge(world), pixels, '0_leftof', [('SFT', trajectory)]
  )


@pytest.fixture
def runs(tmp_path, make_world, draw_pixels):
  """Makes the folder of one experiment of two seeds with its curves."""
  folder = tmp_path / 'runs'
  for seed, success in enumerate((0.25, 0.75)):
    row = {
      'experiment': 'precise_3hop',
      'seed': seed,
      'stage': 'reinforce',
      'policy': 'Router',
      'decoding': 'gates',
      'test_set': 'L4 3-hop',
      'queries': 300,
      'metrics': {'success': Interval(success, 0.0, 1.0)},
      'settings': {'decision_penalty': 0.01},
    }
    run = folder / f'seed{seed}'
    experiments.append_rows(run / 'results.jsonl', [row])
    (run / 'reinforce').mkdir()
    (run / 'reinforce' / 'metrics.jsonl').write_text(
      ''.join(f'{{"step": {s}, "reward": 0.{s}}}\n' for s in (1, 2, 3))
    )
  world = make_world()
  report.write_panels([_compare(world, draw_pixels(world))], folder / 'seed1')
  return folder


def test_experiments_stand_beside_the_paper(runs):
  out = runs / 'report'
  paths = report.write_experiments([runs, runs / 'seed0'], out)
  markdown = paths.markdown.read_text()
  assert (
    '| Router, RL, gates (2 seeds) | **50.0 (25.0–75.0)** | 76.3 |' in markdown
  )
  assert f'| Success | {published.LABEL} |' in markdown
  shown = re.findall(r'!\[[^]]*\]\(assets/([^)]*)\)', markdown)
  assert shown == ['curve_0_reward_0.svg', '00_comparison_w1_0_leftof.png']
  assert sorted(shown) == sorted(p.name for p in (out / 'assets').iterdir())
  curve = (out / 'assets' / shown[0]).read_text()
  assert '>seed0<' in curve
  assert '>seed1<' in curve
  page = _Page(paths.html.read_text())
  assert not page.open
  assert len(page.sources) == 1
  assert all(s.startswith('data:image/jpeg') for s in page.sources)
  assert 'Router, RL, gates (2 seeds)' in page.text
  assert page.text.count(published.LABEL) > len(published.TABLES)
  document = json.loads(paths.metrics.read_text())
  assert document['schema'] == report.EXPERIMENTS_SCHEMA
  assert len(document['rows']) == 2
  assert document['tables'][0]['rows'][0]['metrics']['success'] == {
    'mean': 0.5, 'low': 0.25, 'high': 0.75
  }  # fmt: skip


def test_experiments_report_reads_nothing_of_its_own(runs):
  # A folder below the one that is searched: copied pictures stay one.
  out = runs / 'report'
  first = report.write_experiments([runs], out)
  texts = [path.read_bytes() for path in first]
  again = report.write_experiments([runs], out)
  assert [path.read_bytes() for path in again] == texts


def test_command_writes_the_report(runs, tmp_path, capsys):
  with pytest.raises(SystemExit) as stop:
    cli.main(['report', str(runs), f'--out={tmp_path / "out"}'])
  assert stop.value.code == 0
  assert capsys.readouterr().out == f'{tmp_path / "out" / "report.html"}\n'
  assert (tmp_path / 'out' / 'report.md').exists()


@pytest.mark.parametrize(
  ('arguments', 'code', 'words'),
  [
    (['{empty}', '--out={empty}/out'], 1, 'no results in results.jsonl at or'),
    (['{empty}/no', '--out={empty}/out'], 1, 'no is no folder'),
    (['{empty}'], 2, 'out'),
    (['--out={empty}/out'], 2, 'no folder given'),
  ],
)
def test_command_says_what_is_missing(tmp_path, capsys, arguments, code, words):
  with pytest.raises(SystemExit) as stop:
    cli.main(['report', *(a.format(empty=tmp_path) for a in arguments)])
  assert stop.value.code == code
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith('error: ')
  assert words in line
  if code == 1:
    assert '--config=' in line
  assert not (tmp_path / 'out').exists()

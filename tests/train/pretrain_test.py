"""Tests the loss of pretraining and a short run of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import command
from vhop_jax.models import pretrained
from vhop_jax.train import metrics, pretrain

pytestmark = pytest.mark.usefixtures('quick_compile')

# Each object is in two pictures at least, as in every batch.
OBJECTS = np.array([[0, 1], [1, 2], [0, 3], [3, 2]], np.int32)


def compute_expected(embeddings, objects, scale):
  """Computes loss and recall token by token."""
  tokens = [
    (i, int(objects[i, m]), embeddings[i, m])
    for i in range(objects.shape[0])
    for m in range(objects.shape[1])
  ]
  losses, hits = [], []
  for image, thing, vector in tokens:
    scored = [
      (scale * float(vector @ other), other_image, other_thing)
      for other_image, other_thing, other in tokens
    ]
    others = [s for s in scored if s[1] != image]
    positives = [s[0] for s in others if s[2] == thing]
    negatives = [s[0] for s in scored if s[2] != thing]
    total = sum(np.exp(negatives))
    losses.append(
      np.mean([-np.log(np.exp(p) / (np.exp(p) + total)) for p in positives])
    )
    hits.append(max(others)[2] == thing)
  return np.mean(losses), np.mean(hits)


def test_object_loss_by_plain_loops():
  rng = np.random.default_rng(0)
  embeddings = rng.normal(size=(4, 2, 8)).astype(np.float32)
  embeddings /= np.linalg.norm(embeddings, axis=-1, keepdims=True)
  loss, recall = pretrain.compute_object_loss(
    jnp.asarray(embeddings), jnp.asarray(OBJECTS), jnp.asarray(5.0)
  )
  expected = compute_expected(embeddings, OBJECTS, 5.0)
  np.testing.assert_allclose(loss, expected[0], rtol=1e-4)
  np.testing.assert_allclose(recall, expected[1])


def test_object_loss_is_small_where_equal_objects_look_equal():
  embeddings = np.eye(8, dtype=np.float32)[OBJECTS]
  loss, recall = pretrain.compute_object_loss(
    jnp.asarray(embeddings), jnp.asarray(OBJECTS), jnp.asarray(50.0)
  )
  assert loss < 1e-6
  assert recall == 1


def run(workdir, **changes):
  values = {
    'tower_steps': 1,
    'text_steps': 1,
    'joint_steps': 1,
    'model.tower.width_px': 24,
    'model.tower.height_px': 16,
    'model.tower.channels': '(8,16)',
    'model.tower.blocks': '(0,1)',
    'model.tower.num_heads': 2,
    'model.tower.output_size': 32,
    'model.decoder.hidden_size': 32,
    'model.decoder.num_layers': 2,
    'model.decoder.num_heads': 4,
    'model.decoder.head_dim': 8,
    'model.decoder.mlp_size': 48,
    'model.decoder.mrope_section': '(2,1,1)',
    'model.decoder.scan_unroll': 1,
    'data.resolution': 24,
    'data.groups': 2,
    'data.window': 1,
    'data.group_size': 4,
    'data.views': 2,
    'data.singles': 2,
    'data.queries': 6,
    'data.captions': 3,
    'workers': 0,
    'world': '',
    'log_every': 1,
    'tower_optimizer.warmup_steps': 0,
    'text_optimizer.warmup_steps': 0,
    'joint_optimizer.warmup_steps': 0,
    'mesh.data': 1,
    **changes,
  }
  return command.run_stage('pretrain', workdir, values)


def test_short_run_writes_a_model_that_embeds(tmp_path, capsys):
  assert run(tmp_path) == 0
  rows = {
    phase: metrics.read_rows(tmp_path / phase)[0]
    for phase in ('tower', 'text', 'joint')
  }
  assert 'query' not in rows['tower']
  assert 'object' not in rows['text']
  assert {'query', 'object', 'caption'} <= set(rows['joint'])
  assert all(
    np.isfinite(value) for row in rows.values() for value in row.values()
  )
  path = tmp_path / pretrain.RESULT_FILE
  assert str(path) in capsys.readouterr().out
  model = pretrained.load_embedder(path)
  assert model.settings['decoder']['hidden_size'] == 32
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(model.params))
  # Finished phases are not trained again.
  assert run(tmp_path) == 0
  assert capsys.readouterr().out.count('resuming at step 1 of 1') == 3
  again = pretrained.load_embedder(path)
  jax.tree.map(np.testing.assert_array_equal, model.params, again.params)


def test_later_run_starts_from_the_model_of_an_earlier_one(tmp_path, capsys):
  first = tmp_path / 'first'
  assert run(first) == 0
  path = first / pretrain.RESULT_FILE
  start = pretrained.load_embedder(path)
  capsys.readouterr()
  later = {'embedder': str(path), 'tower_steps': 0, 'text_steps': 0}
  still = {'joint_optimizer.lr': 0.0, 'loss.absence_weight': 0.5}
  assert run(tmp_path / 'still', **later, **still) == 0
  lines = capsys.readouterr().out
  assert 'joint: 1 updates' in lines
  assert 'tower:' not in lines
  kept = pretrained.load_embedder(tmp_path / 'still' / pretrain.RESULT_FILE)
  jax.tree.map(np.testing.assert_array_equal, start.params, kept.params)
  before, after = (
    metrics.read_rows(folder / 'joint')[0]
    for folder in (first, tmp_path / 'still')
  )
  assert 'absence' not in before
  assert after['absence'] > 0
  # Another size of model cannot start from it.
  assert run(tmp_path / 'other', **later, **{'model.decoder.mlp_size': 40}) == 2
  command.assert_one_line_error(capsys, 'holds another model than config.model')


@pytest.mark.parametrize(
  ('phase', 'path', 'trained'),
  [
    ('tower', ('embedder', 'tower', 'norm'), True),
    ('tower', ('embedder', 'text', 'norm'), False),
    ('text', ('embedder', 'tower', 'norm'), False),
    ('text', ('embedder', 'text', 'norm'), True),
    ('text', ('heads', 'query_scale'), True),
    ('joint', ('embedder', 'tower', 'norm'), True),
    ('joint', ('embedder', 'text', 'norm'), True),
  ],
)
def test_each_phase_trains_its_part(phase, path, trained):
  assert pretrain._is_trained(phase, path) == trained


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'data.resolution': 48}, 'data.resolution=48 makes pictures of 48 x 32'),
    ({'model.tower.num_tokens': 3}, 'model.tower.num_tokens=3'),
    ({'model.tower.output_size': 16}, 'model.tower.output_size=16 must equal'),
    ({'model.decoder.vocab_size': 9}, 'more than model.decoder.vocab_size=9'),
    ({'data.group_size': 5}, 'data.group_size=5 must be even'),
    ({'data.max_query_tokens': 7}, 'limit of 7'),
    (
      {'tower_steps': 0, 'text_steps': 0, 'joint_steps': 0},
      'every phase has 0 steps',
    ),
  ],
)
def test_bad_settings_are_one_line(tmp_path, capsys, changes, words):
  assert run(tmp_path, **changes) == 2
  command.assert_one_line_error(capsys, words)


def test_missing_world_is_one_line(tmp_path, capsys):
  assert run(tmp_path, world='/nowhere') == 1
  assert 'no world in /nowhere' in capsys.readouterr().err

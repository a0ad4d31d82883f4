"""Tests the loss of supervised fine-tuning, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import command
from tests.models import micro, quick
from vhop_jax import errors
from vhop_jax.data import routes as routes_lib
from vhop_jax.models import pretrained
from vhop_jax.train import metrics, objective, router_run

pytestmark = pytest.mark.usefixtures('quick_compile')

WIDTH, IMAGES, TAU = 32, 8, 0.05


@pytest.fixture(scope='module')
def batch(embedder):
  """Returns a batch of three routes over eight images of one family."""
  family = tuple(range(IMAGES))
  routes = [
    micro.make_route('Find it.', 0, (1, 2, 3), ((4,), (), ()), family),
    micro.make_route(
      'Find the red object.', 0, (4, 5, 6), ((1,), (), ()), family
    ),
    micro.make_route('Go on.', 7, (3, 2, 1), ((), (6, 5), ()), family),
  ]
  return micro.make_batch(
    embedder, routes, images=IMAGES, family_size=3, decisions=3
  )


def make_loss(router, **changes):
  settings = {
    'equals': 'ignored',
    'noise': 0.0,
    'false_negative_margin': 0.1,
    'gate_weight': 0.0,
    'leave_shares': (0.5, 0.5),
    'absence_weight': 0.0,
    'withdrawn_weight': 0.0,
    'rejection': 'selection',
    'budget': 16,
  }
  return objective.make_loss(router, **{**settings, **changes})


@pytest.fixture(scope='module')
def cosines(router, batch):
  """Returns the router's cosines with all candidates, [B, T, C]."""
  embedder = router.embedder
  prefix = routes_lib.sequence_lib.from_batch('prefix', batch)
  candidates = batch['candidate_visual']
  logits = quick.jit(
    lambda *args: router.module.apply({'params': router.params}, *args)
  )(
    prefix,
    embedder.maker.segment(),
    embedder.maker.documents(len(candidates)),
    batch['query_visual'],
    np.tile([1, 2], (len(batch['chains'][:, 0]), 1)),
    candidates[batch['chains'][:, 0, :-1]],
    candidates,
  )
  return np.asarray(logits) / np.exp(router.params['select']['log_scale'])


def compute_expected(router, batch, cosines, *, equals, margin):
  """Computes the loss and the recall of each hop by plain loops."""
  scale = np.exp(router.params['select']['log_scale'])
  losses, hits = [], np.zeros(cosines.shape[:2])
  for b in range(cosines.shape[0]):
    for t in range(cosines.shape[1]):
      row, gold = cosines[b, t], int(batch['chains'][b, 0, t])
      equal = set(np.flatnonzero(batch['equal_mask'][b, t]).tolist())
      right = {gold} | (equal if equals == 'positive' else set())
      gone = {
        int(batch['query_candidate'][b]),
        *batch['chains'][b, 0, :t].tolist(),
      }
      if equals == 'ignored':
        gone |= equal
      compete = [
        c
        for c in range(len(row))
        if batch['candidate_mask'][c] and c not in gone
      ]
      hits[b, t] = max(compete, key=lambda c: row[c]) in right
      best = max(row[c] for c in right)
      negatives = [
        c for c in compete if c not in right and row[c] <= best + margin
      ]
      total = sum(np.exp(scale * row[c]) for c in negatives)
      losses.append(
        np.mean(
          [
            -np.log(np.exp(scale * row[c]) / (np.exp(scale * row[c]) + total))
            for c in right
          ]
        )
      )
  return np.mean(losses), hits.mean(axis=0)


@pytest.mark.parametrize('equals', ['negative', 'ignored', 'positive'])
def test_loss_is_that_of_plain_loops(router, batch, cosines, equals):
  # The margin is small, so that the mask of false negatives matters.
  margin = 0.01
  loss = make_loss(router, equals=equals, false_negative_margin=margin)
  value, named = quick.jit(loss)(
    router.params, batch, jax.random.key(0), jnp.asarray(0)
  )
  expected, recalls = compute_expected(
    router, batch, cosines, equals=equals, margin=margin
  )
  np.testing.assert_allclose(value, expected, rtol=1e-3)
  np.testing.assert_allclose([named[f'hop{h}_r1'] for h in (1, 2, 3)], recalls)
  whole, _ = compute_expected(router, batch, cosines, equals=equals, margin=9.0)
  assert abs(whole - expected) > 0.01


def test_it_learns_one_batch_by_heart(embedder, batch):
  made = pretrained.make_router(embedder, inverse_temperature=1 / TAU)
  loss = make_loss(made)
  arrays = jax.tree.map(jnp.asarray, batch)
  tx = optax.adam(3e-3)

  @quick.jit
  def update(params, state):
    (value, named), grads = jax.value_and_grad(loss, has_aux=True)(
      params, arrays, jax.random.key(0), jnp.asarray(0)
    )
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, value, named

  params, state = made.params, tx.init(made.params)
  values = []
  for _ in range(60):
    params, state, value, named = update(params, state)
    values.append(float(value))
  assert values[0] > 0.3
  assert values[-1] < 0.02
  assert all(named[f'hop{hop}_r1'] == 1 for hop in (1, 2, 3))


def test_noise_moves_the_visual_tokens_and_follows_its_key(router, batch):
  loss = quick.jit(make_loss(router, noise=0.5))
  values = [
    float(loss(router.params, batch, jax.random.key(k), jnp.asarray(0))[0])
    for k in (0, 1, 0)
  ]
  assert values[0] == values[2] != values[1]


@pytest.fixture(scope='module')
def program(embedder_file, folder, other_folder):
  """Returns a function that runs the stage by its command line."""

  def run(workdir, **changes):
    values = {
      'embedder': embedder_file,
      'worlds': other_folder,
      'dev': folder,
      'warmup_steps': 2,
      'joint_steps': 0,
      'data.batch_size': 4,
      'log_every': 1,
      'evaluate_every': 0,
      'evaluate_decisions': 3,
      'warmup_optimizer.warmup_steps': 0,
      'joint_optimizer.warmup_steps': 0,
      'mesh.data': 1,
      **changes,
    }
    return command.run_stage('sft', workdir, values)

  return run


def load_trained(workdir, embedder):
  return pretrained.load_router(
    workdir / router_run.RESULT_FILE, embedder
  ).params


def test_warm_up_trains_all_but_the_gallery(
  program, embedder, tmp_path, capsys
):
  assert program(tmp_path) == 0
  params = load_trained(tmp_path, embedder)
  before = pretrained.make_router(embedder, inverse_temperature=1 / TAU).params
  same = micro.find_equal(params, before)
  assert all(jax.tree.leaves(same['gallery']))
  assert not same['select']['kernel']
  assert not any(jax.tree.leaves(same['state']['decoder']['layers']))
  assert 'frozen: gallery, stop, backtrack, depth' in capsys.readouterr().out


def test_demonstrations_train_the_gates(program, embedder, tmp_path, capsys):
  changes = {
    'data.decisions': 8,
    'data.turns.wrong_frac': 0.5,
    'loss.gate_weight': 0.5,
    'budget': 9,
    'evaluate_every': 2,
  }
  assert program(tmp_path, **changes) == 0
  made = pretrained.load_router(tmp_path / router_run.RESULT_FILE, embedder)
  assert made.has_gates
  before = pretrained.make_router(embedder, inverse_temperature=1 / TAU).params
  same = micro.find_equal(made.params, before)
  for gate in ('stop', 'backtrack'):
    assert not same[gate]['logit']['kernel']
  rows = metrics.read_rows(tmp_path / 'warmup')
  assert {'success', 'decisions', 'backtracks'} <= set(rows[-1])
  shares = ('stop_on', 'stop_off', 'back_on', 'back_off')
  assert all(0 <= rows[0][name] <= 1 for name in shares)
  total = rows[0]['select'] + 0.5 * (rows[0]['gate'] + rows[0]['withdrawn'])
  assert rows[0]['loss'] == pytest.approx(total, rel=1e-4)
  assert 'frozen: gallery\n' in capsys.readouterr().out


def test_joint_phase_trains_the_gallery_and_a_finished_run_stands(
  program, embedder, tmp_path, capsys
):
  changes = {'warmup_steps': 0, 'joint_steps': 1, 'evaluate_every': 1}
  assert program(tmp_path, **changes) == 0
  params = load_trained(tmp_path, embedder)
  before = embedder.params['text']
  assert not any(
    jax.tree.leaves(
      micro.find_equal(params['gallery'], before)['decoder']['layers']
    )
  )
  rows = metrics.read_rows(tmp_path / 'joint')
  assert {'set_success', 'hop1_r1', 'hop3_r2'} <= set(rows[-1])
  capsys.readouterr()
  assert program(tmp_path, **changes) == 0
  assert 'resuming at step 1 of 1' in capsys.readouterr().out
  assert all(
    jax.tree.leaves(micro.find_equal(load_trained(tmp_path, embedder), params))
  )


@pytest.mark.parametrize(
  ('changes', 'code', 'words'),
  [
    ({'loss.equals': 'maybe'}, 2, "loss.equals='maybe': choose"),
    ({'worlds': '/nowhere/sft_*'}, 1, 'no world matches worlds=/nowhere/'),
    ({'dev': '/nowhere'}, 1, 'no world in /nowhere'),
    ({'embedder': 'no.safetensors'}, 1, 'no.safetensors is missing'),
    ({'data.max_text_tokens': 9}, 2, 'limit of 9'),
    ({'data.family_size': 1}, 2, 'raise data.family_size'),
    ({'optimizr.lr': 1}, 2, 'optimizr'),
  ],
)
def test_bad_settings_are_one_line(
  program, tmp_path, capsys, changes, code, words
):
  assert program(tmp_path, **changes) == code
  command.assert_one_line_error(capsys, words)


def test_training_on_the_held_out_world_is_refused(
  program, folder, tmp_path, capsys
):
  assert program(tmp_path, worlds=folder) == errors.DataError.exit_code
  assert 'share objects' in capsys.readouterr().err


def test_settings_of_the_micro_model_are_used(embedder):
  assert embedder.settings == micro.SETTINGS

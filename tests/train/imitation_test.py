"""Tests online imitation from its rollouts to its command line."""

import jax
import numpy as np
import pytest

from tests import command
from tests.models import micro
from vhop_jax.losses import imitation as loss_lib
from vhop_jax.models import pretrained
from vhop_jax.train import imitation, metrics, objective, router_run

pytestmark = pytest.mark.usefixtures('quick_compile')

IMAGES, BUDGET = 9, 7
CANDIDATES = 18
BACK, STOP = CANDIDATES, CANDIDATES + 1


@pytest.fixture(scope='module')
def batch(embedder):
  """Returns demonstrations over nine images of one family."""
  family = tuple(range(IMAGES))
  routes = [
    micro.make_route('Find it.', 0, (1, 2, 3), ((4,), (), ()), family),
    micro.make_route('Go on.', 7, (3, 2, 1), ((), (6, 5), ()), family),
  ]
  return micro.make_batch(
    embedder,
    routes,
    images=IMAGES,
    family_size=9,
    decisions=BUDGET,
    turns={'wrong_frac': 0.6, 'equal_frac': 0.5, 'deeper_frac': 0.3},
  )


@pytest.fixture(scope='module')
def collect(open_router, batch):
  """Returns a function that rolls the router out with other settings."""

  def run(*, expert_frac, demonstration_frac, seed=0):
    return np.asarray(
      imitation.make_collect(
        open_router,
        budget=BUDGET,
        rejection='final',
        temperature=1.0,
        expert_fracs=(expert_frac,),
        demonstration_frac=demonstration_frac,
      )(open_router.params, batch, jax.random.key(seed))['action']
    )

  return run


def make_targets(batch, action):
  states = objective.replay(
    {**batch, 'action': action}, budget=BUDGET, rejection='final'
  )
  return loss_lib.make_targets(
    states,
    objective.get_chains(batch),
    batch['equal_mask'],
    equals='ignored',
    rejection='final',
  )


def test_expert_alone_takes_the_chain_and_stops(collect, batch):
  made = collect(expert_frac=1.0, demonstration_frac=0.0)
  for row, chain in zip(made, batch['chains'][:, 0], strict=True):
    assert row.tolist() == [*chain, *[STOP] * (BUDGET - 3)]


def test_demonstrations_can_be_kept(collect, batch):
  made = collect(expert_frac=0.0, demonstration_frac=1.0)
  np.testing.assert_array_equal(made, batch['action'])


def test_policy_alone_strays_and_never_takes_padding(collect, batch):
  seen = set()
  for seed in range(6):
    made = collect(expert_frac=0.0, demonstration_frac=0.0, seed=seed)
    targets = make_targets(batch, made)
    taken = made[np.arange(BUDGET) < (made == STOP).argmax(axis=1)[:, None]]
    images = taken[taken < CANDIDATES]
    assert batch['candidate_mask'][images].all()
    seen |= set(np.asarray(targets.kind)[np.asarray(targets.mask)].tolist())
    seen |= {('unlabelled', bool(x)) for x in np.asarray(~targets.mask).ravel()}
  # States of every kind come up.
  assert {0, 1, ('unlabelled', True)} <= seen


@pytest.fixture(scope='module')
def program(embedder_file, router, folder, other_folder, tmp_path_factory):
  """Returns a function that runs the stage by its command line."""
  router_file = tmp_path_factory.mktemp('router') / 'router.safetensors'
  pretrained.save_router(router_file, router, training={})

  def run(workdir, **changes):
    values = {
      'embedder': embedder_file,
      'router': router_file,
      'worlds': other_folder,
      'dev': folder,
      'imitation_steps': 3,
      'data.batch_size': 4,
      'data.decisions': 8,
      'budget': 8,
      'replay.capacity': 2,
      'replay.collect_every': 2,
      'log_every': 1,
      'evaluate_every': 0,
      'evaluate_decisions': 3,
      'imitation_optimizer.warmup_steps': 0,
      'mesh.data': 1,
      **changes,
    }
    return command.run_stage('imitation', workdir, values)

  return run


def test_short_run_trains_all_but_the_gallery(
  program, embedder, router, tmp_path, capsys
):
  assert program(tmp_path, evaluate_every=3) == 0
  made = pretrained.load_router(tmp_path / router_run.RESULT_FILE, embedder)
  assert made.has_gates
  same = micro.find_equal(made.params, router.params)
  assert all(jax.tree.leaves(same['gallery']))
  for name in ('select', 'stop', 'backtrack'):
    assert not all(jax.tree.leaves(same[name]))
  rows = metrics.read_rows(tmp_path / 'imitation')
  assert {'success', 'decisions', 'backtracks', 'hop3_r2'} <= set(rows[-1])
  assert {'select', 'gate', 'stop_on', 'back_off'} <= set(rows[0])
  capsys.readouterr()
  assert program(tmp_path, evaluate_every=3) == 0
  assert 'resuming at step 3 of 3' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('changes', 'code', 'words'),
  [
    ({'router': 'no.safetensors'}, 1, 'no.safetensors is missing'),
    ({'budget': 7}, 2, 'data.decisions=8 is more than budget=7'),
    ({'loss.equals': 'maybe'}, 2, "loss.equals='maybe': choose"),
  ],
)
def test_bad_settings_are_one_line(
  program, tmp_path, capsys, changes, code, words
):
  assert program(tmp_path, **changes) == code
  command.assert_one_line_error(capsys, words)

"""Tests reinforcement learning from its rollouts to its command line."""

import jax
import numpy as np
import pytest

from tests import command
from tests.models import micro
from vhop_jax.data import routes as routes_lib
from vhop_jax.models import pretrained
from vhop_jax.train import metrics, reinforce, router_run

pytestmark = pytest.mark.usefixtures('quick_compile')

IMAGES, BUDGET = 9, 5
CANDIDATES, ROLLOUTS, QUERIES = 18, 6, 2
BACK, STOP = CANDIDATES, CANDIDATES + 1
POLICY = {
  'budget': BUDGET,
  'rejection': 'selection',
  'temperature': 0.5,
  'gate_complements': True,
}


@pytest.fixture(scope='module')
def open_router(router):
  """Returns a router whose gates are open about as often as not."""
  return micro.open_gates(router, stop=0.0, backtrack=0.0, kernel_scale=0.02)


@pytest.fixture(scope='module')
def batch(embedder):
  """Returns two queries over nine images; almost any image is an answer."""
  family = tuple(range(IMAGES))
  routes = [
    routes_lib.Route('Find it.', 0, (), (), (1, 2, 3, 4), family, ('hop',) * 3),
    routes_lib.Route('Go on.', 7, (), (), (2,), family, ('hop',) * 2),
  ]
  return micro.make_batch(
    embedder, routes, images=IMAGES, family_size=9, decisions=BUDGET
  )


def collect(router, batch, policy=None, **changes):
  settings = {
    'queries': QUERIES,
    'rollouts': ROLLOUTS,
    'groups': QUERIES,
    'decision_penalty': 0.1,
    'eps': 0.1,
    'normalize': True,
    'mask_failed': True,
    'reference': None,
    **changes,
  }
  made = reinforce.make_collect(router, **(policy or POLICY), **settings)(
    router.params, batch, jax.random.key(3)
  )
  return jax.device_get(made)


@pytest.fixture(scope='module')
def collected(open_router, batch):
  return collect(open_router, batch, reference=open_router.params)


def test_rewards_are_those_of_plain_loops(collected, batch):
  rewards, successes, lengths, backtracks = [], [], [], []
  # Both groups are kept, maybe in another order.
  assert sorted(collected['kept'].tolist()) == [0, 1]
  queries = collected['kept'][collected['row']]
  for row, action in zip(queries, collected['action'], strict=True):
    stack = []
    ended = next((t for t, a in enumerate(action) if a == STOP), None)
    taken = action if ended is None else action[:ended]
    for a in taken.tolist():
      stack = stack[:-1] if a == BACK else [*stack, a]
    length = BUDGET if ended is None else ended + 1
    success = ended is not None and stack[-1] in batch['answers'][row]
    successes.append(success)
    lengths.append(length)
    backtracks.append(int((taken == BACK).sum()))
    rewards.append(success - 0.1 * length)
  assert 0 < sum(successes) < len(successes)
  np.testing.assert_allclose(collected['reward'], np.mean(rewards), rtol=1e-5)
  for name, values in (
    ('success', successes),
    ('decisions', lengths),
    ('backtracks', backtracks),
  ):
    np.testing.assert_allclose(
      collected[f'rollout_{name}'], np.mean(values), rtol=1e-5
    )
  for start in (0, ROLLOUTS):
    group = np.array(rewards[start : start + ROLLOUTS])
    gain = (group - group.mean()) / (group.std() + 0.1)
    if not any(successes[start : start + ROLLOUTS]):
      gain *= 0
    np.testing.assert_allclose(
      collected['advantage'][start : start + ROLLOUTS], gain, atol=1e-5
    )
  counted = collected['decision_mask'].sum(axis=1)
  teaches = np.repeat(
    [np.any(successes[i : i + ROLLOUTS]) for i in (0, ROLLOUTS)], ROLLOUTS
  )
  np.testing.assert_array_equal(counted, np.where(teaches, lengths, 0))


@pytest.mark.parametrize(
  'changes', [{}, {'temperature': 1.0}, {'gate_complements': False}]
)
def test_rollouts_and_training_agree_on_log_probs(open_router, batch, changes):
  policy = {**POLICY, **changes}
  made = collect(open_router, batch, policy)
  log_probs = reinforce.compute_log_probs(
    open_router,
    open_router.params,
    {
      **reinforce.take_queries(batch, made['kept']),
      'row': made['row'],
      'action': made['action'],
    },
    **policy,
  )
  mask = made['decision_mask']
  assert mask.any()
  np.testing.assert_allclose(
    np.asarray(log_probs)[mask], made['old_log_prob'][mask], atol=1e-4
  )


def test_groups_that_teach_are_kept(open_router, batch):
  made = collect(open_router, batch, groups=1)
  assert made['row'].tolist() == [0] * ROLLOUTS
  assert made['decision_mask'].any()
  assert made['action'].shape == (ROLLOUTS, BUDGET)
  # The figures are of all rollouts.
  both = collect(open_router, batch)
  np.testing.assert_allclose(made['reward'], both['reward'])


def test_loss_on_the_rollouts_own_policy(open_router, batch, collected):
  loss = reinforce.make_loss(
    open_router,
    clip_low=0.2,
    clip_high=0.28,
    aggregation='decision',
    ratio='decision',
    kl_weight=0.1,
    **POLICY,
  )
  total, named = jax.jit(loss)(
    open_router.params, {**batch, **collected}, jax.random.key(0), 0
  )
  mask = collected['decision_mask']
  # The ratio is 1 and both policies are the same.
  gain = np.broadcast_to(collected['advantage'][:, None], mask.shape)
  np.testing.assert_allclose(total, -gain[mask].mean(), atol=1e-4)
  np.testing.assert_allclose(named['ratio'], 1.0, atol=1e-4)
  np.testing.assert_allclose(named['kl'], 0.0, atol=1e-4)
  assert set(reinforce.STATISTICS) <= set(named)


@pytest.fixture(scope='module')
def program(embedder_file, open_router, folder, other_folder, tmp_path_factory):
  """Returns a function that runs the stage by its command line."""
  router_file = tmp_path_factory.mktemp('router') / 'router.safetensors'
  pretrained.save_router(router_file, open_router, training={})

  def run(workdir, **changes):
    values = {
      'embedder': embedder_file,
      'router': router_file,
      'worlds': other_folder,
      'dev': folder,
      'reinforce_steps': 2,
      'data.batch_size': 4,
      'data.decisions': 6,
      'budget': 6,
      'collect.queries': 3,
      'collect.rollouts': 3,
      'collect.groups': 2,
      'log_every': 1,
      'evaluate_every': 0,
      'evaluate_decisions': 3,
      'reinforce_optimizer.warmup_steps': 0,
      'mesh.data': 1,
      **changes,
    }
    return command.run_stage('reinforce', workdir, values)

  return run


def test_short_run_trains_all_but_the_gallery(
  program, embedder, open_router, tmp_path, capsys
):
  changes = {'collect.mask_failed': False}
  assert program(tmp_path, **changes) == 0
  made = pretrained.load_router(tmp_path / router_run.RESULT_FILE, embedder)
  assert made.has_gates
  same = micro.find_equal(made.params, open_router.params)
  assert all(jax.tree.leaves(same['gallery']))
  for name in ('select', 'stop', 'backtrack', 'state'):
    assert not all(jax.tree.leaves(same[name]))
  rows = metrics.read_rows(tmp_path / 'reinforce')
  assert set(reinforce.STATISTICS) <= set(rows[0])
  capsys.readouterr()
  assert program(tmp_path, **changes) == 0
  assert 'resuming at step 2 of 2' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('changes', 'code', 'words'),
  [
    ({'router': 'no.safetensors'}, 1, 'no.safetensors is missing'),
    ({'collect.groups': 4}, 2, 'groups <= queries <= data.batch_size=4'),
    ({'collect.queries': 5}, 2, 'collect.queries=5: choose 1 <= groups'),
    ({'collect.rollouts': 1}, 2, 'take at least 2'),
    ({'loss.ratio': 'maybe'}, 2, "loss.ratio='maybe': choose"),
  ],
)
def test_bad_settings_are_one_line(
  program, tmp_path, capsys, changes, code, words
):
  assert program(tmp_path, **changes) == code
  command.assert_one_line_error(capsys, words)


def test_router_without_gates_is_refused(program, router, tmp_path, capsys):
  router_file = tmp_path / 'router.safetensors'
  pretrained.save_router(router_file, router, training={})
  assert program(tmp_path / 'out', router=router_file) == 2
  command.assert_one_line_error(capsys, 'has no gates, so it never stops')

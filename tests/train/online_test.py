"""Tests the replay of rollouts with a source and a policy that only count."""

import json

import jax
import numpy as np

from vhop_jax.train import online


class Source:
  """Gives batches numbered from 0."""

  def __init__(self):
    self.at = 0

  def __next__(self):
    self.at += 1
    return {'id': np.array([self.at - 1]), 'action': np.zeros((1, 2), np.int32)}

  def get_state(self):
    return {'at': self.at}

  def set_state(self, state):
    self.at = state['at']


def collect(params, batch, key):
  """Returns actions that tell the parameters, the batch and the key."""
  action = [[params, int(jax.random.randint(key, (), 0, 10**6))]]
  return {'action': np.array(action), 'reward': np.float32([params / 3])}


def make_batches():
  return online.OnlineBatches(
    Source(), collect, seed=1, capacity=3, collect_every=2
  )


def draw(batches, params):
  batches.prepare(params)
  batch = next(batches)
  assert batch['reward'].dtype == np.float32
  assert batch['reward'][0] == np.float32(batch['action'][0, 0] / 3)
  return int(batch['id'][0]), batch['action'].tolist()


def test_rollouts_are_collected_in_time_and_kept_for_a_while():
  batches = make_batches()
  drawn = [draw(batches, params) for params in range(20)]
  for t in range(0, 20, 2):
    # The newest comes at once, made by the parameters of its time.
    number, action = drawn[t]
    assert number == t // 2
    assert action[0][0] == t
  for t, (number, action) in enumerate(drawn):
    newest = t // 2
    assert newest - 3 < number <= newest
    assert action[0][0] == 2 * number
  # Older ones come too, and no two have the same key.
  assert any(number < t // 2 for t, (number, _) in enumerate(drawn))
  assert len({action[0][1] for _, action in drawn}) == len(
    {number for number, _ in drawn}
  )


def test_restored_replay_goes_on_as_it_would_have():
  whole = make_batches()
  expected = [draw(whole, params) for params in range(15)]
  for stop in (4, 7):
    parts = make_batches()
    for params in range(stop):
      draw(parts, params)
    state = json.loads(json.dumps(parts.get_state()))
    resumed = make_batches()
    resumed.set_state(state)
    made = [draw(resumed, params) for params in range(stop, 15)]
    assert made == expected[stop:]

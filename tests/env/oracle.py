"""Walks through galleries in plain Python, one rollout at a time."""

import math

import numpy as np

BACK, STOP = 'back', 'stop'


class Walk:
  """Holds one rollout: lists and sets in place of masks."""

  def __init__(self, query, num_images, budget, *, rejection):
    self.query, self.num_images = query, num_images
    self.left, self.rejection = budget, rejection
    self.stack, self.rejected, self.stopped = [], {}, False

  def is_done(self):
    return self.stopped or self.left == 0

  def list_legal(self, stop_depth=None):
    """Lists the legal actions: images, then BACK, then STOP."""
    if self.is_done():
      return []
    gone = {self.query, *self.stack, *self.rejected}
    legal = [i for i in range(self.num_images) if i not in gone]
    if self.stack:
      legal.append(BACK)
      if stop_depth in (None, len(self.stack)):
        legal.append(STOP)
    return legal

  def take(self, act):
    if self.is_done():
      return
    self.left -= 1
    if act == STOP:
      self.stopped = True
    elif act == BACK:
      image = self.stack.pop()
      below = tuple(self.stack)
      self.rejected[image] = below
      if self.rejection != 'final':
        # What was rejected after the image that is gone now is free again.
        self.rejected = {
          i: after
          for i, after in self.rejected.items()
          if after[: len(below) + 1] != (*below, image)
        }
    else:
      self.stack.append(act)
      if self.rejection == 'selection':
        self.rejected = {}

  def copy(self):
    made = Walk(
      self.query, self.num_images, self.left, rejection=self.rejection
    )
    made.stack, made.rejected = list(self.stack), dict(self.rejected)
    made.stopped = self.stopped
    return made


def list_best(walk, chains):
  """Lists the best actions by trying; None where no chain can be reached.

  Goes back as far as need be, one Backtrack at a time, and then along each
  chain, asking at each step whether the action is legal. An image that was
  just rejected may return after a detour: another image, taken and taken back.
  """
  if walk.is_done():
    return None
  if tuple(walk.stack) in chains:
    return [STOP]
  walk = walk.copy()
  walk.left = math.inf  # The budget does not matter to the expert.
  backs = 0
  while True:
    found, detours = [], []
    for chain in chains:
      if tuple(walk.stack) != chain[: len(walk.stack)]:
        continue
      rest = chain[len(walk.stack) :]
      if can_follow(walk.copy(), rest):
        # A whole chain, from here or by going back to it.
        found += rest[:1] or [STOP]
      elif walk.rejection == 'selection':
        for image in list_images(walk):
          ahead = walk.copy()
          ahead.take(image)
          ahead.take(BACK)
          if can_follow(ahead, rest):
            detours.append(image)
    if found or detours:
      return [BACK] if backs else sorted(set(found or detours))
    if not walk.stack:
      return None
    walk.take(BACK)
    backs += 1


def list_images(walk):
  """Lists the images that may be selected."""
  return [act for act in walk.list_legal() if act not in (BACK, STOP)]


def can_follow(walk, images):
  """Tells whether the images may be selected one after another."""
  for image in images:
    if image not in walk.list_legal():
      return False
    walk.take(image)
  return True


def sigmoid(x):
  return 1 / (1 + math.exp(-x))


def compute_log_prob(act, legal, select, stop, back):
  """Returns log pi(act) by the formulas of the design, gates as they are."""
  if act not in legal:
    return -math.inf
  p_stop = sigmoid(stop) if STOP in legal else 0.0
  p_back = sigmoid(back) if BACK in legal else 0.0
  if act == STOP:
    return math.log(p_stop)
  if act == BACK:
    return math.log(1 - p_stop) + math.log(p_back)
  images = [i for i in legal if i not in (BACK, STOP)]
  total = sum(math.exp(select[i]) for i in images)
  chosen = math.log(math.exp(select[act]) / total)
  return math.log(1 - p_stop) + math.log(1 - p_back) + chosen


def choose_greedily(legal, select, stop, back):
  if STOP in legal and sigmoid(stop) > 0.5:
    return STOP
  if BACK in legal and sigmoid(back) > 0.5:
    return BACK
  return choose_image(legal, select)


def choose_image(legal, select):
  return max(
    (i for i in legal if i not in (BACK, STOP)), key=select.__getitem__
  )


def choose_noisily(legal, select, stop, back, noise):
  """Takes the action with the largest log pi + noise."""
  number = {BACK: len(select), STOP: len(select) + 1}
  return max(
    legal,
    key=lambda act: (
      compute_log_prob(act, legal, select, stop, back)
      + noise[number.get(act, act)]
    ),
  )


def make_number(act, num_images):
  """Returns the action's number in the package."""
  return {BACK: num_images, STOP: num_images + 1}.get(act, act)


def make_chains(rng, num_images, query, *, count, longest):
  """Draws chains without repeats that do not meet the query image."""
  others = [i for i in range(num_images) if i != query]
  return [
    tuple(
      int(i)
      for i in rng.choice(others, rng.integers(1, longest + 1), replace=False)
    )
    for _ in range(count)
  ]


def np_pad(rows, length, value):
  return np.array([[*row, *[value] * (length - len(row))] for row in rows])

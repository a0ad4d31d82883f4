"""Draws demonstrations: the gold chain with wrong turns that are taken back."""

from collections.abc import Sequence

import numpy as np

BACKTRACK, STOP = -1, -2  # Beside image numbers, which are 0 and more.


def sample_decisions(
  rng: np.random.Generator,
  chain: Sequence[int],
  equals: Sequence[Sequence[int]],
  others: Sequence[int],
  *,
  length: int,
  wrong_frac: float,
  equal_frac: float,
  deeper_frac: float,
) -> list[int]:
  """Draws what one demonstration decides.

  Before each gold image the demonstrator may take a wrong one and come back,
  once or several times. Rejected images are never taken again.

  Args:
    rng: draws.
    chain: the gold images in order.
    equals: for each hop the images that fit it as well as the gold one.
    others: images that a wrong turn may take; gold ones among them are left
      out.
    length: how many decisions are returned: chain and wrong turns, then Stop
      and Stop again as padding. Wrong turns that would not fit are not taken.
    wrong_frac: chance of a wrong turn before each selection.
    equal_frac: chance that it takes an image of `equals`, if there is one.
    deeper_frac: chance that a wrong turn goes one image further, and so on.

  Returns:
    Image numbers, BACKTRACK and STOP.
  """
  decisions: list[int] = []
  free = [i for i in dict.fromkeys(others) if i not in chain]
  for hop, gold in enumerate(chain):
    while rng.random() < wrong_frac:
      # Each wrong image costs two decisions; the rest of the chain and Stop
      # must still fit.
      room = length - len(decisions) - (len(chain) - hop) - 1
      tempting = [i for i in equals[hop] if i in free]
      turn: list[int] = []
      while free and 2 * (len(turn) + 1) <= room:
        if not turn and tempting and rng.random() < equal_frac:
          turn.append(tempting[rng.integers(len(tempting))])
        else:
          turn.append(free[rng.integers(len(free))])
        free.remove(turn[-1])
        if rng.random() >= deeper_frac:
          break
      if not turn:
        break
      decisions += [*turn, *[BACKTRACK] * len(turn)]
    decisions.append(gold)
  return decisions + [STOP] * (length - len(decisions))

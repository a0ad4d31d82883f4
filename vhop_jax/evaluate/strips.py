"""Turns queries and trajectories into labelled strips of pictures.

A strip is data: which pictures stand beside each other, what is written below
them and what kind of frame each one gets. `figures` draws strips as PNG and
`page` as HTML.
"""

from collections.abc import Iterable, Sequence
import dataclasses

import numpy as np

from vhop_jax.evaluate import failures
from vhop_jax.evaluate.failures import Judge
from vhop_jax.evaluate.scores import (
  BACKTRACKED,
  SELECTED,
  STOP,
  Trajectory,
  is_answer_in_stack,
  is_chain_exact,
  is_success,
)
from vhop_jax.worlds.world import Query

# The panels of several policies have names that begin so.
COMPARISON = 'comparison'

# Kinds of frames.
QUERY = 'query'
GOLD = 'gold'
WRONG = 'wrong'
DEAD_END = 'dead_end'
NEUTRAL = 'neutral'

KINDS = {
  QUERY: 'query image',
  GOLD: 'gold image',
  WRONG: 'wrong image',
  DEAD_END: 'dead end',
  NEUTRAL: 'after the answer',
}

_KIND_OF_VERDICT = {
  failures.GOLD: GOLD,
  failures.GOLD_LATER: GOLD,
  failures.DEAD_END: DEAD_END,
  failures.AFTER_ANSWER: NEUTRAL,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
  """Is one picture of a strip.

  Attributes:
    image: uint8 [H, W, C].
    image_id: its id in its world.
    kind: a key of `KINDS`.
    label: short, above the picture, e.g. `1 · 0.83`.
    caption: below the picture, a sentence or two.
    is_rejected: whether the router came back from it; its frame is dashed.
  """

  image: np.ndarray
  image_id: str
  kind: str
  label: str
  caption: str = ''
  is_rejected: bool = False


@dataclasses.dataclass(frozen=True)
class Strip:
  """Is a row of pictures with a heading."""

  title: str
  frames: tuple[Frame, ...]


@dataclasses.dataclass(frozen=True)
class Panel:
  """Is a group of strips about one query or one family.

  Attributes:
    name: unique in a report, usable as a file name.
    title: one line.
    text: the instruction or an explanation.
    strips: top to bottom.
    verdict: `right`, `wrong` or, for a family, the empty string.
  """

  name: str
  title: str
  text: str
  strips: tuple[Strip, ...]
  verdict: str = ''


def make_family_panel(judge: Judge, pixels: np.ndarray, family: int) -> Panel:
  """Shows a family: query image, its chains and all its distractors.

  Args:
    judge: of the world.
    pixels: uint8 [N, H, W, C], in the order of the world's images.
    family: its number.

  Returns:
    A strip for each valid chain of each query and one with the distractors,
    each labelled by what is wrong with it at which hop of which query.
  """
  world = judge.world
  queries = [query for query in world.queries if query.family == family]
  if not queries:
    raise ValueError(f'family {family} of {world.spec.name} has no query')
  letters = dict(zip((q.id for q in queries), 'ABCDEFGH', strict=False))
  chains = list(dict.fromkeys(c for q in queries for c in q.chains))
  strips = []
  for query in queries:
    for chain in query.chains:
      if not any(chain == done for done in chains):
        continue
      chains.remove(chain)
      strips.append(
        Strip(
          f'Query {letters[query.id]} ({query.id}): {query.instruction}',
          (
            _make_query_frame(judge, pixels, query),
            *make_chain_frames(judge, pixels, query, chain),
          ),
        )
      )
  shown = {i for q in queries for c in q.chains for i in c}
  shown.update(query.image for query in queries)
  distractors = tuple(
    _make_distractor_frame(judge, pixels, queries, letters, record.id)
    for record in world.images
    if record.family == family and record.id not in shown
  )
  if distractors:
    strips.append(Strip('Distractors of this family', distractors))
  return Panel(
    name=f'family_{world.spec.name}_{family}',
    title=f'Family {family} of {world.spec.name}',
    text='',
    strips=tuple(strips),
  )


def make_chain_frames(
  judge: Judge, pixels: np.ndarray, query: Query, chain: Sequence[str]
) -> tuple[Frame, ...]:
  """Makes green frames of a valid chain, captioned by what links them."""
  frames = []
  for hop, image in enumerate(chain):
    step = judge.judge(query, chain[:hop], image)
    label = f'hop {hop + 1}'
    if hop == len(chain) - 1:
      label += ' · answer'
    frames.append(
      Frame(pixels[judge.world.index(image)], image, GOLD, label, step.reason)
    )
  return tuple(frames)


def make_trajectory_panel(
  judge: Judge, pixels: np.ndarray, trajectory: Trajectory
) -> Panel:
  """Shows what was selected for a query and, if it failed, the gold chain.

  Args:
    judge: of the world.
    pixels: uint8 [N, H, W, C], in the order of the world's images.
    trajectory: to be shown.

  Returns:
    The panel; its verdict is `right` if a valid answer is in the stack.
  """
  query = judge.queries[trajectory.query_id]
  frames = _make_trajectory_frames(judge, pixels, trajectory)
  is_right = not failures.is_failed(query, trajectory)
  title = f'{judge.world.spec.name} · {query.id} · '
  failure = judge.find_failure(trajectory)
  if failure is None:
    title += 'right'
  elif is_right:
    title += f'answer found after a mistake at hop {failure[1]}'
  else:
    title += f'{failures.FAILURES[failure[0]]} at hop {failure[1]}'
  strips = [Strip('Selected', frames)]
  if failure is not None:
    strips.extend(
      Strip('Gold chain', make_chain_frames(judge, pixels, query, chain))
      for chain in query.chains
    )
  return Panel(
    name=f'trajectory_{judge.world.spec.name}_{query.id}',
    title=title,
    text=query.instruction,
    strips=tuple(strips),
    verdict='right' if is_right else 'wrong',
  )


def make_policies_panel(
  judge: Judge,
  pixels: np.ndarray,
  query_id: str,
  policies: Sequence[tuple[str, Trajectory]],
) -> Panel:
  """Shows what several policies did for the same query, as [VHOP, Figure 14].

  Args:
    judge: of the world.
    pixels: uint8 [N, H, W, C], in the order of the world's images.
    query_id: of the query.
    policies: name and trajectory of each, top to bottom.

  Returns:
    A strip for each policy and one for each valid chain. Images that a policy
    came back from have dashed frames, gold images green ones; below each
    image stand the gates' probabilities, where there are gates.

  Raises:
    ValueError: a trajectory belongs to another query.
  """
  query = judge.queries[query_id]
  strips = []
  for name, trajectory in policies:
    if trajectory.query_id != query_id:
      raise ValueError(f'{name}: of {trajectory.query_id}, not of {query_id}')
    frames = _make_trajectory_frames(judge, pixels, trajectory)
    strips.append(Strip(f'{name}: {describe_end(query, trajectory)}', frames))
  strips.extend(
    Strip('Gold chain', make_chain_frames(judge, pixels, query, chain))
    for chain in query.chains
  )
  return Panel(
    name=f'{COMPARISON}_{judge.world.spec.name}_{query_id}',
    title=f'{judge.world.spec.name} · {query_id}',
    text=query.instruction,
    strips=tuple(strips),
  )


def describe_end(query: Query, trajectory: Trajectory) -> str:
  """Words how a trajectory ended."""
  if not _has_gates(trajectory):
    images = _count(len(trajectory.selected), 'image')
    if is_answer_in_stack(query, trajectory):
      return f'{images}, the answer among them'
    return f'{images}, not the answer'
  if trajectory.ended != STOP:
    text = 'out of budget'
  elif is_success(query, trajectory):
    text = 'stopped on the answer'
  else:
    text = 'stopped on a wrong image'
  if not trajectory.decisions:
    return text
  text += f' after {_count(len(trajectory.decisions), "decision")}'
  backtracks = sum(d.kind == BACKTRACKED for d in trajectory.decisions)
  return text + f', {_count(backtracks, "backtrack")}' * (backtracks > 0)


def choose_queries_for_comparison(
  judge: Judge, policies: Sequence[Sequence[Trajectory]], *, count: int
) -> list[str]:
  """Chooses queries to draw under several policies, by rule, not by looks.

  Only queries at which some policies are right and others are not say how
  the policies differ. Of these, in the order of the world, some are taken at
  even distances. A policy with gates is right if it stopped on a valid
  answer, another one if a valid answer is among its images.

  Args:
    judge: of the world.
    policies: of each policy its trajectories on all queries, in any order.
    count: how many queries, or as many as there are.

  Returns:
    Their ids, in the order of the world.
  """
  right = [
    {t.query_id for t in trajectories if _is_right(judge, t)}
    for trajectories in policies
  ]
  differing = [
    query_id
    for query_id in judge.queries
    if len({query_id in ids for ids in right}) > 1
  ]
  count = min(count, len(differing))
  return [differing[i * len(differing) // count] for i in range(count)]


def _has_gates(trajectory: Trajectory) -> bool:
  """Tells whether it could stop by itself."""
  return bool(trajectory.decisions) or trajectory.ended == STOP


def _is_right(judge: Judge, trajectory: Trajectory) -> bool:
  query = judge.queries[trajectory.query_id]
  if _has_gates(trajectory):
    return is_success(query, trajectory)
  return is_answer_in_stack(query, trajectory)


def _count(number: int, noun: str) -> str:
  return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _make_trajectory_frames(
  judge: Judge, pixels: np.ndarray, trajectory: Trajectory
) -> tuple[Frame, ...]:
  """Shows the query image and all that was selected."""
  query = judge.queries[trajectory.query_id]
  make = _make_decision_frames if trajectory.decisions else _make_stack_frames
  return (
    _make_query_frame(judge, pixels, query),
    *make(judge, pixels, trajectory),
  )


def _make_stack_frames(
  judge: Judge, pixels: np.ndarray, trajectory: Trajectory
) -> list[Frame]:
  """Shows what a retriever without gates selected."""
  query = judge.queries[trajectory.query_id]
  frames = []
  for t, step in enumerate(judge.judge_trajectory(trajectory)):
    label = f'{t + 1}'
    if t < len(trajectory.scores):
      label += f' · {trajectory.scores[t]:.2f}'
    frames.append(_make_step_frame(judge, pixels, query, step, label))
  return frames


def _make_decision_frames(
  judge: Judge, pixels: np.ndarray, trajectory: Trajectory
) -> list[Frame]:
  """Shows each selection of a router with gates, also those it took back.

  Below each image stand the gates' probabilities once it was seen; below one
  that it came back from also those when it was back at the image before.
  """
  query = judge.queries[trajectory.query_id]
  frames: list[Frame] = []
  stack: list[str] = []
  places: list[int] = []  # Of the stack's images in `frames`.
  decisions = trajectory.decisions
  gates = [f'stop {d.p_stop:.2f}, back {d.p_backtrack:.2f}' for d in decisions]
  for t, decision in enumerate(decisions):
    is_last = t + 1 == len(decisions)
    if decision.kind == BACKTRACKED:
      stack.pop()
      place = places.pop()
      frame = dataclasses.replace(frames[place], is_rejected=True)
      # On an empty stack neither gate is asked.
      if stack and not is_last:
        caption = f'{frame.caption} (Then: {gates[t + 1]})'
        frame = dataclasses.replace(frame, caption=caption)
      frames[place] = frame
    if decision.kind != SELECTED:
      continue
    assert decision.image is not None
    stack.append(decision.image)
    places.append(len(frames))
    step = judge.judge_trajectory(
      dataclasses.replace(trajectory, selected=tuple(stack))
    )[-1]
    label = f'{t + 1} · {decision.score:.2f}'
    frame = _make_step_frame(judge, pixels, query, step, label)
    if not is_last:
      caption = f'{frame.caption} ({gates[t + 1]})'
      frame = dataclasses.replace(frame, caption=caption)
    frames.append(frame)
  return frames


def _make_step_frame(
  judge: Judge,
  pixels: np.ndarray,
  query: Query,
  step: failures.Step,
  label: str,
) -> Frame:
  if step.image in query.answers:
    label += ' · answer'
  return Frame(
    pixels[judge.world.index(step.image)],
    step.image,
    _KIND_OF_VERDICT.get(step.verdict, WRONG),
    label,
    _caption(step),
  )


def choose_trajectories(
  pairs: Iterable[tuple[Judge, Sequence[Trajectory]]],
  *,
  right: int,
  wrong: int,
) -> list[tuple[Judge, Trajectory]]:
  """Chooses trajectories to draw, by rule and not by looks.

  The right ones (whole chain in order) are spread evenly over all of them.
  The wrong ones take turns over the kinds of failure and hops, the most
  frequent kind first, each time the next in the order of the queries.

  Args:
    pairs: the judge of each world with the trajectories on it.
    right: how many right ones, or as many as there are.
    wrong: how many failed ones, or as many as there are.

  Returns:
    Right ones first.
  """
  rights = []
  groups: dict[tuple[str, int], list[tuple[Judge, Trajectory]]] = {}
  for judge, trajectories in pairs:
    for trajectory in trajectories:
      query = judge.queries[trajectory.query_id]
      if failures.is_failed(query, trajectory):
        failure = judge.find_failure(trajectory)
        if failure is not None:
          groups.setdefault(failure, []).append((judge, trajectory))
      elif is_chain_exact(query, trajectory):
        rights.append((judge, trajectory))
  count = min(right, len(rights))
  chosen = [rights[i * len(rights) // count] for i in range(count)]
  turns = sorted(groups.values(), key=len, reverse=True)
  longest = max(map(len, turns), default=0)
  in_turn = [g[i] for i in range(longest) for g in turns if i < len(g)]
  return chosen + in_turn[:wrong]


def _make_query_frame(judge: Judge, pixels: np.ndarray, query: Query) -> Frame:
  (start,) = judge.get_record(query.image).objects
  return Frame(
    pixels[judge.world.index(query.image)],
    query.image,
    QUERY,
    'query',
    f'Start: the {failures.describe_object(start)}.',
  )


def _make_distractor_frame(
  judge: Judge,
  pixels: np.ndarray,
  queries: Sequence[Query],
  letters: dict[str, str],
  image: str,
) -> Frame:
  """Labels a distractor by its faults at each hop where it shows the object.

  Where it shows no carried object at all it is only an image of other things.
  """
  notes = []
  verdicts = set()
  for query in queries:
    for hop in range(len(query.chains[0])):
      for prefix in dict.fromkeys(chain[:hop] for chain in query.chains):
        step = judge.judge(query, prefix, image)
        if step.verdict != failures.WRONG_OBJECT:
          verdicts.add(step.verdict)
          notes.append(f'{letters[query.id]} hop {hop + 1}: {step.verdict}')
  caption = judge.describe_image(image)
  label = 'other objects'
  kind = NEUTRAL
  if notes:
    caption += ' ' + '; '.join(dict.fromkeys(notes)) + '.'
    label = 'dead end' if failures.DEAD_END in verdicts else 'distractor'
    kind = DEAD_END if failures.DEAD_END in verdicts else WRONG
  return Frame(pixels[judge.world.index(image)], image, kind, label, caption)


def _caption(step: failures.Step) -> str:
  """Puts the verdict before the reason, where it adds something."""
  if step.verdict in (failures.GOLD, failures.AFTER_ANSWER):
    return step.reason
  verdict = step.verdict
  if verdict == failures.GOLD_LATER:
    verdict = 'gold image'
  return f'{verdict[0].upper()}{verdict[1:]}. {step.reason}'

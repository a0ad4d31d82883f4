"""Says, from the link graph, what was wrong with a wrong selection.

Each selected image gets exactly one *verdict*. Up to the first mistake the
stack is the beginning of a valid chain, so the carried object is known and
the next image is one of:

| verdict             | the image ...                                         |
|---------------------|-------------------------------------------------------|
| gold                | continues a valid chain                               |
| dead end            | fits all that is asked, but no continuation completes |
| wrong relation      | shows the carried object, on the wrong side           |
| wrong colour        | ... on the right side of an object of another colour  |
| relation and colour | ... both of these                                     |
| wrong object        | does not show the carried object                      |
| repeated image      | is the query image or was selected before             |

What is asked depends on the world: the relation from L2 on and the colour
from L3 on, and neither with a vague prompt. After the first mistake there is
no asked object any more: an image is `gold later` if a valid chain has it,
else `off the chain`. What comes after a complete chain is `after the answer`.

A router with gates may take a wrong image and come back, which is no failure.
Its failure is a gold image that it rejected, a budget that ran out, or what is
wrong with the stack it stopped on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any, NamedTuple

from vhop_jax.evaluate.scores import (
  BACKTRACKED,
  BUDGET,
  SELECTED,
  Trajectory,
  is_answer_in_stack,
  is_success,
)
from vhop_jax.worlds import prompt
from vhop_jax.worlds.level import asks_colour, asks_relation
from vhop_jax.worlds.link_graph import LinkGraph
from vhop_jax.worlds.world import ImageRecord, Query, World

GOLD = 'gold'
DEAD_END = 'dead end'
WRONG_OBJECT = 'wrong object'
WRONG_RELATION = 'wrong relation'
WRONG_COLOUR = 'wrong colour'
WRONG_RELATION_AND_COLOUR = 'relation and colour'
REPEATED = 'repeated image'
GOLD_LATER = 'gold later'
OFF_CHAIN = 'off the chain'
AFTER_ANSWER = 'after the answer'
STOPPED_EARLY = 'stopped early'
GOLD_REJECTED = 'gold image rejected'
OUT_OF_BUDGET = 'out of budget'

# What the first mistake of a failed trajectory can be, in the order of the
# tables. The last ones are no selections.
FAILURES = {
  DEAD_END: 'dead end taken',
  WRONG_OBJECT: 'wrong object',
  WRONG_RELATION: 'wrong relation',
  WRONG_COLOUR: 'wrong colour',
  WRONG_RELATION_AND_COLOUR: 'relation and colour wrong',
  REPEATED: 'query image or earlier image again',
  STOPPED_EARLY: 'stopped before the chain was complete',
  AFTER_ANSWER: 'went on after the answer',
  GOLD_REJECTED: 'gold image rejected',
  OUT_OF_BUDGET: 'out of budget',
}
# Those that only a router with gates can make.
GATED_FAILURES = (AFTER_ANSWER, GOLD_REJECTED, OUT_OF_BUDGET)


class Asked(NamedTuple):
  """Is what a prompt asks of one hop; None for what it leaves open."""

  relation: str | None
  colour: str | None


@dataclasses.dataclass(frozen=True)
class Step:
  """Is one selection with what was asked and what it is.

  Attributes:
    image: id of the selected image.
    verdict: see the module's docstring.
    reason: the verdict in words, about the very objects; a whole sentence.
  """

  image: str
  verdict: str
  reason: str


class Judge:
  """Judges selections against the link graph of one world."""

  def __init__(self, world: World):
    self.world = world
    self.graph: LinkGraph = world.link_graph()
    self.queries = {query.id: query for query in world.queries}

  def get_record(self, image: str) -> ImageRecord:
    """Looks an image up by its id."""
    return self.world.images[self.world.index(image)]

  def get_asked(self, query: Query, hop: int) -> Asked:
    """Gives what the prompt asks of a hop, which begins at 0."""
    spec = self.world.spec
    gold = query.hops[hop]
    return Asked(
      gold.relation if asks_relation(spec.level, spec.prompt) else None,
      gold.colour if asks_colour(spec.level, spec.prompt) else None,
    )

  def follow(self, query: Query, prefix: Sequence[str]) -> tuple[str, Any]:
    """Follows the carried object along the beginning of a valid chain.

    Args:
      query: where to begin.
      prefix: the images so far.

    Returns:
      The image the prefix ends at (the query image when it is empty) and the
      object carried from there.
    """
    current = query.image
    (carried,) = self.get_record(current).objects
    for image in prefix:
      (link,) = [
        link
        for link in self.graph.links(current, carried)
        if link.target_id == image
      ]
      current, carried = image, link.other
    return current, carried

  def describe_image(self, image: str) -> str:
    """Names in one sentence what an image shows."""
    objects = self.get_record(image).objects
    names = ' and '.join(describe_object(thing) for thing in objects)
    return f'{names[0].upper()}{names[1:]}.'

  def judge(self, query: Query, prefix: Sequence[str], image: str) -> Step:
    """Judges an image selected after the beginning of a valid chain.

    Args:
      query: whose instruction was followed.
      prefix: the images selected before, the beginning of a valid chain that
        is not complete.
      image: id of the image to judge.

    Returns:
      Exactly one of gold and the seven mistakes.
    """
    current, carried = self.follow(query, prefix)
    hop = len(prefix)
    asked = self.get_asked(query, hop)
    name = describe_object(carried)
    if image == query.image or image in prefix:
      what = 'The query image' if image == query.image else 'An earlier image'
      return Step(image, REPEATED, f'{what} again.')
    links = {
      link.target_id: link for link in self.graph.links(current, carried)
    }
    if image not in links:
      reason = f'Does not show the {name}.'
      if any(o.type == carried.type for o in self.get_record(image).objects):
        reason = f'Shows another {describe_type(carried)}, not this {name}.'
      return Step(image, WRONG_OBJECT, reason)
    link = links[image]
    seen = describe_relation(link.relation, link.other)
    if (*prefix, image) in {chain[: hop + 1] for chain in query.chains}:
      return Step(image, GOLD, f'The {name} stands {seen}.')
    side = asked.relation or link.relation
    colour = asked.colour or link.other.colour
    if side != link.relation and colour != link.other.colour:
      verdict = WRONG_RELATION_AND_COLOUR
      wanted = f'{describe_side(side)} something {colour}'
    elif side != link.relation:
      verdict = WRONG_RELATION
      wanted = describe_side(side)
    elif colour != link.other.colour:
      verdict = WRONG_COLOUR
      wanted = f'something {colour}'
    else:
      fits = f'The {name} stands {seen}'
      if asked.relation is not None:
        fits += ' as asked'
      return Step(image, DEAD_END, f'{fits}, but nothing leads on from there.')
    return Step(image, verdict, f'The {name} stands {seen}; asked: {wanted}.')

  def judge_trajectory(self, trajectory: Trajectory) -> list[Step]:
    """Judges each image of a stack."""
    query = self.queries[trajectory.query_id]
    on_chain = {image for chain in query.chains for image in chain}
    steps: list[Step] = []
    prefix: tuple[str, ...] = ()
    is_wrong = False
    for t, image in enumerate(trajectory.selected):
      if is_wrong and image in (query.image, *trajectory.selected[:t]):
        steps.append(Step(image, REPEATED, 'Seen before.'))
      elif is_wrong and image in on_chain:
        hops = {c.index(image) + 1 for c in query.chains if image in c}
        reason = f'Belongs at hop {min(hops)}; found after a wrong turn.'
        steps.append(Step(image, GOLD_LATER, reason))
      elif is_wrong:
        steps.append(Step(image, OFF_CHAIN, self.describe_image(image)))
      elif prefix in query.chains:
        steps.append(Step(image, AFTER_ANSWER, 'After the answer.'))
      else:
        steps.append(self.judge(query, prefix, image))
        is_wrong = steps[-1].verdict != GOLD
        prefix = (*prefix, image)
    return steps

  def find_failure(self, trajectory: Trajectory) -> tuple[str, int] | None:
    """Finds the first mistake of a trajectory.

    Returns:
      A key of `FAILURES` and the hop, beginning at 1, where it was made; None
      if the stack begins with a whole valid chain, and for a router with gates
      if it succeeded.
    """
    if trajectory.decisions:
      return self._find_gated_failure(trajectory)
    steps = self.judge_trajectory(trajectory)
    for hop, step in enumerate(steps, start=1):
      if step.verdict in FAILURES and step.verdict not in GATED_FAILURES:
        return step.verdict, hop
    prefix = trajectory.selected
    query = self.queries[trajectory.query_id]
    if any(prefix[: len(chain)] == chain for chain in query.chains):
      return None
    return STOPPED_EARLY, len(prefix) + 1

  def _find_gated_failure(
    self, trajectory: Trajectory
  ) -> tuple[str, int] | None:
    """Finds what made a router with gates fail."""
    query = self.queries[trajectory.query_id]
    if is_success(query, trajectory):
      return None
    stack: list[str] = []
    for decision in trajectory.decisions:
      if decision.kind == SELECTED:
        assert decision.image is not None
        stack.append(decision.image)
      elif decision.kind == BACKTRACKED:
        if any(list(c[: len(stack)]) == stack for c in query.chains):
          return GOLD_REJECTED, len(stack)
        stack.pop()
    hops = max(map(len, query.chains))
    common = max(
      sum(stack[: i + 1] == list(chain[: i + 1]) for i in range(len(stack)))
      for chain in query.chains
    )
    if trajectory.ended == BUDGET:
      return OUT_OF_BUDGET, min(common + 1, hops)
    if common == len(stack):
      return STOPPED_EARLY, common + 1
    if tuple(stack[:common]) in query.chains:
      return AFTER_ANSWER, common
    step = self.judge(query, stack[:common], stack[common])
    return step.verdict, common + 1


def is_failed(query: Query, trajectory: Trajectory) -> bool:
  """Tells whether a trajectory failed: see `compute_breakdown`."""
  if trajectory.decisions:
    return not is_success(query, trajectory)
  return not is_answer_in_stack(query, trajectory)


def compute_breakdown(
  pairs: Iterable[tuple[Judge, Sequence[Trajectory]]],
) -> dict[str, Any]:
  """Counts the first mistakes of all failed trajectories.

  A trajectory *fails* when no valid answer is in its stack, so the failures
  are exactly the complement of set success; that of a router with gates when
  it did not stop on a valid answer. One that went wrong and came upon the
  answer later is counted as `recovered`, apart from the failures.

  Args:
    pairs: the judge of each world with the trajectories on it.

  Returns:
    `criterion` (what it means to fail), `queries`, `failed`, `recovered`
    (numbers), `hops` (the largest number of hops) and `counts`: failure -> one
    number a hop; they add up to `failed`.
  """
  counts: Counter[tuple[str, int]] = Counter()
  queries = recovered = hops = 0
  is_gated = False
  for judge, trajectories in pairs:
    for trajectory in trajectories:
      query = judge.queries[trajectory.query_id]
      queries += 1
      hops = max(hops, *map(len, query.chains))
      is_gated |= bool(trajectory.decisions)
      failure = judge.find_failure(trajectory)
      if failure is None:
        continue
      if is_failed(query, trajectory):
        counts[failure] += 1
      else:
        recovered += 1
  return {
    'criterion': 'did not stop on a valid answer'
    if is_gated
    else 'no valid answer in the stack',
    'queries': queries,
    'failed': counts.total(),
    'recovered': recovered,
    'hops': hops,
    'counts': {
      failure: [counts[failure, hop + 1] for hop in range(hops)]
      for failure in FAILURES
      if is_gated or failure not in GATED_FAILURES
    },
  }


def describe_object(thing: Any) -> str:
  """Names an object by its colour and type, e.g. `red piggy bank`."""
  return f'{thing.colour} {describe_type(thing)}'


def describe_type(thing: Any) -> str:
  """Names an object's type in words."""
  return str(thing.type).replace('_', ' ')


def describe_side(relation: str) -> str:
  """Words a relation, e.g. `left of`."""
  return prompt.RELATION_WORDS[relation]


def describe_relation(relation: str, other: Any) -> str:
  """Words where an object stands, e.g. `left of the red piggy bank`."""
  return f'{describe_side(relation)} the {describe_object(other)}'

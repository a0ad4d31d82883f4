"""Scores trajectories and rankings, each with a 95 % interval.

The two queries of a family look at the same objects and the same scenes, so
they are not independent: every interval here is made by one rule that treats
the *family* as the unit.

- Normally a percentile bootstrap over families: families are drawn with
  replacement 2,000 times from a fixed seed, the score is computed on each
  draw, and the 2.5 % and 97.5 % quantiles are the interval.
- When all families have the same mean (0 % or 100 %, say) every draw is the
  same and the bootstrap would claim certainty. Then it is Wilson's interval
  for that share with the number of families as the sample size.

Families of different worlds are different families, also when their numbers
are the same, so worlds are pooled by adding up their families.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Literal, NamedTuple

import numpy as np

from vhop_jax.typing import Bool, Float, Int, ndarray, typed
from vhop_jax.worlds.world import Query, World

BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 0
PAD = -1  # A hop that a query does not have.
RECALL_KS = (1, 2, 5, 10)
Z_95 = 1.959963984540054  # Two-sided 95 % quantile of the normal.

# The order is that of the columns in every table. Success is for those who
# stop by themselves.
METRICS = {
  'success': 'Success',
  'answer_accuracy': 'Answer accuracy',
  'set_success': 'Set success',
  'path_recall': 'Path recall',
  'exact_chain': 'Exact chain',
}

# Which image of the stack is the row's answer.
Answer = Literal['hops', 'last', 'first']
# A family of one world: the world's name and the family's number.
Cluster = tuple[str, int]


class Interval(NamedTuple):
  """Is a mean with its 95 % interval."""

  mean: float
  low: float
  high: float


# How decisions are taken, one number a query; not a share, unless it says so.
COUNTS = {
  'decisions': 'Decisions',
  'backtracks': 'Backtracks',
  'stop_rate': 'Stop rate',
  'out_of_budget': 'Out of budget',
}
COUNT_NUMBERS = ('decisions', 'backtracks')  # Those that are no shares.
STOP, BUDGET = 'stop', 'budget'  # Why a trajectory ended.
SELECTED, BACKTRACKED, STOPPED = 'select', 'backtrack', 'stop'


@dataclasses.dataclass(frozen=True)
class Decision:
  """Is one decision of a router with gates.

  Attributes:
    kind: `select`, `backtrack` or `stop`.
    image: id of the image selected or backtracked; None for `stop`.
    score: cosine of a selected image, else 0.
    p_stop: probability of the stop gate, 0 where stopping was not allowed.
    p_backtrack: of the backtrack gate, likewise.
  """

  kind: str
  image: str | None
  score: float
  p_stop: float
  p_backtrack: float


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """Is what one call of a retriever handed back for one query.

  Attributes:
    query_id: the query's id within its world.
    selected: ids of the images on the stack, in the order of selection. For a
      single-shot retriever: its ranking's first images.
    scores: one selection score an image.
    ended: why it ended, `budget` or `stop`.
    decisions: all that was decided, for a router with gates.
  """

  query_id: str
  selected: tuple[str, ...]
  scores: tuple[float, ...] = ()
  ended: str = BUDGET
  decisions: tuple[Decision, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outcomes:
  """Holds the scores of single queries, of one world or of several.

  Attributes:
    values: metric's name -> one number a query, [B].
    clusters: the family of each query.
  """

  values: dict[str, ndarray]
  clusters: tuple[Cluster, ...]


def answer_image(
  query: Query, trajectory: Trajectory, answer: Answer
) -> str | None:
  """Picks the image that counts as the trajectory's answer.

  Args:
    query: says how many hops are asked.
    trajectory: its stack is looked at.
    answer: `hops`: the image at the position of the prompt's hop count, for
      decoders that take a fixed number of steps and cannot stop (five greedy
      steps on a three-hop query answer with their third image). `last`: the
      stack's last image, for decoders that stop by themselves. `first`: the
      first image, for a single-shot ranking.

  Returns:
    An image id, or None when the stack is too short.
  """
  position = {
    'hops': count_hops(query) - 1,
    'last': len(trajectory.selected) - 1,
    'first': 0,
  }[answer]
  if not 0 <= position < len(trajectory.selected):
    return None
  return trajectory.selected[position]


def count_hops(query: Query) -> int:
  """Counts the hops that the query's prompt asks for."""
  return len(query.chains[0])


def is_answer_correct(
  query: Query, trajectory: Trajectory, answer: Answer
) -> bool:
  """Tells whether the trajectory's answer is a valid one."""
  return answer_image(query, trajectory, answer) in query.answers


def is_success(query: Query, trajectory: Trajectory) -> bool:
  """Tells whether it stopped by itself on a valid answer."""
  return trajectory.ended == STOP and is_answer_correct(
    query, trajectory, 'last'
  )


def is_answer_in_stack(query: Query, trajectory: Trajectory) -> bool:
  """Tells whether a valid answer stands anywhere in the stack."""
  return not set(query.answers).isdisjoint(trajectory.selected)


def compute_path_recall(query: Query, trajectory: Trajectory) -> float:
  """Computes the share of a valid chain that is in the stack.

  The order does not matter; with several valid chains the best one counts.
  """
  selected = set(trajectory.selected)
  return max(
    len(selected.intersection(chain)) / len(chain) for chain in query.chains
  )


def is_chain_exact(query: Query, trajectory: Trajectory) -> bool:
  """Tells whether the stack begins with a whole valid chain, in order.

  What a decoder of a fixed number of steps selects after that is ignored.
  """
  return any(
    trajectory.selected[: len(chain)] == chain for chain in query.chains
  )


def compute_outcomes(
  world: World, trajectories: Sequence[Trajectory], *, answer: Answer
) -> Outcomes:
  """Scores each trajectory of one world.

  Args:
    world: has the queries.
    trajectories: exactly one for each query of the world, in any order.
    answer: see `answer_image`.

  Returns:
    One number a query for each of `METRICS`, in the order of `trajectories`;
    `success` is there for the answer rule `last` alone.

  Raises:
    ValueError: if a query has no trajectory, or more than one.
  """
  queries = {query.id: query for query in world.queries}
  if sorted(queries) != sorted(t.query_id for t in trajectories):
    raise ValueError(
      f'{world.spec.name}: {len(trajectories)} trajectories do not match the'
      f' {len(queries)} queries one to one'
    )
  score: dict[str, Callable[[Query, Trajectory], float]] = {
    'success': is_success,
    'answer_accuracy': lambda q, t: is_answer_correct(q, t, answer),
    'set_success': is_answer_in_stack,
    'path_recall': compute_path_recall,
    'exact_chain': is_chain_exact,
  }
  return Outcomes(
    values={
      name: np.array(
        [score[name](queries[t.query_id], t) for t in trajectories], float
      )
      for name in METRICS
      if name != 'success' or answer == 'last'
    },
    clusters=get_clusters(world, [t.query_id for t in trajectories]),
  )


def compute_counts(
  world: World, trajectories: Sequence[Trajectory]
) -> Outcomes:
  """Counts the decisions of trajectories of one world, see `COUNTS`."""
  count: dict[str, Callable[[Trajectory], float]] = {
    'decisions': lambda t: len(t.decisions),
    'backtracks': lambda t: sum(d.kind == BACKTRACKED for d in t.decisions),
    'stop_rate': lambda t: t.ended == STOP,
    'out_of_budget': lambda t: t.ended != STOP,
  }
  return Outcomes(
    values={
      name: np.array([count[name](t) for t in trajectories], float)
      for name in COUNTS
    },
    clusters=get_clusters(world, [t.query_id for t in trajectories]),
  )


def get_clusters(
  world: World, query_ids: Sequence[str] | None = None
) -> tuple[Cluster, ...]:
  """Gives the family of each query, marked with its world's name.

  Args:
    world: its spec's name must differ from that of the other pooled worlds.
    query_ids: of this world; all of its queries in order when left out.

  Returns:
    One cluster a query.
  """
  families = {query.id: query.family for query in world.queries}
  if query_ids is None:
    query_ids = list(families)
  return tuple((world.spec.name, families[query_id]) for query_id in query_ids)


def pool_outcomes(outcomes: Sequence[Outcomes]) -> Outcomes:
  """Joins the outcomes of several worlds into one.

  Raises:
    ValueError: if two worlds have the same name; their families would be
      taken for the same ones.
  """
  names = [{world for world, _ in o.clusters} for o in outcomes]
  if sum(map(len, names)) != len(set().union(*names)):
    raise ValueError('two of the pooled worlds have the same name')
  return Outcomes(
    values={
      metric: np.concatenate([o.values[metric] for o in outcomes])
      for metric in outcomes[0].values
    },
    clusters=tuple(c for o in outcomes for c in o.clusters),
  )


def compute_metrics(outcomes: Outcomes) -> dict[str, Interval]:
  """Averages the outcomes, each mean with its interval."""
  return {
    metric: compute_interval(
      values, outcomes.clusters, is_share=metric not in COUNT_NUMBERS
    )
    for metric, values in outcomes.values.items()
  }


@typed
def compute_ranks(
  scores: Float[ndarray, 'B N'],
  gold: Int[ndarray, ' B'],
  candidate_mask: Bool[ndarray, 'B N'],
) -> Int[ndarray, ' B']:
  """Ranks the gold image among the candidates.

  Args:
    scores: of each gallery image; higher is better.
    gold: position of the gold image in the gallery.
    candidate_mask: True for images that may be selected; the gold image must
      be one of them.

  Returns:
    Ranks that begin at 1. Another candidate with the very same score counts
    as better, so a model that scores all images alike is ranked last, and
    NaN as better than any number.
  """
  row = np.arange(len(gold))
  if not candidate_mask[row, gold].all():
    raise ValueError('a gold image is not among the candidates')
  gold_scores = scores[row, gold][:, None]
  is_better = ~(scores < gold_scores) & candidate_mask
  is_better[row, gold] = False
  return 1 + is_better.sum(axis=1)


@typed
def compute_recalls(
  ranks: Int[ndarray, 'B hops'],
  clusters: tuple[Cluster, ...],
  *,
  ks: tuple[int, ...] = RECALL_KS,
) -> list[dict[int, Interval]]:
  """Computes recall@k of each hop from teacher-forced rankings.

  Args:
    ranks: rank of the gold image after the gold prefix, beginning at 1; `PAD`
      where a query has fewer hops.
    clusters: the family of each query, see `get_clusters`.
    ks: the numbers of images looked at.

  Returns:
    For each hop: k -> share of queries with a rank of at most k.
  """
  recalls = []
  for rank in ranks.T:
    kept = [c for c, r in zip(clusters, rank, strict=True) if r != PAD]
    present = rank[rank != PAD]
    recalls.append(
      {k: compute_interval((present <= k).astype(float), kept) for k in ks}
    )
  return recalls


def compute_interval(
  values: ndarray, clusters: Sequence[Cluster], *, is_share: bool = True
) -> Interval:
  """Computes a mean with its 95 % interval, families being the unit.

  Args:
    values: one number a query, [B], at least one.
    clusters: the family of each query.
    is_share: the values lie in [0, 1]; only then can Wilson's interval stand
      in where all families agree (else the interval is the mean itself).

  Returns:
    The mean over queries and the interval the module's docstring describes.
  """
  values = np.asarray(values, float)
  if not len(values):
    raise ValueError('no values to average')
  numbers = {cluster: i for i, cluster in enumerate(dict.fromkeys(clusters))}
  index = np.array([numbers[cluster] for cluster in clusters])
  sizes = np.bincount(index)
  sums = np.bincount(index, weights=values)
  mean = float(values.mean())
  if np.ptp(sums / sizes) < 1e-12:
    if not is_share:
      return Interval(mean, mean, mean)
    return compute_wilson_interval(mean, len(sizes))
  rng = np.random.default_rng(BOOTSTRAP_SEED)
  draws = rng.multinomial(
    len(sizes), np.full(len(sizes), 1 / len(sizes)), size=BOOTSTRAP_DRAWS
  )
  means = (draws @ sums) / (draws @ sizes)
  low, high = np.quantile(means, [0.025, 0.975])
  return Interval(mean, float(low), float(high))


def compute_wilson_interval(share: float, count: int) -> Interval:
  """Computes Wilson's 95 % score interval of a share.

      (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)

  Args:
    share: p, in [0, 1].
    count: n, the number of independent trials.

  Returns:
    The share with its interval, which never leaves [0, 1].
  """
  z2_n = Z_95**2 / count
  centre = (share + z2_n / 2) / (1 + z2_n)
  half = (
    Z_95
    * math.sqrt(share * (1 - share) / count + z2_n / (4 * count))
    / (1 + z2_n)
  )
  # Rounding must not push a bound past the share that it belongs to.
  low = max(0.0, min(share, centre - half))
  return Interval(share, low, min(1.0, max(share, centre + half)))

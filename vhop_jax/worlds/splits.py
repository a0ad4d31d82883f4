"""Names the benchmark's worlds and fixes their specs.

A name is a variant's prefix and the label of a kind: `vague_hop2_test_w1`. The
seed depends on the kind alone, and kinds lie far apart, so that a split can
grow without ever meeting another one; all that is drawn depends on the variant
too, so that variants share nothing under the same seed.
"""

from collections.abc import Mapping
import dataclasses
import fnmatch

from vhop_jax import errors
from vhop_jax.worlds import world as world_lib


@dataclasses.dataclass(frozen=True)
class Kind:
  """Holds what the worlds of one kind have in common.

  Attributes:
    label: How they are called; braces stand for a world's number.
    seed: Seed of world 0; the others follow.
    families: Families of each.
    with_chains: Whether gold chains are stored.
  """

  label: str
  seed: int
  families: int = 50
  with_chains: bool = True


@dataclasses.dataclass(frozen=True)
class Variant:
  """Holds what is asked for, and how many worlds ask for it.

  Attributes:
    numbers: Numbers of the worlds of each kind.
    level: Difficulty.
    hops: Links from the query image to the answer.
    prompt: 'precise' or 'vague'.
  """

  numbers: Mapping[str, range]
  level: int = 4
  hops: int = 3
  prompt: str = 'precise'


KINDS = {
  'sft': Kind('sft_{:03d}', seed=10_000, families=150),
  'paper_sft': Kind('paper_sft', seed=19_999, families=500),
  'il': Kind('il_{:03d}', seed=15_000, families=100),
  # The dev world is w0.
  'dev': Kind('dev', seed=20_000),
  'test': Kind('test_w{}', seed=20_000),
  'rl': Kind('rl_{:03d}', seed=30_000, with_chains=False),
}

MEASURED = {'dev': range(1), 'test': range(1, 4)}
MIXED_IN = {'sft': range(5), 'il': range(3), 'rl': range(5), **MEASURED}
MAIN = {'sft': range(10), 'il': range(6), 'rl': range(10), **MEASURED}

VARIANTS = {
  '': Variant({**MAIN, 'paper_sft': range(1)}),
  'l1_': Variant(MEASURED, level=1),
  'l2_': Variant(MEASURED, level=2),
  'l3_': Variant(MEASURED, level=3),
  'hop2_': Variant(MIXED_IN, hops=2),
  'hop4_': Variant(MIXED_IN, hops=4),
  'hop5_': Variant(MEASURED, hops=5),
  'vague_': Variant(MAIN, prompt='vague'),
  'vague_hop2_': Variant(MIXED_IN, hops=2, prompt='vague'),
  'vague_hop4_': Variant(MIXED_IN, hops=4, prompt='vague'),
  'vague_l1_': Variant(MEASURED, level=1, prompt='vague'),
  'vague_l2_': Variant(MEASURED, level=2, prompt='vague'),
  'vague_l3_': Variant(MEASURED, level=3, prompt='vague'),
}


def make_splits(*, resolution: int = 96) -> dict[str, world_lib.Spec]:
  """Returns the spec of each named world.

  Args:
    resolution: image width in pixels.

  Returns:
    Of the main variant (L4, precise, three hops) `sft_000` to `sft_009` for
    training, `il_000` to `il_005` for imitation, `rl_000` to `rl_009` for
    training without gold chains, `dev`,
    `test_w1` to `test_w3` and `paper_sft` (the paper's single training world);
    of the other variants those that `describe_splits` lists.
  """
  return {
    name: world_lib.Spec(
      level=variant.level,
      families=KINDS[kind].families,
      seed=KINDS[kind].seed + number,
      resolution=resolution,
      hops=variant.hops,
      prompt=variant.prompt,
      name=name,
      with_chains=KINDS[kind].with_chains,
    )
    for prefix, variant in VARIANTS.items()
    for kind, numbers in variant.numbers.items()
    for number in numbers
    for name in [prefix + KINDS[kind].label.format(number)]
  }


def choose_splits(
  patterns: str, *, resolution: int = 96
) -> dict[str, world_lib.Spec]:
  """Returns the splits whose names match shell patterns.

  Args:
    patterns: one or several with commas between them, such as 'dev' or
      'hop?_test_*,sft_*'; a world that several match is returned once.
    resolution: image width in pixels.

  Raises:
    UsageError: a pattern matches none.
  """
  splits = make_splits(resolution=resolution)
  chosen: dict[str, world_lib.Spec] = {}
  for pattern in patterns.split(','):
    names = fnmatch.filter(splits, pattern.strip())
    if not names:
      raise errors.UsageError(
        f'no split matches {pattern!r}: there are {describe_splits()}'
      )
    chosen.update({name: splits[name] for name in names})
  return chosen


def describe_splits() -> str:
  """Returns all names in one line, variants of the same kinds together."""
  prefixes: dict[str, list[str]] = {}
  for prefix, variant in VARIANTS.items():
    labels = ', '.join(
      _describe_labels(KINDS[kind].label, numbers)
      for kind, numbers in variant.numbers.items()
    )
    prefixes.setdefault(labels, []).append(prefix)
  return '; '.join(
    f'{" ".join(names)} with {labels}' if names != [''] else labels
    for labels, names in prefixes.items()
  )


def _describe_labels(label: str, numbers: range) -> str:
  """Returns 'sft_000..009' for the labels of ten worlds."""
  first, last = label.format(numbers[0]), label.format(numbers[-1])
  return first if first == last else f'{first}..{last.rpartition("_")[2]}'

"""Names the benchmark's worlds and fixes their specs.

A name is a variant's prefix and the label of a kind: `vague_hop2_test_w1`. The
seed depends on the kind alone, and kinds lie far apart, so that a split can
grow without ever meeting another one; all that is drawn depends on the variant
too, so that variants share nothing under the same seed.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import fnmatch
import re
from typing import TYPE_CHECKING, Any

from vhop_jax import errors
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import world as world_lib

if TYPE_CHECKING:
  from vhop_jax.worlds import builder


@dataclasses.dataclass(frozen=True)
class Kind:
  """Holds what the worlds of one kind have in common.

  Attributes:
    label: How they are called; braces stand for a world's number.
    seed: Seed of world 0; the others follow.
    families: Families of each.
    with_chains: Whether gold chains are stored.
    prints: The half of the logos and words that L6 and L7 may use.
  """

  label: str
  seed: int
  families: int = 50
  with_chains: bool = True
  prints: str = 'train'


@dataclasses.dataclass(frozen=True)
class Variant:
  """Holds in what worlds differ from the main ones, and how many do.

  Attributes:
    numbers: Numbers of the worlds of each kind.
    changes: Fields of `Spec` with other values than those of `MAIN_SPEC` and
      of the kind.
  """

  numbers: Mapping[str, range]
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


KINDS = {
  'sft': Kind('sft_{:03d}', seed=10_000, families=150),
  'paper_sft': Kind('paper_sft', seed=19_999, families=500),
  'il': Kind('il_{:03d}', seed=15_000, families=100),
  # The dev world is w0.
  'dev': Kind('dev', seed=20_000, prints='test'),
  'test': Kind('test_w{}', seed=20_000, prints='test'),
  'rl': Kind('rl_{:03d}', seed=30_000, with_chains=False),
}

MAIN_SPEC = {'level': 4, 'hops': 3, 'prompt': 'precise'}

MEASURED = {'dev': range(1), 'test': range(1, 4)}
MIXED_IN = {'sft': range(5), 'il': range(3), 'rl': range(5), **MEASURED}
L5_IN = {'sft': range(10), 'il': range(6), 'rl': range(10), **MEASURED}
# The cosines that a router is to compare hold in other worlds only if it has
# learned them from many families.
MAIN = {**L5_IN, 'sft': range(30)}
# Half of the logos are enough for 59 families: more and smaller worlds.
PRINTED = {'sft': range(30), 'il': range(12), 'rl': range(10), **MEASURED}

VARIANTS = {
  '': Variant({**MAIN, 'paper_sft': range(1)}),
  'l1_': Variant(MEASURED, dict(level=1)),
  'l2_': Variant(MEASURED, dict(level=2)),
  'l3_': Variant(MEASURED, dict(level=3)),
  'l5_': Variant(L5_IN, dict(level=5)),
  'l6_': Variant(PRINTED, dict(level=6, families=50)),
  'l7_': Variant(PRINTED, dict(level=7, families=50)),
  'hop2_': Variant(MIXED_IN, dict(hops=2)),
  'hop4_': Variant(MIXED_IN, dict(hops=4)),
  'hop5_': Variant(MEASURED, dict(hops=5)),
  'foreground_': Variant(MEASURED, dict(foreground=True)),
  'rephrased_': Variant(MEASURED, dict(wording='rephrased')),
  # Fifty queries over things by artists (`make assets`).
  'realistic_': Variant(
    {'test': range(1, 2)},
    dict(
      families=25,
      pack='household',
      clutter=3,
      variation='strong',
      wording='rephrased',
    ),
  ),
  'vague_': Variant(MAIN, dict(prompt='vague')),
  'vague_hop2_': Variant(MIXED_IN, dict(prompt='vague', hops=2)),
  'vague_hop4_': Variant(MIXED_IN, dict(prompt='vague', hops=4)),
  'vague_l1_': Variant(MEASURED, dict(prompt='vague', level=1)),
  'vague_l2_': Variant(MEASURED, dict(prompt='vague', level=2)),
  'vague_l3_': Variant(MEASURED, dict(prompt='vague', level=3)),
  'vague_rephrased_': Variant(
    MEASURED, dict(prompt='vague', wording='rephrased')
  ),
}

# What is built together, as patterns of names; `mixed` is two to four hops.
GROUPS = {
  'all': '*',
  'main': 'sft_*,il_*,rl_*,dev,test_*',
  'mixed': 'sft_*,il_*,rl_*,dev,test_*,hop2_*,hop4_*',
  'vague_mixed': 'vague_sft_*,vague_il_*,vague_rl_*,vague_dev,vague_test_*,'
  'vague_hop2_*,vague_hop4_*',
  'measured': '*dev,*test_*',
}

# Queries and images of a world by its families [VHOP], of level 4, three hops.
PAPER_COUNTS = {500: ('978', '4,492'), 50: ('91-100', '445-450')}


def make_splits(*, resolution: int = 96) -> dict[str, world_lib.Spec]:
  """Returns the spec of each named world.

  Args:
    resolution: image width in pixels; more where what is printed could not be
      read otherwise.

  Returns:
    Of the main variant (L4, precise, three hops) `sft_000` to `sft_029` for
    training, `il_000` to `il_005` for imitation, `rl_000` to `rl_009` for
    training without gold chains, `dev`,
    `test_w1` to `test_w3` and `paper_sft` (the paper's single training world);
    of the other variants those that `describe_splits` lists.
  """
  splits = {}
  for prefix, variant in VARIANTS.items():
    for kind_name, numbers in variant.numbers.items():
      kind = KINDS[kind_name]
      values = {**MAIN_SPEC, 'families': kind.families, **variant.changes}
      printed = level_lib.find_print(values['level'])
      if printed:
        values['prints'] = kind.prints
      least = level_lib.MIN_RESOLUTIONS[printed] if printed else 0
      for number in numbers:
        name = prefix + kind.label.format(number)
        splits[name] = world_lib.Spec(
          seed=kind.seed + number,
          resolution=max(resolution, least),
          name=name,
          with_chains=kind.with_chains,
          **values,
        )
  return splits


def choose_splits(
  patterns: str, *, resolution: int = 96
) -> dict[str, world_lib.Spec]:
  """Returns the splits whose names match shell patterns.

  Args:
    patterns: one or several with commas or spaces between them, such as 'dev',
      'hop?_test_*,sft_*' or a key of `GROUPS`; a world that several match is
      returned once.
    resolution: image width in pixels.

  Raises:
    UsageError: a pattern matches none.
  """
  splits = make_splits(resolution=resolution)
  chosen: dict[str, world_lib.Spec] = {}
  for word in re.split(r'[\s,]+', patterns.strip(' ,')):
    for pattern in GROUPS.get(word, word).split(','):
      names = fnmatch.filter(splits, pattern)
      if not names:
        raise errors.UsageError(
          f'no split matches {word!r}: there are {describe_splits()}; and the'
          f' groups {", ".join(GROUPS)}'
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
  """Returns 'sft_000..029' for the labels of worlds."""
  first, last = label.format(numbers[0]), label.format(numbers[-1])
  return first if first == last else f'{first}..{last.rpartition("_")[2]}'


def summarize(
  specs: Sequence[world_lib.Spec], results: 'Sequence[builder.BuildResult]'
) -> str:
  """Returns a table of how large worlds are, beside the paper's counts.

  Args:
    specs: of the worlds.
    results: what building each of them gave.
  """
  titles = ('world', 'queries', 'dropped', 'images', 'paper:', 'paper:')
  rows: list[tuple[str, ...]] = [
    titles,
    ('', '', 'by the verifier', '', 'queries', 'images'),
  ]
  for spec, result in zip(specs, results, strict=True):
    paper = ('–', '–')
    if (spec.level, spec.hops) == (4, 3):
      paper = PAPER_COUNTS.get(spec.families, paper)
    counts = (result.queries, result.dropped, result.images)
    rows.append((spec.name, *(f'{count:,}' for count in counts), *paper))
  totals = [
    sum(getattr(result, name) for result in results)
    for name in ('queries', 'dropped', 'images')
  ]
  rows.append(
    (f'{len(specs)} worlds', *(f'{total:,}' for total in totals), '', '')
  )
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if i == 0 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  )

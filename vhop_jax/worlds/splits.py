"""Names the benchmark's worlds and fixes their specs.

Seeds of different splits lie far apart, so that a split can grow without ever
meeting another one.
"""

import fnmatch

from vhop_jax import errors
from vhop_jax.worlds import world as world_lib

SFT_SEED = 10_000
PAPER_SFT_SEED = 19_999
DEV_SEED = 20_000
TEST_SEED = 20_001
SFT_WORLDS = 10
SFT_FAMILIES = 150
PAPER_SFT_FAMILIES = 500
FAMILIES = 50
TEST_WORLDS = 3


def make_splits(*, resolution: int = 96) -> dict[str, world_lib.Spec]:
  """Returns the spec of each named world: all L4, precise, three hops.

  Args:
    resolution: image width in pixels.

  Returns:
    `sft_000` to `sft_009` for training, `paper_sft` (the paper's single
    training world), `dev` (w0), `test_w1` to `test_w3`.
  """
  sizes = {
    f'sft_{i:03d}': (SFT_SEED + i, SFT_FAMILIES) for i in range(SFT_WORLDS)
  }
  sizes['paper_sft'] = (PAPER_SFT_SEED, PAPER_SFT_FAMILIES)
  sizes['dev'] = (DEV_SEED, FAMILIES)
  for i in range(TEST_WORLDS):
    sizes[f'test_w{i + 1}'] = (TEST_SEED + i, FAMILIES)
  return {
    name: world_lib.Spec(
      level=4,
      families=families,
      seed=seed,
      resolution=resolution,
      name=name,
    )
    for name, (seed, families) in sizes.items()
  }


def choose_splits(
  pattern: str, *, resolution: int = 96
) -> dict[str, world_lib.Spec]:
  """Returns the splits whose names match a shell pattern.

  Args:
    pattern: for example 'dev', 'test_*' or 'sft_*'.
    resolution: image width in pixels.

  Raises:
    UsageError: none matches.
  """
  splits = make_splits(resolution=resolution)
  chosen = {
    name: spec
    for name, spec in splits.items()
    if fnmatch.fnmatchcase(name, pattern)
  }
  if not chosen:
    raise errors.UsageError(
      f'no split matches {pattern!r}: the splits are {", ".join(splits)}'
    )
  return chosen

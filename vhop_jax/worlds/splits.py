"""Names the benchmark's worlds and fixes their specs.

Seeds of different splits lie far apart, so that a split can grow without ever
meeting another one.
"""

from vhop_jax.worlds import world as world_lib

SFT_SEED = 10_000
DEV_SEED = 20_000
TEST_SEED = 20_001
FAMILIES = 50
TEST_WORLDS = 3


def make_splits(
  *,
  sft_worlds: int = 60,
  level: int = 4,
  hops: int = 3,
  prompt: str = 'precise',
  resolution: int = 96,
  families: int = FAMILIES,
) -> dict[str, world_lib.Spec]:
  """Returns the spec of each named world.

  Args:
    sft_worlds: how many worlds to train on.
    level: difficulty of all worlds.
    hops: links from query image to answer.
    prompt: 'precise' or 'vague'.
    resolution: image width in pixels.
    families: families of each world.

  Returns:
    `sft_000` and on, `dev` (w0), `test_w1` to `test_w3`.
  """
  seeds = {f'sft_{i:03d}': SFT_SEED + i for i in range(sft_worlds)}
  seeds['dev'] = DEV_SEED
  for i in range(TEST_WORLDS):
    seeds[f'test_w{i + 1}'] = TEST_SEED + i
  return {
    name: world_lib.Spec(
      level=level,
      families=families,
      seed=seed,
      resolution=resolution,
      hops=hops,
      prompt=prompt,
      name=name,
    )
    for name, seed in seeds.items()
  }

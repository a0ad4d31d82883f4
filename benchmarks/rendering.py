"""Measures how many pictures a second one process makes, all in.

A picture is all in when it is sampled, its meshes are made, it is drawn and its
pixels are read back. Every object appears in two pictures, as in a chain. The
rows of the pack `household` need `make assets`.

    python benchmarks/rendering.py [seconds per row]
"""

import sys
import time

import numpy as np

from vhop_jax import errors
from vhop_jax.worlds import geometry, render
from vhop_jax.worlds.arrange import sample_scene
from vhop_jax.worlds.assets import AssetPack

PACKS = ('procedural', 'household')
RESOLUTIONS = (96, 224, 448)
WARM_UP = 20


def compute_rate(pack: AssetPack, resolution: int, secs: float) -> float:
  """Makes pictures for a while and returns how many a second."""
  rng = np.random.default_rng(0)
  with render.Renderer(*render.size_from_resolution(resolution)) as renderer:
    count, start = -WARM_UP, time.perf_counter()
    right = pack.sample_object(rng, uid='0')
    while count <= 0 or time.perf_counter() - start < secs:
      if count == 0:
        start = time.perf_counter()
      left, right = right, pack.sample_object(rng, uid=str(count))
      renderer.render(sample_scene(rng, [left, right]))
      count += 1
    return count / (time.perf_counter() - start)


def main() -> None:
  """Prints a table."""
  secs = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
  print('pack        resolution  images/s  ms a picture')
  for name in PACKS:
    try:
      pack = geometry.get_pack(name)
    except errors.UsageError as error:
      print(f'{name:10s}  left out: {error}')
      continue
    for resolution in RESOLUTIONS:
      rate = compute_rate(pack, resolution, secs)
      print(f'{name:10s}  {resolution:10d}  {rate:8.0f}  {1000 / rate:12.2f}')


if __name__ == '__main__':
  main()

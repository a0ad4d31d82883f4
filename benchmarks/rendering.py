"""Measures how many pictures a second are made, all in.

A picture is all in when it is sampled, its meshes are made, it is drawn and its
pixels are read back. Every object appears in two pictures, as in a chain.

    python benchmarks/rendering.py [seconds per row]
"""

import concurrent.futures
import multiprocessing
import os
import sys
import time

import numpy as np

from vhop_jax.worlds import render
from vhop_jax.worlds.arrange import sample_scene
from vhop_jax.worlds.assets.procedural import PROCEDURAL

RESOLUTIONS = (96, 224)
WARM_UP = 20


def count_images(resolution: int, secs: float, seed: int) -> float:
  """Makes pictures for a while and returns how many a second."""
  rng = np.random.default_rng(seed)
  with render.Renderer(*render.size_from_resolution(resolution)) as renderer:
    count, start = -WARM_UP, time.perf_counter()
    right = PROCEDURAL.sample_object(rng, uid='0')
    while count <= 0 or time.perf_counter() - start < secs:
      if count == 0:
        start = time.perf_counter()
      left, right = right, PROCEDURAL.sample_object(rng, uid=str(count))
      renderer.render(sample_scene(rng, [left, right]))
      count += 1
    return count / (time.perf_counter() - start)


def main() -> None:
  """Prints a table."""
  secs = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
  cores = len(os.sched_getaffinity(0))
  print('resolution  processes  images/s  ms a picture and process')
  for resolution in RESOLUTIONS:
    for processes in sorted({1, cores}):
      with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context('spawn')
      ) as pool:
        rates = list(
          pool.map(
            count_images,
            [resolution] * processes,
            [secs] * processes,
            range(processes),
          )
        )
      print(
        f'{resolution:10d}  {processes:9d}  {sum(rates):8.0f}'
        f'  {1000 * processes / sum(rates):.2f}'
      )


if __name__ == '__main__':
  main()

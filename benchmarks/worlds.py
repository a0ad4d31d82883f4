"""Measures worlds from spec to embeddings: images a second, rendered, encoded.

Built means rendered by all cores, verified and written; encoded means read back
from disk, through the vision tower and embedded.

    python benchmarks/worlds.py [rounds]
"""

import pathlib
import sys
import tempfile
import time

import numpy as np

from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import pretrained
from vhop_jax.worlds import builder, render_pool
from vhop_jax.worlds import world as world_lib

FAMILIES = 50
RESOLUTION = 96


def main() -> None:
  """Prints one line a round and the medians."""
  rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
  model = pretrained.load_embedder('tiny')
  rates = []
  print('round  images  built/s  encoded/s  both/s')
  with (
    tempfile.TemporaryDirectory() as folder,
    render_pool.RenderPool() as pool,
  ):
    # Round 0 starts the workers and compiles.
    for number in range(rounds + 1):
      spec = world_lib.Spec(
        level=4, families=FAMILIES, seed=900 + number, resolution=RESOLUTION
      )
      out = pathlib.Path(folder) / str(number)
      start = time.perf_counter()
      builder.build_world(spec, out, pool=pool, progress=False)
      built = time.perf_counter()
      count = len(gallery_lib.load_gallery(model, out).embeddings)
      done = time.perf_counter()
      if number:
        secs = (built - start, done - built, done - start)
        rates.append([count / s for s in secs])
        row = '  '.join(f'{rate:7.0f}' for rate in rates[-1])
        print(f'{number:5d}  {count:6d}  {row}', flush=True)
  median = '  '.join(f'{rate:7.0f}' for rate in np.median(rates, axis=0))
  print(f'median         {median}')


if __name__ == '__main__':
  main()

"""Builds a world and writes it to disk as TFDS data sets in ArrayRecord.

Everything is written into a folder beside the target and renamed at the end,
so a build that was interrupted leaves nothing that looks whole.
"""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import os
import pathlib
import shutil
import sys
import time
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tqdm import auto as tqdm_lib

import vhop_jax
from vhop_jax import errors
from vhop_jax.worlds import family as family_lib
from vhop_jax.worlds import geometry, render, render_pool, verify
from vhop_jax.worlds import world as world_lib

FAMILIES_PER_PIECE = 8
IMAGES_PER_PIECE = 64
_KEY_BITS = 128  # Of the keys by which TFDS sorts what does not fit in memory.


@dataclasses.dataclass(frozen=True)
class BuildResult:
  """Holds what a build did.

  Attributes:
    folder: where the world lies.
    built: whether it was made now; False if it was there already.
    images: how many images it has.
    queries: how many queries it has.
    dropped: how many queries the verifier refused.
    secs: how long the build took.
  """

  folder: pathlib.Path
  built: bool
  images: int
  queries: int
  dropped: int
  secs: float


class _WorldBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Writes rows that were made elsewhere, in their order."""

  VERSION = tfds.core.Version(world_lib.DATASET_VERSION)
  SPLIT: str
  DESCRIPTION: str

  def __init__(
    self,
    *,
    rows: Iterable[dict[str, Any]],
    count: int,
    size_px: tuple[int, int],
    **kwargs: Any,
  ):
    self._rows, self._count, self._size_px = rows, count, size_px
    super().__init__(file_format='array_record', **kwargs)

  def _make_features(self) -> dict[str, Any]:
    raise NotImplementedError

  def _info(self) -> tfds.core.DatasetInfo:
    # TFDS's other way to make the info looks for files beside this module.
    return tfds.core.DatasetInfo(
      builder=self,
      description=self.DESCRIPTION,
      features=tfds.features.FeaturesDict(self._make_features()),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
    return {self.SPLIT: self._generate_examples()}

  def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, row in enumerate(self._rows):
      # Beyond 1 GB TFDS sorts on disk, in buckets by the key's upper bits.
      yield (i << _KEY_BITS) // self._count, row


class VhopImages(_WorldBuilder, skip_registration=True):
  """Writes the gallery of a world, one image a row."""

  name = world_lib.DATASETS[world_lib.IMAGES_SPLIT]
  SPLIT = world_lib.IMAGES_SPLIT
  DESCRIPTION = 'Rendered scenes of one or two objects, in the order of ids.'

  def _make_features(self) -> dict[str, Any]:
    width_px, height_px = self._size_px
    return {
      'id': tfds.features.Text(),
      'family': np.int64,
      'image': tfds.features.Image(
        shape=(height_px, width_px, 3), encoding_format='png'
      ),
      'objects': tfds.features.Text(),
      'scene': tfds.features.Text(),
    }


class VhopQueries(_WorldBuilder, skip_registration=True):
  """Writes the queries of a world, one a row."""

  name = world_lib.DATASETS[world_lib.QUERIES_SPLIT]
  SPLIT = world_lib.QUERIES_SPLIT
  DESCRIPTION = 'Multi-hop questions over the images of one world.'

  def _make_features(self) -> dict[str, Any]:
    texts = ('id', 'image', 'instruction', 'hops', 'chains', 'answers')
    return {
      'family': np.int64,
      **{name: tfds.features.Text() for name in texts},
    }


def build_world(
  spec: world_lib.Spec,
  out: str | os.PathLike[str],
  *,
  overwrite: bool = False,
  pool: render_pool.RenderPool | None = None,
  progress: bool = True,
) -> BuildResult:
  """Builds a world, unless it is there already.

  Args:
    spec: what to build.
    out: its folder.
    overwrite: whether to replace a world of another spec, or a damaged one.
    pool: workers that outlive this call; None makes them for this call.
    progress: whether to show a bar on stderr.

  Raises:
    UsageError: the folder holds another world or other files.
  """
  started = time.monotonic()
  out = pathlib.Path(out).absolute()
  if spec.pack not in geometry.PACKS:
    raise errors.UsageError(
      f'no asset pack {spec.pack!r}: choose one of {", ".join(geometry.PACKS)}'
    )
  if out.exists() and not _is_replaceable(out):
    # Whatever --overwrite says: these may be anybody's files.
    raise errors.UsageError(
      f'{out} holds other files than a world; choose another --out'
    )
  ready = None if overwrite else _find_ready(spec, out)
  if ready is not None:
    return ready
  for stale in out.parent.glob(f'.{out.name}.building-*'):
    if not _is_in_use(stale):
      shutil.rmtree(stale, ignore_errors=True)
  partial = out.with_name(f'.{out.name}.building-{os.getpid()}')
  try:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
  except OSError as error:
    raise errors.UsageError(
      f'cannot write to {out.parent} ({error.strerror}); choose another --out'
    ) from None
  try:
    with contextlib.ExitStack() as stack:
      if pool is None:
        pool = stack.enter_context(render_pool.RenderPool())
      header = _write(spec, partial, pool, progress)
    if out.exists():
      shutil.rmtree(out)
    partial.rename(out)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  sizes = header['sizes']
  return BuildResult(
    folder=out,
    built=True,
    images=sizes['images'],
    queries=sizes['queries'],
    dropped=len(header['dropped']),
    secs=time.monotonic() - started,
  )


def make_world(
  spec: world_lib.Spec, pool: render_pool.RenderPool, progress: bool = False
) -> world_lib.World:
  """Makes all families and shuffles their images into one gallery."""
  pieces = [
    (spec, start, min(start + FAMILIES_PER_PIECE, spec.families))
    for start in range(0, spec.families, FAMILIES_PER_PIECE)
  ]
  families = []
  with _progress_bar(spec.families, 'families', spec.name, progress) as bar:
    for piece in pool.map(render_pool.make_families, pieces):
      families += piece
      bar.update(len(piece))
  slots = [
    (family.number, slot) for family, scenes in families for slot in scenes
  ]
  rng = family_lib.make_rng(spec, f'all {spec.families}', 'ids')
  order = rng.permutation(len(slots))
  ids = {
    slots[source]: world_lib.format_id(position, len(slots))
    for position, source in enumerate(order)
  }
  images = sorted(
    (
      world_lib.ImageRecord(
        id=ids[family.number, slot],
        family=family.number,
        objects=family.images[slot],
        scene=scene,
      )
      for family, scenes in families
      for slot, scene in scenes.items()
    ),
    key=lambda image: image.id,
  )
  queries = [
    query
    for family, _ in families
    for query in _make_queries(spec, family, ids)
  ]
  return world_lib.World(spec, tuple(images), tuple(queries))


def _make_queries(
  spec: world_lib.Spec,
  family: family_lib.Family,
  ids: dict[tuple[int, str], str],
) -> list[world_lib.Query]:
  """Makes the two queries of a family."""
  chains = [
    tuple(ids[family.number, slot] for slot in route.slots)
    for route in family.routes
  ]
  queries = []
  for i, route in enumerate(family.routes):
    valid = sorted(chains) if spec.prompt == 'vague' else [chains[i]]
    queries.append(
      world_lib.Query(
        id=f'{family.number}_{route.relations[0]}',
        family=family.number,
        image=ids[family.number, route.query],
        instruction=family.instructions[i],
        hops=family.hops[i],
        chains=tuple(valid),
        answers=tuple(sorted({chain[-1] for chain in valid})),
      )
    )
  return queries


def _write(
  spec: world_lib.Spec,
  folder: pathlib.Path,
  pool: render_pool.RenderPool,
  progress: bool,
) -> dict[str, Any]:
  """Makes a world and writes it into a folder; returns its header."""
  world = make_world(spec, pool, progress)
  refused = verify.find_refused_queries(world)
  world = dataclasses.replace(
    world, queries=tuple(q for q in world.queries if q.id not in refused)
  )
  if not world.queries:
    raise RuntimeError(f'the verifier refused all queries: {refused}')
  size_px = render.size_from_resolution(spec.resolution)
  digest = hashlib.sha256()
  renderers: set[str] = set()

  def make_rows() -> Iterator[dict[str, Any]]:
    rows = [image.to_row() for image in world.images]
    pieces = [
      [row['scene'] for row in rows[i : i + IMAGES_PER_PIECE]]
      for i in range(0, len(rows), IMAGES_PER_PIECE)
    ]
    tasks = ((spec.resolution, texts) for texts in pieces)
    i = 0
    with _progress_bar(len(rows), 'images', spec.name, progress) as bar:
      for files, raw, info in pool.map(render_pool.render_pngs, tasks):
        renderers.add(info)
        for file, pixels in zip(files, raw, strict=True):
          digest.update(pixels)
          yield {**rows[i], 'image': file}
          i += 1
        bar.update(len(files))

  query_rows = [query.to_row() for query in world.queries]
  with _quiet_tfds():
    for builder_class, rows, count in (
      (VhopImages, make_rows(), len(world.images)),
      (VhopQueries, query_rows, len(query_rows)),
    ):
      builder_class(
        rows=rows, count=count, size_px=size_px, data_dir=folder
      ).download_and_prepare()
  header = {
    'format_version': world_lib.FORMAT_VERSION,
    'spec': spec.to_json(),
    'seed': spec.seed,
    'packs': [spec.pack],
    'sizes': {
      'images': len(world.images),
      'queries': len(world.queries),
      'families': spec.families,
      'width_px': size_px[0],
      'height_px': size_px[1],
    },
    'dropped': {query: str(why) for query, why in sorted(refused.items())},
    'fingerprint': {
      'content': world_lib.compute_content_fingerprint(
        world.images, world.queries
      ),
      'pixels': digest.hexdigest(),
    },
    'versions': {
      'vhop_jax': vhop_jax.__version__,
      'renderer': sorted(renderers),
      'numpy': np.__version__,
    },
  }
  path = folder / world_lib.HEADER_FILE
  path.write_text(json.dumps(header, indent=2) + '\n')
  return header


def _find_ready(spec: world_lib.Spec, out: pathlib.Path) -> BuildResult | None:
  """Returns the world that is there already, or None if there is none.

  Raises:
    UsageError: something else is there.
  """
  if not (out / world_lib.HEADER_FILE).exists():
    return None
  try:
    header = world_lib.read_header(out)
    found = world_lib.read_spec(header)
  except errors.DataError as error:
    raise errors.UsageError(str(error)) from None
  if dataclasses.replace(found, name='') != dataclasses.replace(spec, name=''):
    raise errors.UsageError(
      f'{out} holds another world ({_describe(found)}); choose another --out,'
      ' or --overwrite'
    )
  sizes = header['sizes']
  return BuildResult(
    folder=out,
    built=False,
    images=sizes['images'],
    queries=sizes['queries'],
    dropped=len(header['dropped']),
    secs=0.0,
  )


def _is_replaceable(out: pathlib.Path) -> bool:
  """Returns whether a path is a world's folder or an empty one."""
  if not out.is_dir():
    return False
  return (out / world_lib.HEADER_FILE).exists() or not any(out.iterdir())


def _describe(spec: world_lib.Spec) -> str:
  """Returns a short text that tells two specs apart."""
  return f'{spec.key}, {spec.families} families, {spec.resolution} px'


def _is_in_use(partial: pathlib.Path) -> bool:
  """Returns whether the process that fills a partial folder still runs."""
  owner = partial.name.rpartition('-')[2]
  if not owner.isdecimal() or int(owner) == os.getpid():
    return False
  try:
    os.kill(int(owner), 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    return True
  return True


def _progress_bar(total: int, unit: str, name: str, enabled: bool) -> Any:
  """Makes a bar on stderr with the rate and the time left."""
  return tqdm_lib.tqdm(
    total=total,
    unit=f' {unit}',
    desc=name,
    disable=not enabled,
    file=sys.stderr,
    dynamic_ncols=True,
    mininterval=0.5,
    leave=unit == 'images',
  )


@contextlib.contextmanager
def _quiet_tfds() -> Iterator[None]:
  """Silences TFDS's bars, log and prints, which tell of its inner steps."""
  logger = logging.getLogger('absl')
  level = logger.level
  tfds.disable_progress_bar()
  logger.setLevel(logging.ERROR)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    logger.setLevel(level)

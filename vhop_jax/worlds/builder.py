"""Builds a world and writes it to disk as TFDS data sets in ArrayRecord.

Everything is written into a folder beside the target and renamed at the end,
so a build that was interrupted leaves nothing that looks whole.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import time
from typing import Any

import numpy as np
from tqdm import auto as tqdm_lib

import vhop_jax
from vhop_jax import errors
from vhop_jax.worlds import family as family_lib
from vhop_jax.worlds import geometry, records, render, render_pool, verify
from vhop_jax.worlds import world as world_lib

FAMILIES_PER_PIECE = 4
# Names the authors of the models that a world shows, where there are any.
ATTRIBUTION_FILE = 'ATTRIBUTION.txt'


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
    UsageError: the folder holds another world or other files, or the asset
      pack is not there.
  """
  started = time.monotonic()
  out = pathlib.Path(out).absolute()
  geometry.get_pack(spec.pack)  # Says early what is missing.
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
  spec: world_lib.Spec, pool: render_pool.RenderPool
) -> world_lib.World:
  """Makes a world without pixels, queries unchecked."""
  made: list[render_pool.MadeFamily] = []
  for pieces, _ in pool.map(
    render_pool.make_families, _make_tasks(spec, rendered=False)
  ):
    made += pieces
  world = _assemble(spec, made, draw_ids(spec))
  return world if spec.with_chains else _drop_chains(world)


def draw_ids(spec: world_lib.Spec) -> dict[tuple[int, str], int]:
  """Draws each image's position in the gallery, a shuffle of the whole world.

  Returns:
    The position by family and slot.
  """
  slots = [
    (family, slot)
    for family in range(spec.families)
    for slot in family_lib.list_slots(spec, family)
  ]
  rng = family_lib.make_rng(spec, f'all {spec.families}', 'ids')
  positions = rng.permutation(len(slots))
  return {
    slot: int(position) for slot, position in zip(slots, positions, strict=True)
  }


def _make_tasks(
  spec: world_lib.Spec, *, rendered: bool
) -> list[tuple[world_lib.Spec, int, int, bool]]:
  """Cuts a world into pieces of a few families."""
  return [
    (spec, start, min(start + FAMILIES_PER_PIECE, spec.families), rendered)
    for start in range(0, spec.families, FAMILIES_PER_PIECE)
  ]


def _make_images(
  made: render_pool.MadeFamily,
  positions: dict[tuple[int, str], int],
) -> dict[str, world_lib.ImageRecord]:
  """Makes the records of a family's images, by slot."""
  number = made.family.number
  return {
    slot: world_lib.ImageRecord(
      id=world_lib.format_id(positions[number, slot], len(positions)),
      family=number,
      objects=made.family.images[slot],
      scene=scene,
    )
    for slot, scene in made.scenes.items()
  }


def _make_queries(
  spec: world_lib.Spec,
  family: family_lib.Family,
  images: dict[str, world_lib.ImageRecord],
) -> list[world_lib.Query]:
  """Makes the two queries of a family."""
  chains = [
    tuple(images[slot].id for slot in route.slots) for route in family.routes
  ]
  queries = []
  for i, route in enumerate(family.routes):
    valid = sorted(chains) if spec.prompt == 'vague' else [chains[i]]
    queries.append(
      world_lib.Query(
        id=f'{family.number}_{route.relations[0]}',
        family=family.number,
        image=images[route.query].id,
        instruction=family.instructions[i],
        hops=family.hops[i],
        chains=tuple(valid),
        answers=tuple(sorted({chain[-1] for chain in valid})),
      )
    )
  return queries


def _assemble(
  spec: world_lib.Spec,
  made: Sequence[render_pool.MadeFamily],
  positions: dict[tuple[int, str], int],
) -> world_lib.World:
  """Puts all families together, with chains whatever the spec says."""
  images: list[world_lib.ImageRecord] = []
  queries: list[world_lib.Query] = []
  for one in made:
    own = _make_images(one, positions)
    images += own.values()
    queries += _make_queries(spec, one.family, own)
  images.sort(key=lambda image: int(image.id))
  # The verifier is to compare the chains, also where none are stored.
  spec = dataclasses.replace(spec, with_chains=True)
  return world_lib.World(spec, tuple(images), tuple(queries))


def _drop_chains(world: world_lib.World) -> world_lib.World:
  """Returns a world without its chains."""
  return dataclasses.replace(
    world,
    spec=dataclasses.replace(world.spec, with_chains=False),
    queries=tuple(dataclasses.replace(q, chains=()) for q in world.queries),
  )


def _write(
  spec: world_lib.Spec,
  folder: pathlib.Path,
  pool: render_pool.RenderPool,
  progress: bool,
) -> dict[str, Any]:
  """Makes a world and writes it into a folder; returns its header."""
  size_px = render.size_from_resolution(spec.resolution)
  positions = draw_ids(spec)
  digests = [b''] * len(positions)
  drivers: set[str] = set()
  finished: list[render_pool.MadeFamily] = []
  # Pictures are made family by family and stored in the order of the ids, so
  # they wait on disk.
  waiting = folder / 'pictures.tmp'
  places = [(0, 0)] * len(positions)
  with (
    waiting.open('wb') as file,
    _make_bar(len(positions), spec.name, progress) as bar,
  ):
    tasks = _make_tasks(spec, rendered=True)
    for pieces, driver in pool.map(render_pool.make_families, tasks):
      drivers.add(driver)
      for made in pieces:
        for slot, picture in made.files.items():
          position = positions[made.family.number, slot]
          digests[position] = made.digests[slot]
          places[position] = (file.tell(), len(picture))
          file.write(picture)
        bar.update(len(made.files))
        finished.append(dataclasses.replace(made, files={}, digests={}))

  world = _assemble(spec, finished, positions)
  refused = verify.find_refused_queries(world)
  world = dataclasses.replace(
    world, queries=tuple(q for q in world.queries if q.id not in refused)
  )
  if not world.queries:
    raise RuntimeError(f'the verifier refused all queries: {refused}')
  if not spec.with_chains:
    world = _drop_chains(world)

  def make_image_rows() -> Iterator[dict[str, Any]]:
    with waiting.open('rb') as file:
      for image, (start, length) in zip(world.images, places, strict=True):
        file.seek(start)
        yield {**image.to_row(), 'image': file.read(length)}

  records.write_rows(
    folder,
    records.IMAGES_SPLIT,
    make_image_rows(),
    count=len(world.images),
    num_bytes=waiting.stat().st_size,
    size_px=size_px,
  )
  waiting.unlink()
  records.write_rows(
    folder,
    records.QUERIES_SPLIT,
    (query.to_row() for query in world.queries),
    count=len(world.queries),
    num_bytes=0,
    size_px=size_px,
  )
  pack = geometry.get_pack(spec.pack)
  credits = pack.attribute(
    {thing for image in world.images for thing in image.objects}
  )
  if credits:
    (folder / ATTRIBUTION_FILE).write_text(credits)
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
      'pixels': world_lib.compute_pixel_fingerprint(digests),
    },
    'versions': {
      'vhop_jax': vhop_jax.__version__,
      'renderer': sorted(drivers),
      'numpy': np.__version__,
      'packs': {pack.name: pack.version},
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
  return (
    f'{spec.key}, {spec.families} families, {spec.resolution} px,'
    f' {"with" if spec.with_chains else "no"} chains'
  )


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


def _make_bar(total: int, name: str, enabled: bool) -> Any:
  """Makes a bar on stderr with the rate and the time left."""
  return tqdm_lib.tqdm(
    total=total,
    unit=' images',
    desc=name,
    disable=not enabled,
    file=sys.stderr,
    dynamic_ncols=True,
    mininterval=0.5,
  )

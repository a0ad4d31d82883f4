"""Spreads the making of families and images over short-lived processes.

A process of the pool lives for some thousand images only, and one that dies
takes no work with it: whatever it had not handed in is given to the next
pool. Results come in the order of the work, with a bounded number of pieces
waiting, so that memory does not grow with the world.
"""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import process
import dataclasses
import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
from typing import Any, TypeVar

from vhop_jax import errors
from vhop_jax.worlds import family as family_lib
from vhop_jax.worlds import world as world_lib

PIECES_PER_GENERATION = 128  # Pieces of work before all workers are renewed.
WAITING_PER_WORKER = 4
MAX_CRASHES = 3

_In = TypeVar('_In')
_Out = TypeVar('_Out')


class RenderPool:
  """Runs functions on workers; many worlds may use it, one after the other.

  Only one `map` may run at a time, since it renews the workers.
  """

  def __init__(self, workers: int | None = None):
    """Starts nothing yet.

    Args:
      workers: processes, or None for one per usable core, or 0 to do the work
        in this process (for tests, and where processes cannot be started).
    """
    if workers is None:
      workers = len(os.sched_getaffinity(0))
    if workers < 0:
      raise errors.UsageError(f'workers={workers}: use 0 or more')
    self.workers = workers
    self._executor: futures.ProcessPoolExecutor | None = None
    self._pieces_left = 0

  def __enter__(self) -> 'RenderPool':
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def close(self) -> None:
    """Stops all workers."""
    if self._executor is not None:
      self._executor.shutdown(wait=True, cancel_futures=True)
      self._executor = None

  def map(
    self, function: Callable[[_In], _Out], pieces: Iterable[_In]
  ) -> Iterator[_Out]:
    """Yields `function(piece)` in the order of the pieces.

    Args:
      function: a module's function, so that another process can find it. It
        must give the same result when a piece is done twice.
      pieces: the work; each should take a good part of a second.

    Raises:
      RuntimeError: workers died `MAX_CRASHES` times over the same piece.
    """
    if self.workers == 0:
      yield from map(function, pieces)
      return
    source = iter(pieces)
    waiting: collections.deque[tuple[_In, futures.Future[_Out]]]
    waiting = collections.deque()
    crashes = 0
    while True:
      try:
        room = self.workers * WAITING_PER_WORKER - len(waiting)
        if self._executor is not None and self._pieces_left <= 0:
          if not waiting:
            self._renew()
          else:
            room = 0  # These workers only finish what they have.
        for piece in itertools.islice(source, room):
          # The piece is kept first: submitting to a dead pool raises.
          waiting.append((piece, futures.Future()))
          waiting[-1] = (piece, self._submit(function, piece))
        if not waiting:
          return
        result = waiting[0][1].result()
      except process.BrokenProcessPool:
        crashes += 1
        if crashes >= MAX_CRASHES:
          self.close()
          raise RuntimeError(
            f'workers died {crashes} times over one piece of work'
          ) from None
        self._renew()
        waiting = collections.deque(
          (piece, self._submit(function, piece)) for piece, _ in waiting
        )
        continue
      waiting.popleft()
      crashes = 0
      yield result

  def _submit(
    self, function: Callable[[_In], _Out], piece: _In
  ) -> 'futures.Future[_Out]':
    """Hands a piece to the workers, which are started when there are none."""
    if self._executor is None:
      self._renew()
    assert self._executor is not None
    self._pieces_left -= 1
    return self._executor.submit(function, piece)

  def _renew(self) -> None:
    """Replaces all workers by fresh ones."""
    self.close()
    # A forked process would share the parent's threads and GL context.
    self._executor = futures.ProcessPoolExecutor(
      self.workers,
      mp_context=multiprocessing.get_context('spawn'),
      initializer=_start_worker,
    )
    self._pieces_left = PIECES_PER_GENERATION


def _start_worker() -> None:
  """Makes a worker end with its parent, and leave Ctrl-C to it."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)

  def watch() -> None:
    # A worker waits for work on a pipe whose other end its siblings hold open
    # too, so it would never notice that its parent was killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
      parent.join()
      os._exit(1)

  threading.Thread(target=watch, daemon=True).start()


@dataclasses.dataclass(frozen=True)
class MadeFamily:
  """Holds one family with its pictures.

  Attributes:
    family: Objects, chains and prompts.
    scenes: The scene's JSON dict by image slot.
    files: The PNG file by image slot; empty if nothing was rendered.
    digests: SHA-256 of the pixels by image slot; empty likewise.
  """

  family: family_lib.Family
  scenes: dict[str, dict[str, Any]]
  files: dict[str, bytes]
  digests: dict[str, bytes]


def make_families(
  task: tuple[world_lib.Spec, int, int, bool],
) -> tuple[list[MadeFamily], str]:
  """Makes families, and renders them with this process's renderer.

  A family's images are rendered together since they share objects, whose
  meshes are kept for a while.

  Args:
    task: the spec, the first family, the one after the last, and whether to
      render.

  Returns:
    The families and the name of the driver that rendered them.
  """
  from vhop_jax.worlds import geometry
  from vhop_jax.worlds import scene as scene_lib

  spec, start, stop, rendered = task
  renderer = get_renderer(spec.resolution) if rendered else None
  results = []
  for number in range(start, stop):
    family = family_lib.make_family(spec, number, geometry.get_pack(spec.pack))
    made = MadeFamily(family, {}, {}, {})
    for slot in family.images:
      values = _make_scene(spec, family, slot).to_json()
      made.scenes[slot] = values
      if renderer is not None:
        # What is drawn is what the JSON says, digits cut off and all.
        pixels = renderer.render(scene_lib.Scene.from_json(values))
        made.files[slot] = world_lib.encode_png(pixels)
        made.digests[slot] = hashlib.sha256(pixels.tobytes()).digest()
    results.append(made)
  return results, _read_driver(renderer) if renderer is not None else ''


def _make_scene(
  spec: world_lib.Spec, family: family_lib.Family, slot: str
) -> Any:
  """Makes the scene of one image, with whatever else stands in it."""
  from vhop_jax.worlds import arrange, extras, geometry

  rng, things_rng, places_rng = (
    family_lib.make_rng(spec, family.number, f'{purpose}/{slot}')
    for purpose in ('scene', 'extras', 'places')
  )
  return extras.sample_scene(
    rng,
    family.images[slot],
    arrange.Style(
      relations=spec.relations,
      variation=spec.variation,
      has_foreground=spec.foreground,
      has_clutter=spec.clutter > 0,
    ),
    places_rng,
    extras.sample_objects(
      things_rng,
      geometry.get_pack(spec.pack),
      uid=f'{spec.key}/f{family.number}/{slot}',
      foreign_to={o for objects in family.images.values() for o in objects},
      foreground=spec.foreground,
      clutter=spec.clutter,
    ),
  )


_renderers: dict[int, Any] = {}


def get_renderer(resolution: int) -> Any:
  """Returns this process's renderer for a resolution."""
  from vhop_jax.worlds import render

  if resolution not in _renderers:
    for renderer in _renderers.values():
      renderer.close()
    _renderers.clear()
    width_px, height_px = render.size_from_resolution(resolution)
    _renderers[resolution] = render.Renderer(width_px, height_px)
  return _renderers[resolution]


def _read_driver(renderer: Any) -> str:
  """Returns the name of the driver that draws, for the world's header."""
  with renderer._context as context:
    return str(context.info['GL_RENDERER'])

"""Holds what the stages that train a router have in common."""

from collections.abc import Callable
import dataclasses
import functools
import glob
import pathlib
from typing import Any

import ml_collections

from vhop_jax import errors
from vhop_jax.data import routes as routes_lib
from vhop_jax.evaluate import routing
from vhop_jax.models import pretrained
from vhop_jax.train import loop, objective, online, sharding
from vhop_jax.train import state as state_lib
from vhop_jax.typing import Params

RESULT_FILE = 'router.safetensors'


@dataclasses.dataclass(frozen=True)
class RouterRun:
  """Holds one training run of a router.

  Attributes:
    config: of the run.
    folder: its workdir.
    model: the router, as it starts.
    worlds: folders of the training worlds.
    routes: of the training worlds.
    dev: the world to measure on.
  """

  config: ml_collections.ConfigDict
  folder: pathlib.Path
  model: pretrained.RouterModel
  worlds: tuple[str, ...]
  routes: routes_lib.RouteSet
  dev: routing.GallerySource

  def make_batches(self) -> Any:
    """Makes the batches of demonstrations."""
    return routes_lib.make_batches(
      self.routes,
      self.model.embedder.maker,
      seed=self.config.seed,
      **self.config.data,
    )

  def make_imitation_loss(self) -> Any:
    """Makes the loss that follows the expert."""
    return objective.make_loss(
      self.model,
      budget=self.config.budget,
      rejection=self.config.rejection,
      **self.config.loss,
    )

  def evaluate(self, params: Params) -> dict[str, float]:
    """Measures parameters on the dev world."""
    return routing.measure(
      self.model.replace_params(params),
      self.dev,
      steps=self.config.evaluate_decisions,
      budget=self.config.budget,
      rejection=self.config.rejection,
    )

  def train_phase(
    self,
    phase: str,
    params: Params,
    batches: state_lib.Batches,
    *,
    loss: Any,
    frozen: tuple[str, ...],
    prepare: Callable[[Params], None] | None = None,
  ) -> Params:
    """Trains all but the frozen parts; returns the parameters.

    Args:
      phase: see `loop.train_phase`.
      params: to start from.
      batches: the data.
      loss: a `Stage.loss`.
      frozen: names of parts.
      prepare: a `Stage.prepare`.
    """
    steps = self.config[f'{phase}_steps']
    names = ', '.join(frozen) or 'nothing'
    print(f'{phase}: {steps} updates, frozen: {names}', flush=True)
    return loop.train_phase(
      phase,
      state_lib.Stage(
        init=state_lib.start_from(
          pretrained.box_params(self.model.module, params)
        ),
        loss=loss,
        batches=batches,
        evaluate=self.evaluate,
        # What adapters stand beside is never trained.
        trainable=lambda path: path[0] not in (*frozen, 'base'),
        prepare=prepare,
      ),
      config=self.config,
      settings={
        **self.config.to_dict(),
        'embedder': self.model.embedder.fingerprint,
        'worlds': list(self.worlds),
      },
      folder=self.folder,
    )

  def train_online(
    self,
    phase: str,
    collect: online.Collect,
    *,
    loss: Any,
    capacity: int,
    collect_every: int,
  ) -> None:
    """Trains all but the gallery side on the router's own rollouts; saves.

    The gallery's embeddings are what the policy was made for.

    Args:
      phase: see `loop.train_phase`.
      collect: see `online.OnlineBatches`.
      loss: a `Stage.loss`.
      capacity: see `online.OnlineBatches`.
      collect_every: likewise.
    """
    batches = online.OnlineBatches(
      self.make_batches(),
      collect,
      seed=self.config.seed,
      capacity=capacity,
      collect_every=collect_every,
    )
    params = self.train_phase(
      phase,
      self.model.params,
      batches,
      loss=loss,
      frozen=('gallery',),
      prepare=batches.prepare,
    )
    self.save(params)

  def save(self, params: Params) -> None:
    """Writes the router to the workdir."""
    path = self.folder / RESULT_FILE
    pretrained.save_router(
      path,
      self.model.replace_params(params),
      training=self.config.to_dict(),
    )
    print(f'wrote the router to {path}')


def load_embedder(config: ml_collections.ConfigDict) -> pretrained.Pretrained:
  """Loads the embedding model that a router is made from, onto its mesh.

  Raises:
    UsageError: a setting of the backbone or of the mesh is out of its range.
    DataError: see `pretrained.load_embedder`.
  """
  mesh = sharding.make_mesh(**config.mesh.to_dict())
  return pretrained.load_embedder(
    config.embedder,
    config.backbone.to_dict(),
    place=functools.partial(sharding.place_boxed, mesh=mesh),
  )


def open_run(
  config: ml_collections.ConfigDict,
  workdir: str,
  model: pretrained.RouterModel,
) -> RouterRun:
  """Reads the worlds of a run.

  Raises:
    DataError: a world is missing, damaged, or trains on what it measures.
  """
  folder = pathlib.Path(workdir)
  patterns = config.worlds.split(',')
  worlds = tuple(
    dict.fromkeys(path for p in patterns for path in sorted(glob.glob(p)))
  )
  if not worlds:
    raise errors.DataError(
      f'no world matches worlds={config.worlds}: build some, or change it'
    )
  dev = routing.load_gallery_source(config.dev, model.embedder)
  for other in worlds:
    routing.check_other_world(other, config.dev)
  routes = routes_lib.load_routes(
    # Runs that lie side by side encode a world once.
    worlds,
    model.embedder,
    cache=folder.parent / 'visual',
    mirror=config.mirror,
    walk_extra_hops=config.walk_extra_hops,
  )
  return RouterRun(
    config=config,
    folder=folder,
    model=model,
    worlds=worlds,
    routes=routes,
    dev=dev,
  )

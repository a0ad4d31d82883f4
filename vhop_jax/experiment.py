"""Runs an experiment: the stages of training one after another, then measures.

A stage that is done is skipped, one that was interrupted goes on.
"""

import json
import pathlib

import ml_collections

from vhop_jax import errors
from vhop_jax.evaluate import main as evaluate
from vhop_jax.models import parameter_file
from vhop_jax.train import imitation, reinforce, router_run, sft

_STAGES = {
  'sft': sft.run,
  'imitation': imitation.run,
  'reinforce': reinforce.run,
}


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains `workdir/STAGE` for each stage and writes the report.

  Raises:
    UsageError: a setting is out of range.
    DataError: a world is missing or damaged, or a stage was trained with
      other settings.
  """
  unknown = set(config.stages) - set(_STAGES)
  if unknown:
    raise errors.UsageError(
      f'stages has {min(unknown)!r}: choose from {", ".join(_STAGES)}'
    )
  folder = pathlib.Path(workdir)
  # What is missing is said before anything is trained.
  measured = _complete_evaluation(config, folder)
  evaluate.find_test_sets(measured.test_sets)
  before = config.router
  for number, stage in enumerate(config.stages, start=1):
    print(f'stage {number}/{len(config.stages)}: {stage}', flush=True)
    result = find_result(config, folder, stage)
    settings = _complete(config, stage, before)
    if stage in config.reuse_stages and not result.exists():
      raise errors.DataError(
        f'{result} is missing, which reuse={config.reuse} should have: run that'
        ' experiment first'
      )
    if stage in config.reuse_stages or _is_done(result, settings):
      print(f'{result} is there already', flush=True)
    else:
      _STAGES[stage](settings, str(folder / stage))
    before = str(result)
  evaluate.run(measured, workdir)


def find_result(
  config: ml_collections.ConfigDict, folder: pathlib.Path, stage: str
) -> pathlib.Path:
  """Returns where a stage's router is, or will be: maybe another run's."""
  name = pathlib.Path(stage) / router_run.RESULT_FILE
  if stage in config.reuse_stages:
    return pathlib.Path(config.reuse) / name
  return folder / name


def _copy_section(
  config: ml_collections.ConfigDict, name: str
) -> ml_collections.ConfigDict:
  """Returns a section with what all sections share, unlocked."""
  settings = ml_collections.ConfigDict(config[name].to_dict())
  settings.seed = config.seed
  settings.embedder = config.embedder
  settings.dev = str(pathlib.Path(config.worlds) / settings.dev)
  return settings


def _complete(
  config: ml_collections.ConfigDict, stage: str, router: str
) -> ml_collections.ConfigDict:
  """Returns a stage's config with what the experiment decides for it."""
  settings = _copy_section(config, stage)
  worlds = pathlib.Path(config.worlds)
  settings.worlds = ','.join(
    str(worlds / pattern) for pattern in settings.worlds.split(',')
  )
  if 'router' in settings:
    settings.router = router
  return settings.lock()


def _complete_evaluation(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> ml_collections.ConfigDict:
  settings = _copy_section(config, 'evaluate')
  worlds = pathlib.Path(config.worlds)
  settings.experiment = config.experiment
  settings.settings = dict(config.settings)
  settings.test_sets = tuple(
    (name, str(worlds / pattern)) for name, pattern in config.test_sets
  )
  results = {s: find_result(config, folder, s) for s in config.stages}
  settings.routers = {s: str(path) for s, path in results.items()}
  settings.training = {s: str(path.parent) for s, path in results.items()}
  return settings.lock()


def _is_done(result: pathlib.Path, settings: ml_collections.ConfigDict) -> bool:
  """Tells whether a router is there that was trained in this way."""
  if not result.exists():
    return False
  _, metadata = parameter_file.load_params(result)
  made: dict[str, object] = metadata.get('training', {})
  # As JSON gives it back: a tuple becomes a list.
  return made == json.loads(json.dumps(settings.to_dict()))

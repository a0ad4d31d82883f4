"""Stage 1: supervised fine-tuning on gold chains or on demonstrations.

Gold chains train the selection alone; demonstrations that take wrong turns
and come back train the gates too.
"""

import dataclasses

import ml_collections

from vhop_jax.models import lora as lora_lib
from vhop_jax.models import pretrained
from vhop_jax.train import router_run

# With the gallery side frozen; then of both sides.
PHASES = ('warmup', 'joint')
# What has nothing to learn from chains that never turn back.
_GATED = ('stop', 'backtrack', 'depth')


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains and writes `workdir/router.safetensors`."""
  embedder = router_run.load_embedder(config)
  model = dataclasses.replace(
    pretrained.make_router(
      embedder,
      inverse_temperature=1 / config.temperature,
      view=config.view,
      gate_input=config.gate_input,
      lora=lora_lib.LoraConfig(**config.lora.to_dict())
      if config.lora.rank
      else None,
    ),
    has_gates=config.loss.gate_weight > 0,
  )
  training = router_run.open_run(config, workdir, model)
  params = model.params
  for phase in PHASES:
    if not config[f'{phase}_steps']:
      continue
    frozen: tuple[str, ...] = ('gallery',) if phase == 'warmup' else ()
    if not model.has_gates:
      frozen += _GATED
    if not (config.loss.absence_weight or config.loss.withdrawn_weight):
      frozen += ('absence',)
    params = training.train_phase(
      phase,
      params,
      training.make_batches(),
      loss=training.make_imitation_loss(),
      frozen=frozen,
    )
  training.save(params)

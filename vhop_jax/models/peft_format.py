"""Reads and writes adapters as PEFT does: two files in a folder.

`adapter_model.safetensors` has two matrices for each product of each layer,
`lora_A` [rank, inputs] and `lora_B` [outputs, rank]; `adapter_config.json` says
rank, alpha, dropout and which products. Settings of PEFT that would change
numbers in another way are refused.
"""

from collections.abc import Mapping
import json
import math
import os
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np
import safetensors
import safetensors.numpy

from vhop_jax import errors, whole_file
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import lora as lora_lib
from vhop_jax.typing import Params

WEIGHTS = 'adapter_model.safetensors'
CONFIG = 'adapter_config.json'
# Around the model's own names: of `Qwen3VLModel`, and of the model with its
# language head, which holds the other as `model`.
_PREFIX = 'base_model.model.'
_HEAD_PREFIX = 'model.'
_LAYERS = 'language_model.layers'
# Our adapters, and PEFT's names of them.
_FACTORS = {lora_lib.A: 'lora_A.weight', lora_lib.B: 'lora_B.weight'}

# What may be anything: read below, or of no effect on the numbers.
_FREE = (
  'auto_mapping',
  'base_model_name_or_path',
  'ensure_weight_tying',
  'inference_mode',
  'init_lora_weights',
  'lora_alpha',
  'lora_dropout',
  'megatron_core',
  'peft_version',
  'qalora_group_size',
  'r',
  'revision',
  'target_modules',
  'task_type',
)
# Ways to draw new adapters that leave the base as it is. PEFT takes the other
# ways' first adapters off the base, whose numbers are then not the model's.
_DRAWS = (True, False, None, 'gaussian', 'orthogonal', 'eva')
# What else must be so, or be left out, for the numbers to be those of `lora`.
# A setting that is not listed must be empty: PEFT adds variants as it goes.
_FIXED: Mapping[str, Any] = {
  'alora_invocation_tokens': None,
  'alpha_pattern': {},
  'arrow_config': None,
  'bias': 'none',
  'corda_config': None,
  'eva_config': None,
  'exclude_modules': None,
  'fan_in_fan_out': False,
  'layer_replication': None,
  'layers_pattern': None,
  'layers_to_transform': None,
  'lora_bias': False,
  'megatron_config': None,
  'modules_to_save': None,
  'peft_type': 'LORA',
  'rank_pattern': {},
  'target_parameters': None,
  'trainable_token_indices': None,
  'use_bdlora': None,
  'use_dora': False,
  'use_qalora': False,
  'use_rslora': False,
}


def save_adapters(
  folder: str | os.PathLike[str],
  adapters: Params,
  config: lora_lib.LoraConfig,
  *,
  base: str = '',
  with_head: bool = False,
) -> pathlib.Path:
  """Writes adapters for `peft.PeftModel.from_pretrained`.

  Args:
    folder: made if need be; the two files in it are replaced.
    adapters: of a decoder, `{'layers': ...}`.
    config: theirs.
    base: where the model is that they belong to.
    with_head: whether they are for the model with its language head.

  Returns:
    The folder.
  """
  folder = pathlib.Path(folder)
  prefix = _PREFIX + (_HEAD_PREFIX if with_head else '') + _LAYERS
  tensors = {}
  flat = traverse_util.flatten_dict(adapters['layers'])
  for (module, factor), x in flat.items():
    for layer, ours in enumerate(np.asarray(jax.device_get(x))):
      rows = config.rank if factor == lora_lib.A else ours.shape[0]
      matrix = (
        ours.reshape(-1, rows)
        if factor == lora_lib.A
        else (ours.reshape(rows, -1))
      )
      name = f'{lora_lib.MODULES[module]}.{_FACTORS[factor]}'
      tensors[f'{prefix}.{layer}.{name}'] = np.ascontiguousarray(matrix.T)
  content = {
    **_FIXED,
    'base_model_name_or_path': base or None,
    'inference_mode': True,
    'init_lora_weights': True,
    'lora_alpha': config.alpha,
    'lora_dropout': config.dropout,
    'r': config.rank,
    # The vision tower has products of other names alone.
    'target_modules': sorted(
      lora_lib.MODULES[m].split('.')[-1] for m in config.modules
    ),
    'task_type': None,
  }
  with whole_file.replace(folder / WEIGHTS) as part:
    safetensors.numpy.save_file(tensors, part, metadata={'format': 'pt'})
  whole_file.write_text(
    folder / CONFIG, json.dumps(content, indent=2, sort_keys=True) + '\n'
  )
  return folder


def load_adapters(
  folder: str | os.PathLike[str], decoder: decoder_lib.DecoderConfig
) -> tuple[Params, lora_lib.LoraConfig]:
  """Reads adapters that PEFT or `save_adapters` wrote.

  Args:
    folder: with the two files.
    decoder: sizes of the model that they belong to.

  Returns:
    The adapters, float32, and their settings.

  Raises:
    DataError: a file is missing or damaged, a setting is not implemented, or
      the adapters are not those of such a decoder.
  """
  folder = pathlib.Path(folder)
  config = _read_config(folder / CONFIG)
  tensors = _read_tensors(folder / WEIGHTS)
  adapters = {}
  for module in config.modules:
    for factor, shape in _find_shapes(module, decoder, config.rank).items():
      layers = []
      for layer in range(decoder.num_layers):
        name = (
          f'{_LAYERS}.{layer}.{lora_lib.MODULES[module]}.{_FACTORS[factor]}'
        )
        if name not in tensors:
          raise errors.DataError(
            f'{folder / WEIGHTS} lacks {name}: is it for another model?'
          )
        theirs = tensors.pop(name).T
        if theirs.size != math.prod(shape):
          raise errors.DataError(
            f'{folder / WEIGHTS}: {name} has {theirs.size} numbers, the model'
            f' needs {list(shape)}: is it for another model?'
          )
        layers.append(theirs.reshape(shape).astype(np.float32))
      adapters[module, factor] = np.stack(layers)
  if tensors:
    raise errors.DataError(
      f'{folder / WEIGHTS} has {len(tensors)} tensors that have no place,'
      f' {min(tensors)} first'
    )
  return {'layers': traverse_util.unflatten_dict(adapters)}, config


def _find_shapes(
  module: str, decoder: decoder_lib.DecoderConfig, rank: int
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of one layer's adapters of a product."""
  width, heads = (decoder.hidden_size,), (decoder.num_heads, decoder.head_dim)
  kv_heads, inner = (
    (decoder.num_kv_heads, decoder.head_dim),
    (decoder.mlp_size,),
  )
  inputs, outputs = {
    'query': (width, heads),
    'key': (width, kv_heads),
    'value': (width, kv_heads),
    'out': (heads, width),
    'gate': (width, inner),
    'up': (width, inner),
    'down': (inner, width),
  }[module]
  return {lora_lib.A: (*inputs, rank), lora_lib.B: (rank, *outputs)}


def _read_config(path: pathlib.Path) -> lora_lib.LoraConfig:
  if not path.is_file():
    raise errors.DataError(f'{path} is missing: give the folder of an adapter')
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
    for name, value in content.items():
      wanted = _FIXED[name] if name in _FIXED else None
      if name not in _FREE and value != wanted and (value or wanted):
        raise errors.DataError(
          f'{path}: {name}={value!r} is not implemented, only {wanted!r}'
        )
    if (draw := content.get('init_lora_weights', True)) not in _DRAWS:
      raise errors.DataError(
        f'{path}: init_lora_weights={draw!r} changes the base: save it by'
        " PEFT's path_initial_model_for_weight_conversion, as plain LoRA"
      )
    targets = content['target_modules']
    by_name = {t.split('.')[-1]: m for m, t in lora_lib.MODULES.items()}
    if isinstance(targets, str) or set(targets) - set(by_name):
      raise errors.DataError(
        f'{path}: target_modules={targets!r} is not implemented, only names of'
        f' {", ".join(by_name)}'
      )
    return lora_lib.LoraConfig(
      rank=content['r'],
      alpha=float(content['lora_alpha']),
      dropout=float(content['lora_dropout']),
      modules=tuple(m for t, m in by_name.items() if t in targets),
    )
  except errors.UsageError as error:
    raise errors.DataError(f'{path}: {error.message}') from error
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.DataError(
      f'{path} is damaged ({error!r}): fetch it anew'
    ) from error


def _read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads the tensors, their names cut down to those of `Qwen3VLModel`."""
  if not path.is_file():
    raise errors.DataError(f'{path} is missing: give the folder of an adapter')
  try:
    found = safetensors.numpy.load_file(path)
  except (safetensors.SafetensorError, OSError, ValueError) as error:
    raise errors.DataError(
      f'{path} is damaged ({error}): fetch it anew'
    ) from error
  return {
    name.removeprefix(_PREFIX).removeprefix(_HEAD_PREFIX): x
    for name, x in found.items()
  }

"""Maps the weights of a Hugging Face Qwen3-VL checkpoint to our parameters.

One table of names for each part; `convert` reads it for a state dict held in
memory.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.traverse_util
import numpy as np

from vhop_jax import errors
from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.typing import Params

Read = Callable[[np.ndarray], np.ndarray]


class Rule(NamedTuple):
  """Says how one of our parameters is made from theirs.

  Attributes:
    name: theirs; `{}` is the number of the layer along our leading axis.
    read: turns their array into ours (for one layer).
  """

  name: str
  read: Read


def _same(x: np.ndarray) -> np.ndarray:
  return x


def _kernel(x: np.ndarray) -> np.ndarray:
  """Turns torch's [out, in] into [in, out]."""
  return x.reshape(x.shape[0], -1).T


def _heads_out(heads: int) -> Read:
  """Splits the outputs of a projection: [heads * h, in] to [in, heads, h]."""
  return lambda x: _kernel(x).reshape(x.shape[1], heads, -1)


def _heads_in(heads: int) -> Read:
  """Splits the inputs of a projection: [out, heads * h] to [heads, h, out]."""
  return lambda x: _kernel(x).reshape(heads, -1, x.shape[0])


def _third(i: int, then: Read) -> Read:
  """Takes query (0), key (1) or value (2) out of a fused projection."""
  return lambda x: then(np.split(x, 3)[i])


def make_decoder_table(
  config: qwen3_vl_lib.Qwen3VLConfig,
) -> dict[str, Rule]:
  """Makes the table of the decoder's parameters, by our path."""
  decoder = config.decoder
  layer = 'language_model.layers.{}.'
  attention = layer + 'self_attn.'
  q, kv = decoder.num_heads, decoder.num_kv_heads
  return {
    'embedding': Rule('language_model.embed_tokens.weight', _same),
    'final_norm/scale': Rule('language_model.norm.weight', _same),
    'layers/attention_norm/scale': Rule(
      layer + 'input_layernorm.weight', _same
    ),
    'layers/query/kernel': Rule(attention + 'q_proj.weight', _heads_out(q)),
    'layers/key/kernel': Rule(attention + 'k_proj.weight', _heads_out(kv)),
    'layers/value/kernel': Rule(attention + 'v_proj.weight', _heads_out(kv)),
    'layers/query_norm/scale': Rule(attention + 'q_norm.weight', _same),
    'layers/key_norm/scale': Rule(attention + 'k_norm.weight', _same),
    'layers/out/kernel': Rule(attention + 'o_proj.weight', _heads_in(q)),
    'layers/mlp_norm/scale': Rule(
      layer + 'post_attention_layernorm.weight', _same
    ),
    'layers/gate/kernel': Rule(layer + 'mlp.gate_proj.weight', _kernel),
    'layers/up/kernel': Rule(layer + 'mlp.up_proj.weight', _kernel),
    'layers/down/kernel': Rule(layer + 'mlp.down_proj.weight', _kernel),
  }


def make_vision_table(config: qwen3_vl_lib.Qwen3VLConfig) -> dict[str, Rule]:
  """Makes the table of the vision tower's parameters, by our path."""
  vision = config.vision
  heads = vision.num_heads
  table = {
    'patch/kernel': Rule('visual.patch_embed.proj.weight', _kernel),
    'patch/bias': Rule('visual.patch_embed.proj.bias', _same),
    'position': Rule('visual.pos_embed.weight', _same),
  }

  def add(
    ours: str,
    theirs: str,
    read: Read = _kernel,
    read_bias: Read = _same,
    weight: str = 'kernel',
  ) -> None:
    table[f'{ours}/{weight}'] = Rule(f'{theirs}.weight', read)
    table[f'{ours}/bias'] = Rule(f'{theirs}.bias', read_bias)

  block = 'visual.blocks.{}.'
  add('layers/attention_norm', block + 'norm1', _same, weight='scale')
  add('layers/mlp_norm', block + 'norm2', _same, weight='scale')
  for i, name in enumerate(('query', 'key', 'value')):
    add(
      f'layers/{name}',
      block + 'attn.qkv',
      _third(i, _heads_out(heads)),
      _third(i, lambda x: x.reshape(heads, -1)),
    )
  add('layers/out', block + 'attn.proj', _heads_in(heads))
  add('layers/up', block + 'mlp.linear_fc1')
  add('layers/down', block + 'mlp.linear_fc2')
  mergers = {'merger': 'visual.merger.'}
  if vision.deepstack_layers:
    mergers['deepstack'] = 'visual.deepstack_merger_list.{}.'
  for ours, theirs in mergers.items():
    add(f'{ours}/norm', theirs + 'norm', _same, weight='scale')
    add(f'{ours}/up', theirs + 'linear_fc1')
    add(f'{ours}/down', theirs + 'linear_fc2')
  return table


def convert(
  state_dict: Mapping[str, Any], config: qwen3_vl_lib.Qwen3VLConfig
) -> Params:
  """Converts a state dict in memory.

  Args:
    state_dict: name to array (anything `np.asarray` takes), with or without
      the prefix `model.`; `lm_head` is not ours and is left out.
    config: the sizes of the checkpoint.

  Returns:
    The parameters of `Qwen3VL`, float32 NumPy arrays: pass them to `apply` as
    `{'params': ...}`.

  Raises:
    DataError: if a weight is missing, or there is one that we do not know.
  """
  weights = {name.removeprefix('model.'): x for name, x in state_dict.items()}
  used = {name for name in weights if name.startswith('lm_head')}

  def read(rule: Rule, *layer: int) -> np.ndarray:
    name = rule.name.format(*layer)
    if name not in weights:
      raise errors.DataError(
        f'the checkpoint lacks {name!r}: do its files and config.json belong '
        'together?'
      )
    used.add(name)
    return rule.read(np.asarray(weights[name], np.float32))

  counts = {
    'decoder/layers': config.decoder.num_layers,
    'vision/layers': config.vision.num_layers,
    'vision/deepstack': len(config.vision.deepstack_layers),
  }
  params = {}
  for part, table in (
    ('decoder', make_decoder_table(config)),
    ('vision', make_vision_table(config)),
  ):
    for path, rule in table.items():
      stacked = counts.get(f'{part}/{path.split("/")[0]}')
      if stacked is None:
        x = read(rule)
      else:
        x = np.stack([read(rule, layer) for layer in range(stacked)])
      params[f'{part}/{path}'] = x
  if unknown := sorted(set(weights) - used):
    raise errors.DataError(
      f'the checkpoint has {len(unknown)} weights that this model does not, '
      f'{unknown[0]!r} first: do its files and config.json belong together?'
    )
  return flax.traverse_util.unflatten_dict(params, sep='/')

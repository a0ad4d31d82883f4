"""Says which tensor of a Hugging Face Qwen3-VL checkpoint is which parameter.

One table for both directions. Theirs are torch's: a weight is [outputs,
inputs], each layer a tensor of its own. Ours are [*inputs, *outputs], the
layers stacked along the leading axis. So a tensor is read and written by a
transposition and a reshape, which change no bit.
"""

from collections.abc import Iterator
import functools
import math
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib

# Of the names in a checkpoint; some leave it out.
PREFIX = 'model.'
HEAD = 'lm_head.weight'
_FUSED = 3  # Query, key and value of the vision tower are one tensor.
# Parts whose parameters have a leading axis of layers.
_STACKED = ('layers', 'deepstack')


class Rule(NamedTuple):
  """Says where one of our parameters is in a checkpoint.

  Attributes:
    name: of their tensor; `{}` is the number of the layer along our leading
      axis.
    inputs: how many of our axes (the layers' not counted) are theirs to sum
      over; 0 where nothing is transposed.
    third: which third of a fused tensor it is; None is all of it.
  """

  name: str
  inputs: int = 0
  third: int | None = None


class Slot(NamedTuple):
  """Is one tensor of a checkpoint's share in one of our parameters.

  Attributes:
    path: of the parameter, e.g. 'decoder/layers/query/kernel'.
    layer: along its leading axis; None where it has no axis of layers.
    shape: of what the slot holds, ours, without the axis of layers.
    rule: how to read it.
  """

  path: str
  layer: int | None
  shape: tuple[int, ...]
  rule: Rule

  def their_shape(self) -> tuple[int, ...]:
    """Returns the shape of their tensor, or of its third; a matrix if it is.

    The bias of a fused tensor is one vector over all heads.
    """
    if not self.rule.inputs:
      is_fused = self.rule.third is not None
      return (math.prod(self.shape),) if is_fused else self.shape
    return (
      math.prod(self.shape[self.rule.inputs :]),
      math.prod(self.shape[: self.rule.inputs]),
    )

  def read(self, tensor: np.ndarray) -> np.ndarray:
    """Turns their tensor into what the slot holds."""
    if self.rule.third is not None:
      tensor = np.split(tensor, _FUSED)[self.rule.third]
    if self.rule.inputs:
      tensor = tensor.reshape(self.their_shape()).T
    return tensor.reshape(self.shape)

  def write(self, x: np.ndarray) -> np.ndarray:
    """Turns what the slot holds into their tensor, or their third of it."""
    if not self.rule.inputs:
      return x.reshape(self.their_shape())
    rows, columns = self.their_shape()
    return np.ascontiguousarray(x.reshape(columns, rows).T)


class Tensor(NamedTuple):
  """Is one tensor of a checkpoint.

  Attributes:
    shape: theirs.
    slots: of our parameters that it holds: one, or three if it is fused.
  """

  shape: tuple[int, ...]
  slots: tuple[Slot, ...]

  def write(self, parts: list[np.ndarray]) -> np.ndarray:
    """Makes the tensor from what its slots hold, in their order."""
    written = [s.write(x) for s, x in zip(self.slots, parts, strict=True)]
    whole = written[0] if len(written) == 1 else np.concatenate(written)
    return whole.reshape(self.shape)


def make_decoder_rules() -> dict[str, Rule]:
  """Makes the rules of the decoder, by our path."""
  layer = 'language_model.layers.{}.'
  attention = layer + 'self_attn.'
  return {
    'embedding': Rule('language_model.embed_tokens.weight'),
    'final_norm/scale': Rule('language_model.norm.weight'),
    'layers/attention_norm/scale': Rule(layer + 'input_layernorm.weight'),
    'layers/query/kernel': Rule(attention + 'q_proj.weight', 1),
    'layers/key/kernel': Rule(attention + 'k_proj.weight', 1),
    'layers/value/kernel': Rule(attention + 'v_proj.weight', 1),
    'layers/query_norm/scale': Rule(attention + 'q_norm.weight'),
    'layers/key_norm/scale': Rule(attention + 'k_norm.weight'),
    'layers/out/kernel': Rule(attention + 'o_proj.weight', 2),
    'layers/mlp_norm/scale': Rule(layer + 'post_attention_layernorm.weight'),
    'layers/gate/kernel': Rule(layer + 'mlp.gate_proj.weight', 1),
    'layers/up/kernel': Rule(layer + 'mlp.up_proj.weight', 1),
    'layers/down/kernel': Rule(layer + 'mlp.down_proj.weight', 1),
  }


def make_vision_rules(config: vision_lib.VisionConfig) -> dict[str, Rule]:
  """Makes the rules of the vision tower, by our path."""
  rules = {'position': Rule('visual.pos_embed.weight')}

  def add(
    ours: str,
    theirs: str,
    inputs: int = 1,
    third: int | None = None,
    weight: str = 'kernel',
  ) -> None:
    rules[f'{ours}/{weight}'] = Rule(f'{theirs}.weight', inputs, third)
    rules[f'{ours}/bias'] = Rule(f'{theirs}.bias', 0, third)

  def add_norm(ours: str, theirs: str) -> None:
    add(ours, theirs, inputs=0, weight='scale')

  block = 'visual.blocks.{}.'
  add('patch', 'visual.patch_embed.proj')
  add_norm('layers/attention_norm', block + 'norm1')
  add_norm('layers/mlp_norm', block + 'norm2')
  for third, name in enumerate(('query', 'key', 'value')):
    add(f'layers/{name}', block + 'attn.qkv', third=third)
  add('layers/out', block + 'attn.proj', inputs=2)
  add('layers/up', block + 'mlp.linear_fc1')
  add('layers/down', block + 'mlp.linear_fc2')
  mergers = {'merger': 'visual.merger.'}
  if config.deepstack_layers:
    mergers['deepstack'] = 'visual.deepstack_merger_list.{}.'
  for ours, theirs in mergers.items():
    add_norm(f'{ours}/norm', theirs + 'norm')
    add(f'{ours}/up', theirs + 'linear_fc1')
    add(f'{ours}/down', theirs + 'linear_fc2')
  return rules


def find_shapes(
  config: qwen3_vl_lib.Qwen3VLConfig, *, with_head: bool
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns our parameters' shapes by path; none of them is made.

  Args:
    config: sizes.
    with_head: whether to name an untied language head, too.
  """
  boxed = find_boxed_shapes(config, with_head=with_head)
  flat: dict[str, jax.ShapeDtypeStruct] = flax.traverse_util.flatten_dict(
    nn.meta.unbox(boxed), sep='/'
  )
  return flat


# Traced once: reading or writing a folder asks several times.
@functools.cache
def find_boxed_shapes(
  config: qwen3_vl_lib.Qwen3VLConfig, *, with_head: bool
) -> dict[str, object]:
  """Returns the tree of our parameters' shapes, boxed with logical axes."""
  model = qwen3_vl_lib.Qwen3VL
  if with_head:
    model = qwen3_vl_lib.Qwen3VLForConditionalGeneration
  module = model(config)
  layout = vision_lib.make_patch_layout(
    np.array([[1, config.vision.merge_size, config.vision.merge_size]]),
    grid_side=config.vision.grid_side,
    merge_size=config.vision.merge_size,
  )
  patches = jnp.zeros((config.vision.merge_size**2, config.vision.patch_dim))

  def run(module: qwen3_vl_lib.Qwen3VL, *args: Any, **kwargs: Any) -> Any:
    hidden, _ = module(*args, **kwargs)
    if isinstance(module, qwen3_vl_lib.Qwen3VLForConditionalGeneration):
      return module.compute_logits(hidden)
    return hidden

  def init(rng: jax.Array) -> dict[str, object]:
    variables = module.init(
      rng,
      jnp.zeros((1, 1), jnp.int32),
      jnp.zeros((3, 1, 1), jnp.int32),
      jnp.ones((1, 1), bool),
      patches=patches,
      layout=layout,
      visual_index=jnp.zeros((1, 1), jnp.int32),
      method=run,
    )
    params: dict[str, object] = variables['params']
    return params

  shapes: dict[str, object] = jax.eval_shape(init, jax.random.key(0))
  return shapes


def make_tensors(
  config: qwen3_vl_lib.Qwen3VLConfig, *, with_head: bool
) -> dict[str, Tensor]:
  """Returns every tensor of a checkpoint by its name, without `PREFIX`.

  Args:
    config: sizes.
    with_head: whether there is a language head of its own.
  """
  shapes = find_shapes(config, with_head=with_head)
  rules = {
    **{f'decoder/{p}': rule for p, rule in make_decoder_rules().items()},
    **{
      f'vision/{p}': rule
      for p, rule in make_vision_rules(config.vision).items()
    },
  }
  if with_head:
    rules['head/kernel'] = Rule(HEAD, 1)
  slots: dict[str, list[Slot]] = {}
  for path, rule in rules.items():
    for name, slot in _list_slots(path, rule, shapes[path].shape):
      slots.setdefault(name, []).append(slot)
  tensors = {}
  for name, several in slots.items():
    rows, *columns = several[0].their_shape()
    tensors[name] = Tensor((len(several) * rows, *columns), tuple(several))
  vision = config.vision
  patch = 'visual.patch_embed.proj.weight'
  tensors[patch] = tensors[patch]._replace(
    shape=(
      vision.hidden_size,
      3,
      vision.temporal_patch_size,
      vision.patch_size,
      vision.patch_size,
    )
  )
  return tensors


def _list_slots(
  path: str, rule: Rule, shape: tuple[int, ...]
) -> Iterator[tuple[str, Slot]]:
  if path.split('/')[1] not in _STACKED:
    yield rule.name, Slot(path, None, shape, rule)
    return
  for layer in range(shape[0]):
    yield rule.name.format(layer), Slot(path, layer, shape[1:], rule)

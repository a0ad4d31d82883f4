"""Measures the backbone: against PyTorch on a CPU, against the chip on a GPU.

On a CPU: the forward pass, and forward and backward together, of one random
Qwen3-VL of about 100 M parameters in float32, on 8 images of 224 px with some
text around each, by this package and by transformers on torch, eager (its
'sdpa' attention) and compiled. Same weights, same inputs, two threads each;
the results are compared before anything is timed, then all ways take turns.

    python benchmarks/backbone.py [--rounds=7] [--no-compile]

On a GPU: a training step of LoRA adapters (rank 32) on the size 2b with random
weights in bfloat16, as a share of the rate at which the chip multiplies
matrices. The step's work is counted as

    2 x P x tokens            forward, P parameters of the layers' products
    2 x P x tokens            backward to the activations; the frozen weights
                              have no gradient
    (2 + 4) x adapters x tokens
    3 x 4 x layers x tokens x S x heads x head_dim / 2    causal attention

and with remat='full' once more the forward pass, which is not counted as work.

    python benchmarks/backbone.py --step [--batch=16] [--length=512]
        [--size=2b] [--remat=dots] [--attention=cudnn]
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vhop_jax.models import convert, hf_config, qwen3_vl
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import positions as positions_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib

IMAGES, SIDE_PX, TEXT_TOKENS = 8, 224, 16
LEARNING_RATE = 1e-4

CONFIG = qwen3_vl.Qwen3VLConfig(
  vision=vision_lib.VisionConfig(
    hidden_size=512,
    num_layers=8,
    num_heads=8,
    mlp_size=2048,
    out_size=768,
    deepstack_layers=(1, 3, 5),
    grid_side=14,
    scan_unroll=8,
  ),
  decoder=decoder_lib.DecoderConfig(
    vocab_size=8192,
    hidden_size=768,
    num_layers=8,
    num_heads=12,
    num_kv_heads=4,
    head_dim=64,
    mlp_size=2048,
    mrope_section=(12, 10, 10),
    scan_unroll=8,
  ),
  image_token_id=8000,
)

Run = Callable[[], Any]


def make_inputs(config: qwen3_vl.Qwen3VLConfig, images: int) -> dict[str, Any]:
  """Returns random images, each in a row between some words."""
  rng = np.random.default_rng(0)
  side = SIDE_PX // config.vision.patch_size
  merged = (side // config.vision.merge_size) ** 2
  tokens = rng.integers(
    1, config.image_token_id, (images, merged + TEXT_TOKENS)
  )
  tokens[:, TEXT_TOKENS // 2 :][:, :merged] = config.image_token_id
  grids = np.array([[1, side, side]] * images)
  patches = rng.standard_normal(
    (images, side * side, config.vision.patch_dim), np.float32
  )
  return {'tokens': tokens, 'grids': grids, 'patches': patches}


def make_ours(
  params: Any, config: qwen3_vl.Qwen3VLConfig, inputs: Mapping[str, Any]
) -> dict[str, Run]:
  """Returns the forward pass and the gradient, both compiled."""
  tokens, grids = inputs['tokens'], inputs['grids']
  mask = np.ones(tokens.shape, bool)
  layouts = [
    vision_lib.make_patch_layout(
      grid[None],
      grid_side=config.vision.grid_side,
      merge_size=config.vision.merge_size,
    )
    for grid in grids
  ]
  batch = {
    'tokens': tokens.astype(np.int32),
    'positions': positions_lib.compute_rope_positions(
      tokens, grids, image_token_id=config.image_token_id
    ),
    'mask': mask,
    'patches': inputs['patches'],
    'layout': jax.tree.map(lambda *x: np.stack(x), *layouts),
    'visual_index': positions_lib.compute_visual_index(
      tokens, image_token_id=config.image_token_id
    ),
  }
  module = qwen3_vl.Qwen3VL(config)

  def embed(params: Any, batch: dict[str, Any]) -> jax.Array:
    hidden, _ = module.apply({'params': params}, **batch)
    pooled: jax.Array = embedder_lib.normalize(hidden[:, -1])
    return pooled

  def loss(params: Any, batch: dict[str, Any]) -> jax.Array:
    return jnp.sum(jnp.sin(embed(params, batch)))

  placed = jax.device_put((params, batch))
  forward, gradient = jax.jit(embed), jax.jit(jax.grad(loss))
  return {
    'forward': lambda: jax.block_until_ready(forward(*placed)),
    'backward': lambda: jax.block_until_ready(gradient(*placed)),
  }


def make_reference(
  config: qwen3_vl.Qwen3VLConfig,
  inputs: Mapping[str, Any],
  *,
  with_compiled: bool,
) -> tuple[dict[str, Any], dict[str, dict[str, Run]]]:
  """Returns the reference's weights, and its ways to compute the same."""
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.manual_seed(0)
  content = hf_config.make(config, 'float32')
  model = transformers.Qwen3VLModel(
    transformers.Qwen3VLConfig(**content, attn_implementation='sdpa')
  )
  model = model.float().eval()
  tokens = torch.tensor(inputs['tokens'])
  arguments = {
    'input_ids': tokens,
    'attention_mask': torch.ones_like(tokens),
    'pixel_values': torch.tensor(inputs['patches']).reshape(
      -1, inputs['patches'].shape[-1]
    ),
    'image_grid_thw': torch.tensor(inputs['grids']),
    'mm_token_type_ids': (tokens == config.image_token_id).int(),
  }

  def make_runs(function: Any) -> dict[str, Run]:
    def embed() -> Any:
      hidden = function(**arguments).last_hidden_state[:, -1]
      return hidden / hidden.norm(dim=-1, keepdim=True)

    def forward() -> Any:
      with torch.no_grad():
        return embed().numpy()

    def backward() -> Any:
      model.zero_grad(set_to_none=True)
      embed().sin().sum().backward()
      return model

    return {'forward': forward, 'backward': backward}

  ways = {'eager': make_runs(model)}
  if with_compiled:
    ways['compiled'] = make_runs(torch.compile(model))
  return model.state_dict(), ways


def compare(
  config: qwen3_vl.Qwen3VLConfig, rounds: int, compiled: bool
) -> None:
  """Times ours and the reference in turns, and prints the ratios."""
  inputs = make_inputs(config, IMAGES)
  weights, ways = make_reference(config, inputs, with_compiled=compiled)
  params = convert.convert(weights, config)
  count = sum(x.size for x in jax.tree.leaves(params))
  ours = make_ours(params, config, inputs)
  print(
    f'{len(os.sched_getaffinity(0))} cores; {count / 1e6:.0f} M parameters,'
    f' {IMAGES} images of {SIDE_PX} px, {inputs["tokens"].shape[1]} tokens'
    f' each, float32; median [lowest, highest] of {rounds} rounds',
    flush=True,
  )
  expected = ways['eager']['forward']()
  difference = float(np.abs(np.asarray(ours['forward']()) - expected).max())
  print(f'largest difference of two embeddings {difference:.1e}', flush=True)
  if not difference < 1e-4:
    raise SystemExit('error: ours and the reference differ: nothing is timed')
  for kind in ('forward', 'backward'):
    runs = {'ours': ours[kind], **{n: way[kind] for n, way in ways.items()}}
    for name in list(runs):
      try:
        runs[name]()  # Compiles, too.
      except Exception as error:
        if name != 'compiled':
          raise
        reason = ' '.join(str(error).split())[:200]
        print(f'torch.compile does not work here: {reason}', flush=True)
        del runs[name]
    secs = measure(runs, rounds)
    title = 'forward' if kind == 'forward' else 'forward + backward'
    for name, values in secs.items():
      print(f'{title}: {name:9s}{show(1000 * values, ".0f")} ms')
    for name in secs:
      if name != 'ours':
        ratio = show(secs['ours'] / secs[name], '.2f')
        print(f'{title}: ours / {name}  {ratio}', flush=True)


def measure(runs: Mapping[str, Run], rounds: int) -> dict[str, np.ndarray]:
  """Times each in turns; returns the seconds of every round."""
  secs: dict[str, list[float]] = {name: [] for name in runs}
  for _ in range(rounds):
    for name, run in runs.items():
      start = time.perf_counter()
      run()
      secs[name].append(time.perf_counter() - start)
  return {name: np.array(values) for name, values in secs.items()}


def show(values: np.ndarray, form: str) -> str:
  """Returns the median and the range."""
  low, middle, high = (
    format(x, form) for x in np.percentile(values, (0, 50, 100))
  )
  return f'{middle} [{low}, {high}]'


def measure_step(
  config: decoder_lib.DecoderConfig, *, batch: int, length: int, rounds: int
) -> None:
  """Times a training step of adapters against plain matrix products."""
  lora = lora_lib.LoraConfig(rank=32, alpha=32.0)
  config = dataclasses.replace(config, lora=lora)
  module = decoder_lib.Decoder(config, jnp.dtype(config.dtype))
  positions = jnp.broadcast_to(
    jnp.arange(length)[None, None], (3, batch, length)
  )
  mask = jnp.ones((batch, length), bool)
  x = 0.02 * jax.random.normal(
    jax.random.key(0), (batch, length, config.hidden_size)
  ).astype(config.dtype)

  def init(rng: jax.Array) -> Any:
    import flax.linen as nn

    made = nn.meta.unbox(module.init(rng, x, positions, mask)['params'])
    base, adapters = lora_lib.split(made)
    return jax.tree.map(lambda p: p.astype(config.dtype), base), adapters

  base, adapters = jax.jit(init)(jax.random.key(1))
  tx = optax.adamw(LEARNING_RATE)
  opt_state = jax.jit(tx.init)(adapters)

  def step(base: Any, adapters: Any, opt_state: Any) -> tuple[Any, Any]:
    def loss(adapters: Any) -> jax.Array:
      joined = lora_lib.join(base, adapters)
      hidden, _ = module.apply({'params': joined}, x, positions, mask)
      pooled = embedder_lib.normalize(hidden[:, -1])
      return jnp.mean((pooled @ pooled.T - jnp.eye(batch)) ** 2)

    updates, opt_state = tx.update(
      jax.grad(loss)(adapters), opt_state, adapters
    )
    return optax.apply_updates(adapters, updates), opt_state

  run_step = jax.jit(step)
  size = 8192 if jax.default_backend() == 'gpu' else 1024
  a = jnp.ones((size, size), config.dtype)
  product = jax.jit(lambda a: a @ a)
  secs = measure(
    {
      'step': lambda: jax.block_until_ready(
        run_step(base, adapters, opt_state)
      ),
      'product': lambda: jax.block_until_ready(product(a)),
    },
    rounds + 1,
  )
  rate = 2 * size**3 / secs['product'][1:]
  work = count_work(config, adapters, base, batch=batch, length=length)
  print(
    f'{jax.devices()[0].device_kind}, {config.dtype}, batch {batch} x {length}'
    f' tokens, remat={config.remat}, attention={config.attention}; median'
    f' [lowest, highest] of {rounds} rounds\n'
    f'product of {size} x {size}  {show(rate / 1e12, ".3g")} TFLOP/s\n'
    f'step  {show(1000 * secs["step"][1:], ".4g")} ms,'
    f' {show(work / secs["step"][1:] / 1e12, ".3g")} TFLOP/s\n'
    f'share of the rate  {show(work / secs["step"][1:] / rate, ".1%")}'
  )


def count_work(
  config: decoder_lib.DecoderConfig,
  adapters: Any,
  base: Any,
  *,
  batch: int,
  length: int,
) -> float:
  """Returns the floating-point operations of a step, see the top."""
  tokens = batch * length
  layers = sum(
    leaf.size
    for path, leaf in jax.tree_util.tree_leaves_with_path(base)
    if path[-1].key == 'kernel'
  )
  small = sum(leaf.size for leaf in jax.tree.leaves(adapters))
  width = config.num_heads * config.head_dim
  attention = 3 * 4 * config.num_layers * tokens * length * width / 2
  return 4.0 * layers * tokens + 6.0 * small * tokens + attention


def main(arguments: Sequence[str] | None = None) -> None:
  """Prints what the command line asks for."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=7)
  parser.add_argument('--no-compile', action='store_true')
  parser.add_argument('--step', action='store_true')
  parser.add_argument('--batch', type=int, default=16)
  parser.add_argument('--length', type=int, default=512)
  parser.add_argument('--size', default='2b', choices=sorted(hf_config.SIZES))
  parser.add_argument('--remat', default='dots')
  parser.add_argument('--attention', default='')
  flags = parser.parse_args(arguments)
  if not flags.step:
    compare(CONFIG, flags.rounds, not flags.no_compile)
    return
  is_gpu = jax.default_backend() == 'gpu'
  measure_step(
    dataclasses.replace(
      hf_config.SIZES[flags.size].decoder,
      dtype='bfloat16' if is_gpu else 'float32',
      remat=flags.remat,
      attention=flags.attention or ('cudnn' if is_gpu else 'matmul'),
    ),
    batch=flags.batch,
    length=flags.length,
    rounds=flags.rounds,
  )


if __name__ == '__main__':
  main()

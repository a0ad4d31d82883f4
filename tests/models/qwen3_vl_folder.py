"""Makes small random Hugging Face folders of Qwen3-VL."""

import dataclasses
import shutil

from flax import traverse_util
import numpy as np

from vhop_jax.models import convert, hf_config, hf_names, tokenizer

CONFIG = dataclasses.replace(
  hf_config.SIZES['tiny'],
  decoder=dataclasses.replace(hf_config.SIZES['tiny'].decoder, vocab_size=320),
)


def make_params(config, *, with_head=False, dtype=np.float32, seed=0):
  """Returns random parameters that are not near any symmetry."""
  rng = np.random.default_rng(seed)
  shapes = hf_names.find_shapes(config, with_head=with_head)
  flat = {}
  for path in sorted(shapes):
    shape = shapes[path].shape
    if path.endswith('scale'):
      x = 1 + 0.1 * rng.normal(size=shape)
    elif path.endswith('kernel'):
      x = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:-1]))
    else:
      x = rng.normal(size=shape)
    flat[path] = x.astype(dtype)
  return traverse_util.unflatten_dict(flat, sep='/')


def save(folder, config=CONFIG, **settings):
  """Writes a folder with the tiny tokenizer; returns its path."""
  convert.save_folder(folder, make_params(config, **settings), config)
  shutil.copyfile(tokenizer.TINY_FILE, folder / 'tokenizer.json')
  return folder

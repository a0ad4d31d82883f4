"""Reads and writes parameters as one small safetensors file."""

from collections.abc import Mapping
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from flax import traverse_util
import flax.linen as nn
import jax
import numpy as np
import safetensors
import safetensors.numpy

from vhop_jax import errors, whole_file
from vhop_jax.typing import Params


def save_params(
  path: str | os.PathLike[str], params: Params, metadata: Mapping[str, Any]
) -> None:
  """Writes parameters as one safetensors file, whole or not at all.

  Args:
    path: the file, e.g. 'tiny.safetensors'.
    params: nested dict of arrays, boxed or not; the dtypes are kept.
    metadata: what JSON can hold, e.g. the model's config and fingerprint.
  """
  arrays = {
    # Not `ascontiguousarray`, which gives a scalar an axis.
    name: np.asarray(jax.device_get(leaf), order='C')
    for name, leaf in traverse_util.flatten_dict(
      nn.meta.unbox(params), sep='/'
    ).items()
  }
  with whole_file.replace(Path(path)) as part:
    safetensors.numpy.save_file(
      arrays, part, metadata={'json': json.dumps(metadata, sort_keys=True)}
    )


def load_params(path: str | os.PathLike[str]) -> tuple[Params, dict[str, Any]]:
  """Reads a file that `save_params` wrote.

  Args:
    path: the file.

  Returns:
    The parameters as NumPy arrays, and the metadata.

  Raises:
    DataError: the file is missing or damaged.
  """
  path = Path(path)
  if not path.is_file():
    raise errors.DataError(f'{path} is missing: give the path of a checkpoint')
  try:
    with safetensors.safe_open(path, framework='numpy') as file:
      metadata = json.loads(file.metadata()['json'])
      arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
  except (
    safetensors.SafetensorError,
    OSError,
    KeyError,
    TypeError,
    ValueError,
  ) as error:
    raise errors.DataError(
      f'{path} is damaged or no parameter file ({error}): fetch or make it anew'
    ) from error
  return traverse_util.unflatten_dict(arrays, sep='/'), metadata


def check_shapes(
  params: Params, wanted: Params, path: str | os.PathLike[str]
) -> None:
  """Compares names and shapes.

  Args:
    params: nested dict of arrays.
    wanted: nested dict of arrays or shapes, boxed or not.
    path: where the parameters come from, for the message.

  Raises:
    DataError: the first name that is missing, extra or misshapen.
  """
  trees = [
    traverse_util.flatten_dict(nn.meta.unbox(tree), sep='/')
    for tree in (params, wanted)
  ]
  for name in sorted(trees[0].keys() | trees[1].keys()):
    shapes = [
      list(tree[name].shape) if name in tree else 'none' for tree in trees
    ]
    if shapes[0] != shapes[1]:
      raise errors.DataError(
        f'{path} is of another model size: {name} has shape {shapes[0]} there'
        f' and {shapes[1]} in the config; use the config of the checkpoint'
      )


def compute_fingerprint(params: Params, metadata: Mapping[str, Any]) -> str:
  """Returns a SHA-256 over names, values and what is said about them."""
  digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
  flat = traverse_util.flatten_dict(nn.meta.unbox(params), sep='/')
  for name in sorted(flat):
    digest.update(name.encode())
    digest.update(np.ascontiguousarray(jax.device_get(flat[name])).tobytes())
  return digest.hexdigest()

"""Places parameters and batches on the devices' mesh."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

from vhop_jax import errors
from vhop_jax.typing import Params

MESH_AXES = ('data', 'fsdp', 'tensor')
BATCH_AXES = ('data', 'fsdp')
REST = -1

# Where each logical axis of a parameter lies. An axis that is not named here,
# or whose length the devices do not divide, is replicated.
LOGICAL_AXIS_RULES: Mapping[str, str | None] = {
  'embed': 'fsdp',
  'heads': 'tensor',
  'kv_heads': 'tensor',
  'mlp': 'tensor',
  'vocab': 'tensor',
  'head_dim': None,
  'layers': None,
}


def compute_mesh_sizes(
  num_devices: int, *, data: int, fsdp: int, tensor: int
) -> tuple[int, ...]:
  """Returns the sizes of the mesh's axes, -1 replaced by what is left.

  Args:
    num_devices: how many there are.
    data: see `make_mesh`.
    fsdp: likewise.
    tensor: likewise.

  Raises:
    UsageError: the sizes do not fit the number of devices.
  """
  sizes = [data, fsdp, tensor]
  shown = dict(zip(MESH_AXES, sizes, strict=True))
  if sizes.count(REST) > 1 or any(s < 1 and s != REST for s in sizes):
    raise errors.UsageError(
      f'mesh {shown}: sizes are at least 1, and one of them may be -1'
    )
  if REST in sizes:
    rest, left_over = divmod(num_devices, -math.prod(sizes))
    if left_over:
      raise errors.UsageError(
        f'mesh {shown} does not divide {num_devices} devices: change a size'
      )
    sizes[sizes.index(REST)] = rest
  num_used = math.prod(sizes)
  if num_used > num_devices:
    raise errors.UsageError(
      f'mesh {shown} needs {num_used} devices, here are {num_devices}: '
      'make it smaller, or set one size to -1'
    )
  return tuple(sizes)


def make_mesh(*, data: int, fsdp: int, tensor: int) -> Mesh:
  """Arranges the devices; one size may be -1, for all devices that are left.

  Args:
    data: copies of the model, each with its own part of the batch.
    fsdp: parts that parameters are cut into and gathered from when needed;
      each has its own part of the batch.
    tensor: parts that heads, MLPs and the vocabulary are cut into.

  Returns:
    A mesh with the axes `data`, `fsdp`, `tensor`.

  Raises:
    UsageError: the sizes do not fit the number of devices.
  """
  sizes = compute_mesh_sizes(
    jax.device_count(), data=data, fsdp=fsdp, tensor=tensor
  )
  return jax.make_mesh(
    sizes,
    MESH_AXES,
    axis_types=(jax.sharding.AxisType.Auto,) * len(MESH_AXES),
    devices=jax.devices()[: math.prod(sizes)],
  )


def compute_logical_axes(boxed_params: Params) -> Params:
  """Returns a tree of tuples: the logical axis of each dimension, or None."""

  def get_axes(leaf: Any) -> tuple[str | None, ...]:
    if isinstance(leaf, nn.Partitioned):
      return tuple(leaf.get_partition_spec())
    return (None,) * np.ndim(leaf)

  return jax.tree.map(
    get_axes,
    boxed_params,
    is_leaf=lambda leaf: isinstance(leaf, nn.Partitioned),
  )


def make_param_shardings(
  params: Params, logical_axes: Params, mesh: Mesh | jax.sharding.AbstractMesh
) -> Params:
  """Returns a `NamedSharding` for each parameter, by the table of rules.

  Args:
    params: tree of arrays or of shapes, unboxed.
    logical_axes: from `compute_logical_axes`.
    mesh: from `make_mesh`, or one without devices.
  """

  def make_sharding(leaf: Any, axes: Sequence[str | None]) -> NamedSharding:
    spec: list[str | None] = []
    for size, axis in zip(leaf.shape, axes, strict=True):
      mesh_axis = LOGICAL_AXIS_RULES.get(axis) if axis else None
      # A mesh axis can cut only one dimension: the first that names it.
      if mesh_axis in spec or (mesh_axis and size % mesh.shape[mesh_axis]):
        mesh_axis = None
      spec.append(mesh_axis)
    return NamedSharding(mesh, PartitionSpec(*spec))

  return jax.tree.map(make_sharding, params, logical_axes)


def place_boxed(
  boxed_params: Params, mesh: Mesh | jax.sharding.AbstractMesh
) -> Params:
  """Returns a `NamedSharding` for each of some boxed parameters or shapes."""
  return make_param_shardings(
    nn.meta.unbox(boxed_params), compute_logical_axes(boxed_params), mesh
  )


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of an array that every device holds whole."""
  return NamedSharding(mesh, PartitionSpec())


def find_replicated(batch: Mapping[str, Any], mesh: Mesh) -> list[str]:
  """Returns the names whose leading axis the devices do not divide."""
  num_shards = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
  return [
    name
    for name, array in batch.items()
    if np.ndim(array) == 0 or np.shape(array)[0] % num_shards
  ]


def put_batch(batch: Mapping[str, Any], mesh: Mesh) -> dict[str, jax.Array]:
  """Cuts a batch by its leading axis over the devices.

  An array that does not divide is put on each device whole: the result of a
  computation is the same, only slower.
  """
  whole = find_replicated(batch, mesh)
  cut = NamedSharding(mesh, PartitionSpec(BATCH_AXES))
  return {
    name: jax.make_array_from_process_local_data(
      replicated(mesh) if name in whole else cut, np.asarray(array)
    )
    for name, array in batch.items()
  }

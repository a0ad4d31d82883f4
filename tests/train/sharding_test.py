import flax.linen as nn
import jax
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.train import sharding


@pytest.mark.parametrize(
  ('sizes', 'shape'),
  [
    ((8, 1, 1), (8, 1, 1)),
    ((-1, 2, 1), (4, 2, 1)),
    ((1, 2, -1), (1, 2, 4)),
    ((1, 1, 1), (1, 1, 1)),
    ((3, 1, 1), (3, 1, 1)),
  ],
)
def test_mesh_has_the_asked_shape(sizes, shape):
  data, fsdp, tensor = sizes
  mesh = sharding.make_mesh(data=data, fsdp=fsdp, tensor=tensor)
  assert tuple(mesh.shape.values()) == shape
  assert mesh.axis_names == ('data', 'fsdp', 'tensor')


@pytest.mark.parametrize(
  'sizes', [(-1, -1, 1), (0, 1, 1), (-1, 3, 1), (16, 1, 1), (-2, 1, 1)]
)
def test_impossible_mesh_is_a_usage_error(sizes):
  data, fsdp, tensor = sizes
  with pytest.raises(errors.UsageError, match='mesh'):
    sharding.make_mesh(data=data, fsdp=fsdp, tensor=tensor)


def test_rules_place_parameters():
  def box(shape, *axes):
    return nn.LogicallyPartitioned(np.zeros(shape), axes)

  boxed = {
    'query': box((3, 8, 4, 5), 'layers', 'embed', 'heads', 'head_dim'),
    'few_heads': box((8, 2, 5), 'embed', 'kv_heads', 'head_dim'),
    'embed_twice': box((8, 8), 'embed', 'embed'),
    'unknown': box((8,), 'nobody'),
    'plain': np.zeros((4, 8)),
  }
  axes = sharding.compute_logical_axes(boxed)
  params = nn.meta.unbox(boxed)
  mesh = sharding.make_mesh(data=1, fsdp=2, tensor=4)
  specs = jax.tree.map(
    lambda placed: placed.spec,
    sharding.make_param_shardings(params, axes, mesh),
  )
  assert specs == {
    'query': PartitionSpec(None, 'fsdp', 'tensor', None),
    # Two heads cannot be cut in four.
    'few_heads': PartitionSpec('fsdp', None, None),
    'embed_twice': PartitionSpec('fsdp', None),
    'unknown': PartitionSpec(None),
    'plain': PartitionSpec(None, None),
  }


def test_batch_is_cut_over_data_and_fsdp():
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  batch = {
    'cut': np.arange(24.0).reshape(8, 3),
    'odd': np.arange(6.0),
    'scalar': np.float32(3),
  }
  placed = sharding.put_batch(batch, mesh)
  shard_shapes = {
    name: {s.data.shape for s in array.addressable_shards}
    for name, array in placed.items()
  }
  assert shard_shapes == {'cut': {(2, 3)}, 'odd': {(6,)}, 'scalar': {()}}
  assert sharding.find_replicated(batch, mesh) == ['odd', 'scalar']
  for name, array in placed.items():
    np.testing.assert_array_equal(array, batch[name])

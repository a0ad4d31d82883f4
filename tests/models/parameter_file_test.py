import flax.linen as nn
import ml_dtypes
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.models import parameter_file


def make_params():
  return {
    'tower': {'kernel': np.arange(6, dtype=np.float32).reshape(2, 3)},
    'tau': np.asarray(0.5, ml_dtypes.bfloat16),
  }


def test_what_is_written_is_read(tmp_path):
  path = tmp_path / 'new' / 'a.safetensors'
  boxed = make_params()
  boxed['tower']['kernel'] = nn.LogicallyPartitioned(
    boxed['tower']['kernel'], ('embed', 'mlp')
  )
  parameter_file.save_params(path, boxed, {'model': {'width': 3}})
  params, metadata = parameter_file.load_params(path)
  assert metadata == {'model': {'width': 3}}
  kernel = params['tower']['kernel']
  np.testing.assert_array_equal(kernel, make_params()['tower']['kernel'])
  assert params['tau'].dtype == ml_dtypes.bfloat16
  assert [p.name for p in path.parent.iterdir()] == ['a.safetensors']


def test_missing_and_damaged_files_are_named(tmp_path):
  path = tmp_path / 'a.safetensors'
  with pytest.raises(errors.DataError, match=r'a\.safetensors is missing'):
    parameter_file.load_params(path)
  parameter_file.save_params(path, make_params(), {})
  whole = path.read_bytes()
  for content in (whole[:-3], whole[:20], b'', b'x' * 100):
    path.write_bytes(content)
    with pytest.raises(errors.DataError, match='damaged'):
      parameter_file.load_params(path)


@pytest.mark.parametrize(
  ('name', 'shape'), [('kernel', (2, 4)), ('bias', (3,))]
)
def test_another_model_size_is_explained_by_its_first_shape(name, shape):
  wanted = make_params()
  wanted['tower'][name] = np.zeros(shape)
  with pytest.raises(errors.DataError, match=f'tower/{name}') as info:
    parameter_file.check_shapes(make_params(), wanted, 'a.safetensors')
  assert str(list(shape)) in str(info.value)
  parameter_file.check_shapes(make_params(), make_params(), 'a.safetensors')


def test_fingerprint_notices_value_name_and_settings():
  params, other, renamed = make_params(), make_params(), make_params()
  other['tower']['kernel'][0, 0] += 1
  renamed['t'] = renamed.pop('tau')
  prints = {
    parameter_file.compute_fingerprint(params, {'tail': 'a'}),
    parameter_file.compute_fingerprint(params, {'tail': 'b'}),
    parameter_file.compute_fingerprint(other, {'tail': 'a'}),
    parameter_file.compute_fingerprint(renamed, {'tail': 'a'}),
  }
  assert len(prints) == 4
  assert parameter_file.compute_fingerprint(params, {'tail': 'a'}) in prints

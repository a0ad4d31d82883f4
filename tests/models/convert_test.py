"""Tests folders of weights: what is read is what was written, or an error."""

import dataclasses
import json
import shutil
import subprocess
import sys

from flax import traverse_util
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests import command
from tests.models.qwen3_vl_folder import make_params
from vhop_jax import errors
from vhop_jax.models import convert, hf_config, hf_names
from vhop_jax.train import sharding

CONFIG = dataclasses.replace(
  hf_config.SIZES['tiny'],
  decoder=dataclasses.replace(hf_config.SIZES['tiny'].decoder, vocab_size=96),
  image_token_id=90,
)
UNTIED = dataclasses.replace(CONFIG, tie_word_embeddings=False)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Returns a folder of several files; nothing may be written into it."""
  out = tmp_path_factory.mktemp('hf') / 'model'
  return convert.save_folder(
    out, make_params(CONFIG), CONFIG, max_shard_bytes=100_000
  )


def assert_same(a, b):
  a, b = (traverse_util.flatten_dict(tree, sep='/') for tree in (a, b))
  assert a.keys() == b.keys()
  for path in a:
    assert a[path].dtype == b[path].dtype, path
    # Bit for bit, so that NaN would do too.
    assert np.asarray(a[path]).tobytes() == np.asarray(b[path]).tobytes(), path


@pytest.mark.parametrize('dtype', [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(('config', 'head'), [(CONFIG, False), (UNTIED, True)])
def test_round_trip_is_bit_exact(tmp_path, dtype, config, head):
  params = make_params(config, with_head=head, dtype=dtype)
  convert.save_folder(tmp_path / 'a', params, config, max_shard_bytes=50_000)
  assert convert.read_config(tmp_path / 'a') == config
  assert_same(convert.load_params(tmp_path / 'a'), params)
  convert.save_folder(tmp_path / 'b', params, config)
  assert [p.name for p in sorted((tmp_path / 'b').iterdir())] == [
    'config.json',
    'model.safetensors',
  ]
  assert_same(convert.load_params(tmp_path / 'b'), params)


def test_no_file_exceeds_the_limit_and_all_are_in_the_index(folder):
  index = json.loads((folder / 'model.safetensors.index.json').read_text())
  files = sorted(folder.glob('*.safetensors'))
  assert len(files) > 3
  total = 0
  for path in files:
    tensors = safetensors.numpy.load_file(path)
    size = sum(x.nbytes for x in tensors.values())
    assert size <= 100_000 or len(tensors) == 1
    total += size
    assert {index['weight_map'][name] for name in tensors} == {path.name}
  assert index['metadata']['total_size'] == total


def test_parameters_may_change_their_dtype(folder):
  params = convert.load_params(folder, dtype=jnp.bfloat16)
  expected = jax.tree.map(
    lambda x: x.astype(ml_dtypes.bfloat16), make_params(CONFIG)
  )
  assert_same(params, expected)


def test_parameters_go_straight_to_their_devices(folder, tmp_path):
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  boxed = hf_names.find_boxed_shapes(CONFIG, with_head=False)
  axes = sharding.compute_logical_axes(boxed)
  shapes = traverse_util.unflatten_dict(
    hf_names.find_shapes(CONFIG, with_head=False), sep='/'
  )
  shardings = traverse_util.flatten_dict(
    sharding.make_param_shardings(shapes, axes, mesh), sep='/'
  )
  params = convert.load_params(folder, shardings=shardings)
  query = params['decoder']['layers']['query']['kernel']
  # [layers, embed, heads, head_dim]: embed over fsdp, heads over tensor.
  assert query.shape == (2, 64, 4, 16)
  assert {s.data.shape for s in query.addressable_shards} == {(2, 32, 2, 16)}
  expected = make_params(CONFIG)
  assert_same(jax.device_get(params), expected)
  convert.save_folder(tmp_path / 'again', params, CONFIG)
  assert_same(convert.load_params(tmp_path / 'again'), expected)


# What the process grows by while it loads, in bytes, and what it then holds.
MEASURE = """
import resource, sys
import jax, jax.numpy as jnp
from vhop_jax.models import convert

def measure():
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

convert.open_checkpoint(sys.argv[1])  # Imports and traces what is needed.
jnp.zeros(3).block_until_ready()
before = measure()
params = jax.block_until_ready(convert.load_params(sys.argv[1]))
print(measure() - before, sum(x.nbytes for x in jax.tree.leaves(params)))
"""


def test_host_holds_little_beside_what_is_placed(tmp_path):
  """Counts all memory of a process, mapped files included."""
  wide = dataclasses.replace(
    CONFIG,
    decoder=dataclasses.replace(CONFIG.decoder, num_layers=24, mlp_size=16_384),
  )
  params = traverse_util.unflatten_dict(
    {
      path: np.zeros(shape.shape, shape.dtype)
      for path, shape in hf_names.find_shapes(wide, with_head=False).items()
    },
    sep='/',
  )
  folder = convert.save_folder(
    tmp_path / 'wide', params, wide, max_shard_bytes=140_000_000
  )
  largest = max(f.stat().st_size for f in folder.glob('*.safetensors'))
  run = subprocess.run(
    [sys.executable, '-c', MEASURE, str(folder)],
    capture_output=True,
    text=True,
    check=True,
  )
  grown, placed = map(int, run.stdout.split())
  assert placed > 300_000_000
  assert grown < 1.3 * largest + placed


def break_file(folder, change):
  """Changes the tensors of the folder's first file."""
  path = min(folder.glob('*.safetensors'))
  tensors = safetensors.numpy.load_file(path)
  change(tensors)
  safetensors.numpy.save_file(tensors, path, metadata={'format': 'pt'})


def test_every_wrong_tensor_has_a_line(folder, tmp_path):
  broken = tmp_path / 'broken'
  shutil.copytree(folder, broken)
  names = []

  def change(tensors):
    first, second, *_ = sorted(tensors)
    names.extend((first, second))
    del tensors[first]
    tensors[second] = tensors[second][:1]
    tensors['model.visual.extra'] = np.zeros(3, np.float32)

  break_file(broken, change)
  with pytest.raises(errors.DataError, match='3 tensors are not') as caught:
    convert.load_params(broken)
  first, second = (name.removeprefix('model.') for name in names)
  assert sorted(line.split(' [')[0] for line in caught.value.details) == [
    f'misshapen: {second}',
    f'missing: {first}',
    'unknown: visual.extra',
  ]


@pytest.mark.parametrize(
  ('damage', 'words'),
  [
    (lambda path: path.write_bytes(path.read_bytes()[:-9]), 'is damaged'),
    (lambda path: path.write_bytes(b''), 'is damaged'),
    (lambda path: path.unlink(), 'lacks model-00001'),
    (
      lambda path: (path.parent / 'model.safetensors.index.json').unlink(),
      'neither model.safetensors nor',
    ),
    (
      lambda path: (path.parent / 'model.safetensors.index.json').write_text(
        '{}'
      ),
      'index.json is damaged',
    ),
    (lambda path: (path.parent / 'config.json').unlink(), 'no config.json'),
  ],
)
def test_damaged_folders_are_refused(folder, tmp_path, damage, words):
  broken = tmp_path / 'broken'
  shutil.copytree(folder, broken)
  damage(min(broken.glob('*.safetensors')))
  with pytest.raises(errors.DataError, match=words):
    convert.load_params(broken)


UP = 'model.language_model.layers.0.mlp.up_proj.weight'
NORM = 'language_model.norm.weight'


@pytest.mark.parametrize(
  ('name', 'dtype', 'line'),
  [
    (UP, np.int8, 'of dtype I8: language_model.layers.0.mlp.up_proj.weight'),
    (NORM, np.float32, f'repeated: {NORM} in model.safetensors'),
  ],
)
def test_tensors_that_are_quantised_or_twice_are_refused(
  tmp_path, name, dtype, line
):
  out = convert.save_folder(tmp_path / 'a', make_params(CONFIG), CONFIG)
  shape = {UP: (96, 64), NORM: (64,)}[name]
  break_file(out, lambda t: t.update({name: np.zeros(shape, dtype)}))
  with pytest.raises(errors.DataError, match='1 tensors') as caught:
    convert.load_params(out)
  (found,) = caught.value.details
  assert found.startswith(line)


def test_dtypes_that_differ_lose_no_bit(tmp_path):
  params = make_params(CONFIG)
  decoder = params['decoder']
  decoder['embedding'] = decoder['embedding'].astype(ml_dtypes.bfloat16)
  out = convert.save_folder(tmp_path / 'a', params, CONFIG)
  assert_same(convert.load_params(out), params)
  # Its first layer is narrower than the second, which must not be rounded.
  break_file(out, lambda t: t.update({UP: t[UP].astype(ml_dtypes.bfloat16)}))
  kernel = convert.load_params(out)['decoder']['layers']['up']['kernel']
  np.testing.assert_array_equal(kernel[1], decoder['layers']['up']['kernel'][1])


def test_one_file_goes_before_an_index(folder, tmp_path):
  both = tmp_path / 'both'
  shutil.copytree(folder, both)
  params = make_params(CONFIG, seed=1)
  other = convert.save_folder(tmp_path / 'other', params, CONFIG)
  shutil.copyfile(other / 'model.safetensors', both / 'model.safetensors')
  assert_same(convert.load_params(both), params)


def test_source_of_another_size_is_refused(folder, tmp_path):
  other = dataclasses.replace(CONFIG, image_token_id=91)
  with pytest.raises(errors.DataError, match='another size'):
    convert.save_folder(
      tmp_path / 'out', make_params(CONFIG), other, source=folder
    )
  assert not list(tmp_path.iterdir())


def test_failed_writing_leaves_nothing_and_harms_nothing(tmp_path, monkeypatch):
  (tmp_path / 'out.part').mkdir()

  def fail(*args, **kwargs):
    raise OSError('disk full')

  monkeypatch.setattr(safetensors.numpy, 'save_file', fail)
  with pytest.raises(errors.DataError, match='disk full'):
    convert.save_folder(tmp_path / 'out', make_params(CONFIG), CONFIG)
  assert [path.name for path in tmp_path.iterdir()] == ['out.part']


def test_no_file_stays_mapped_while_others_are_read(folder, monkeypatch):
  opened = []

  class File:
    def __init__(self, *args, **kwargs):
      self.file = safe_open(*args, **kwargs)

    def __enter__(self):
      opened.append(self)
      assert len(opened) == 1
      return self.file.__enter__()

    def __exit__(self, *args):
      opened.remove(self)
      return self.file.__exit__(*args)

  safe_open = safetensors.safe_open
  monkeypatch.setattr(safetensors, 'safe_open', File)
  assert_same(convert.load_params(folder), make_params(CONFIG))


def test_repeated_table_of_a_tied_model_is_left_out(folder, tmp_path):
  repeated = tmp_path / 'repeated'
  shutil.copytree(folder, repeated)
  break_file(repeated, lambda t: t.update({'lm_head.weight': np.zeros((1, 1))}))
  assert_same(convert.load_params(repeated), make_params(CONFIG))


def test_folder_that_is_there_is_not_touched(folder):
  before = sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir())
  with pytest.raises(errors.UsageError, match='exists'):
    convert.save_folder(folder, make_params(CONFIG), CONFIG)
  after = sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir())
  assert after == before


def test_parameters_of_another_size_are_not_written(tmp_path):
  other = dataclasses.replace(
    CONFIG, decoder=dataclasses.replace(CONFIG.decoder, vocab_size=97)
  )
  with pytest.raises(errors.DataError, match=r'decoder/embedding has shape'):
    convert.save_folder(tmp_path / 'out', make_params(CONFIG), other)
  assert not list(tmp_path.iterdir())


def test_state_dict_in_memory_is_the_same(folder):
  weights = {}
  for path in folder.glob('*.safetensors'):
    weights |= safetensors.numpy.load_file(path)
  assert_same(convert.convert(weights, CONFIG), convert.load_params(folder))
  weights['visual.extra'] = np.zeros(1)
  with pytest.raises(errors.DataError, match='unknown: visual.extra'):
    convert.convert(weights, CONFIG)


def test_command_writes_another_dtype_and_takes_the_tokenizer_along(
  folder, tmp_path, capsys
):
  source = tmp_path / 'source'
  shutil.copytree(folder, source)
  (source / 'tokenizer.json').write_text('{"a": 1}')
  (source / 'notes.txt').write_text('not for others')
  out = tmp_path / 'out'
  arguments = ['convert', source, f'--out={out}', '--dtype=bfloat16']
  code, printed, _ = command.run_vhop(capsys, *arguments)
  assert code == 0
  count = sum(x.size for x in jax.tree.leaves(make_params(CONFIG)))
  assert f'wrote {count:,} parameters (bfloat16' in printed
  assert sorted(p.name for p in out.iterdir()) == [
    'config.json',
    'model.safetensors',
    'tokenizer.json',
  ]
  assert (out / 'tokenizer.json').read_text() == '{"a": 1}'
  assert json.loads((out / 'config.json').read_text())['dtype'] == 'bfloat16'
  assert_same(
    convert.load_params(out), convert.load_params(folder, dtype=jnp.bfloat16)
  )
  code, _, error = command.run_vhop(capsys, *arguments)
  assert (code, 'exists' in error) == (2, True)
  code, _, error = command.run_vhop(
    capsys, 'convert', source, '--out=x', '--dtype=int8'
  )
  assert (code, 'choose float32' in error) == (2, True)
  code, _, error = command.run_vhop(
    capsys, 'convert', source, '--out=x', '--max-shard-gb=nan'
  )
  assert (code, 'max_shard_bytes=nan' in error) == (2, True)

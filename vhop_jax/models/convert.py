"""Reads and writes local Hugging Face folders of Qwen3-VL models.

A folder holds config.json, the weights as one or several safetensors files,
and the files of the tokenizer and of the image processor. The weights are
read tensor by tensor, straight to where they belong on the devices' mesh.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any
import uuid

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
import tqdm

from vhop_jax import errors, whole_file
from vhop_jax.models import hf_config, hf_names, parameter_file, peft_format
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import qwen3_vl as qwen3_vl_lib
from vhop_jax.typing import Params

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
# As safetensors names them, and NumPy by way of ml_dtypes.
DTYPES = ('float32', 'bfloat16', 'float16')
MAX_SHARD_BYTES = 5 * 10**9
# What safetensors calls the dtypes of weights that need no scale beside them.
_DTYPES_BY_CODE = {
  'BF16': jnp.dtype(jnp.bfloat16),
  'F16': jnp.dtype(jnp.float16),
  'F32': jnp.dtype(jnp.float32),
}
# What goes along with the weights, where a folder has it.
COMPANIONS = (
  'added_tokens.json',
  'chat_template.jinja',
  'chat_template.json',
  'generation_config.json',
  'merges.txt',
  'preprocessor_config.json',
  'processor_config.json',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'video_preprocessor_config.json',
  'vocab.json',
)
_FORMAT = {'format': 'pt'}  # transformers wants to read this.

# Returns the sharding of a parameter from its path and shape; None places
# everything on the default device.
Shardings = Mapping[str, jax.sharding.Sharding] | None


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """Is a folder whose files were looked at, but not yet read.

  Attributes:
    folder: where it is.
    config: sizes.
    files: by the name of a tensor (as in `hf_names`) its name in the file and
      the file.
    dtypes: likewise, of the tensors.
    has_head: whether there is a language head of its own.
  """

  folder: pathlib.Path
  config: qwen3_vl_lib.Qwen3VLConfig
  files: Mapping[str, tuple[str, pathlib.Path]]
  dtypes: Mapping[str, np.dtype]
  has_head: bool


def read_config(
  folder: str | os.PathLike[str],
) -> qwen3_vl_lib.Qwen3VLConfig:
  """Reads the sizes of the model in a folder.

  Raises:
    DataError: config.json is missing, damaged, or asks for what is not
      implemented.
  """
  return hf_config.parse(hf_config.read(folder))


def open_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
  """Compares what a folder's files hold with what its config.json says.

  Reads the headers alone.

  Raises:
    DataError: files are missing or damaged, or tensors are missing, unknown,
      repeated, no plain floats or of another shape; the message has a line for
      each.
  """
  folder = pathlib.Path(folder)
  config = read_config(folder)
  found: dict[str, tuple[str, pathlib.Path]] = {}
  shapes: dict[str, tuple[int, ...]] = {}
  dtypes: dict[str, np.dtype] = {}
  wrong = []
  for path in _list_files(folder):
    with _open(path) as file:
      for name in file.keys():  # noqa: SIM118
        short = name.removeprefix(hf_names.PREFIX)
        if config.tie_word_embeddings and short == hf_names.HEAD:
          continue  # Some files repeat the table under this name.
        if short in found:
          wrong.append(f'repeated: {short} in {path.name}')
        found[short] = name, path
        header = file.get_slice(name)
        shapes[short] = tuple(header.get_shape())
        code = header.get_dtype()
        if code in _DTYPES_BY_CODE:
          dtypes[short] = _DTYPES_BY_CODE[code]
        else:
          wrong.append(
            f'of dtype {code}: {short}, and only'
            f' {", ".join(_DTYPES_BY_CODE)} are implemented'
          )
  has_head = hf_names.HEAD in found
  _check_tensors(str(folder), shapes, config, has_head, wrong)
  return Checkpoint(folder, config, found, dtypes, has_head)


def _check_tensors(
  where: str,
  shapes: Mapping[str, tuple[int, ...]],
  config: qwen3_vl_lib.Qwen3VLConfig,
  has_head: bool,
  wrong: Sequence[str] = (),
) -> None:
  """Compares the tensors of a checkpoint with those that its sizes ask for.

  Args:
    where: they are.
    shapes: by name.
    config: sizes.
    has_head: whether there is a language head of its own.
    wrong: what is known to be wrong already, a line each.

  Raises:
    DataError: something is wrong.
  """
  tensors = hf_names.make_tensors(config, with_head=has_head)
  lines = list(wrong)
  for name in sorted(tensors.keys() | shapes.keys()):
    if name not in shapes:
      lines.append(f'missing: {name} {list(tensors[name].shape)}')
    elif name not in tensors:
      lines.append(f'unknown: {name} {list(shapes[name])}')
    elif shapes[name] != tensors[name].shape:
      lines.append(
        f'misshapen: {name} {list(shapes[name])} instead of'
        f' {list(tensors[name].shape)}'
      )
  if lines:
    raise errors.DataError(
      f'{where}: {len(lines)} tensors are not those of its config.json; do its'
      ' files belong together?',
      lines,
    )


def compute_fingerprint(
  folder: str | os.PathLike[str], settings: Mapping[str, Any]
) -> str:
  """Returns a SHA-256 over the files that say what a model computes.

  Args:
    folder: of a Qwen3-VL model; weights, config and tokenizer count.
    settings: whatever else changes the numbers, as JSON can hold it.
  """
  folder = pathlib.Path(folder)
  digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
  paths = [folder / hf_config.FILE, folder / 'tokenizer.json']
  for path in (*paths, *_list_files(folder)):
    with path.open('rb') as file:
      digest.update(hashlib.file_digest(file, 'sha256').digest())
  return digest.hexdigest()


def load_params(
  folder: str | os.PathLike[str],
  *,
  dtype: Any = None,
  shardings: Shardings = None,
  progress: bool = False,
) -> Params:
  """Reads the parameters of a folder, each straight to its place.

  On the host there is at any time no more than one tensor of the files; each
  is read once.

  Args:
    folder: of a Qwen3-VL model.
    dtype: of the parameters; None keeps that of the file (the wider one where
      the layers of a parameter differ).
    shardings: by path, e.g. 'decoder/layers/query/kernel'; None takes the
      default device.
    progress: whether to show a bar.

  Returns:
    `{'vision': ..., 'decoder': ...}` for `qwen3_vl.Qwen3VL`, and 'head' if the
    model has a language head of its own.

  Raises:
    DataError: see `open_checkpoint`; nothing is read then.
  """
  checkpoint = open_checkpoint(folder)

  def read(name: str) -> np.ndarray:
    in_file, path = checkpoint.files[name]
    # Opened for each tensor: an open file is mapped, so all that was read of
    # it would stay in memory until the end.
    try:
      with _open(path) as file:
        tensor: np.ndarray = file.get_tensor(in_file)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
      raise _make_damage(path, error) from error
    return tensor

  dtypes = checkpoint.dtypes
  if dtype is not None:
    dtypes = dict.fromkeys(dtypes, jnp.dtype(dtype))
  return _make_params(
    checkpoint.config,
    checkpoint.has_head,
    read,
    dtypes=dtypes,
    shardings=shardings,
    progress=progress,
  )


def convert(
  state_dict: Mapping[str, Any], config: qwen3_vl_lib.Qwen3VLConfig
) -> Params:
  """Converts a state dict in memory, to float32.

  Args:
    state_dict: name to array (anything `np.asarray` takes), with or without
      the prefix `model.`.
    config: the sizes of the model.

  Returns:
    As `load_params` does.

  Raises:
    DataError: a tensor is missing, unknown or misshapen.
  """
  weights = {n.removeprefix(hf_names.PREFIX): x for n, x in state_dict.items()}
  if config.tie_word_embeddings:
    weights.pop(hf_names.HEAD, None)
  has_head = hf_names.HEAD in weights
  shapes = {name: tuple(x.shape) for name, x in weights.items()}
  _check_tensors('the state dict', shapes, config, has_head)
  return _make_params(
    config,
    has_head,
    lambda name: np.asarray(weights[name], np.float32),
    dtypes=dict.fromkeys(weights, jnp.dtype(jnp.float32)),
    shardings=None,
    progress=False,
  )


def _make_params(
  config: qwen3_vl_lib.Qwen3VLConfig,
  has_head: bool,
  read: Any,
  *,
  dtypes: Mapping[str, np.dtype],
  shardings: Shardings,
  progress: bool,
) -> Params:
  """Makes our parameters one after the other, from tensors by name."""
  tensors = hf_names.make_tensors(config, with_head=has_head)
  slots: dict[str, list[tuple[str, hf_names.Slot]]] = {}
  for name, tensor in tensors.items():
    for slot in tensor.slots:
      slots.setdefault(slot.path, []).append((name, slot))
  shapes = hf_names.find_shapes(config, with_head=has_head)
  flat = {}
  for path in tqdm.tqdm(sorted(slots), 'reading', disable=not progress):
    several = slots[path]
    sharding = (shardings or {}).get(path)
    if sharding is None:
      sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    dtype = _find_common_dtype([dtypes[name] for name, _ in several])
    flat[path] = _place(several, shapes[path].shape, read, dtype, sharding)
  params: Params = flax.traverse_util.unflatten_dict(flat, sep='/')
  return params


def _place(
  slots: list[tuple[str, hf_names.Slot]],
  shape: tuple[int, ...],
  read: Any,
  dtype: np.dtype,
  sharding: jax.sharding.Sharding,
) -> jax.Array:
  """Reads one parameter, a tensor at a time, onto its devices."""
  parts = sharding.addressable_devices_indices_map(shape)
  placed: dict[jax.Device, jax.Array] = {}
  for name, slot in sorted(slots, key=lambda x: x[1].layer or 0):
    tensor = slot.read(read(name))
    for device, index in parts.items():
      index = index or (slice(None),) * len(shape)
      if slot.layer is None:
        part = np.ascontiguousarray(tensor[index], dtype)
        placed[device] = jax.device_put(part, device)
        continue
      layers = range(shape[0])[index[0]]
      if slot.layer not in layers:
        continue
      part = np.ascontiguousarray(tensor[index[1:]], dtype)
      if device not in placed:
        placed[device] = jnp.zeros(
          (len(layers), *part.shape), dtype, device=device
        )
      placed[device] = _put_layer(
        placed[device], jax.device_put(part, device), slot.layer - layers[0]
      )
    # Else tensors that are on their way would pile up on the host.
    jax.block_until_ready(list(placed.values()))
  return jax.make_array_from_single_device_arrays(
    shape, sharding, [placed[device] for device in parts]
  )


@functools.partial(jax.jit, donate_argnums=0)
def _put_layer(stack: jax.Array, layer: jax.Array, number: int) -> jax.Array:
  return jax.lax.dynamic_update_index_in_dim(stack, layer, number, 0)


def _find_common_dtype(dtypes: Sequence[np.dtype]) -> np.dtype:
  """Returns the narrowest dtype that holds the values of all."""
  common: np.dtype = functools.reduce(jnp.promote_types, dtypes)
  return common


def save_folder(
  folder: str | os.PathLike[str],
  params: Params,
  config: qwen3_vl_lib.Qwen3VLConfig,
  *,
  source: str | os.PathLike[str] | None = None,
  dtype: Any = None,
  max_shard_bytes: float = MAX_SHARD_BYTES,
  progress: bool = False,
) -> pathlib.Path:
  """Writes a folder that transformers loads, whole or not at all.

  Args:
    folder: must not exist.
    params: as `load_params` gives, on any number of devices.
    config: their sizes.
    source: folder that the files of tokenizer and image processor, and the
      rest of config.json, are taken from.
    dtype: of the weights; None keeps that of each parameter.
    max_shard_bytes: a file is begun anew before it exceeds this.
    progress: whether to show a bar.

  Returns:
    The folder.

  Raises:
    UsageError: the folder exists, or a shard would hold no tensor.
    DataError: the parameters or the source are not those of `config`, or the
      folder cannot be written.
  """
  folder = pathlib.Path(folder)
  if folder.exists():
    raise errors.UsageError(f'{folder} exists: choose another folder')
  flat: dict[str, Any] = flax.traverse_util.flatten_dict(
    nn.meta.unbox(params), sep='/'
  )
  has_head = any(path.startswith('head/') for path in flat)
  parameter_file.check_shapes(
    params,
    hf_names.find_boxed_shapes(config, with_head=has_head),
    'the tree of parameters',
  )
  tensors = hf_names.make_tensors(config, with_head=has_head)
  dtypes = {
    name: jnp.dtype(dtype)
    if dtype is not None
    else _find_common_dtype([flat[slot.path].dtype for slot in tensor.slots])
    for name, tensor in tensors.items()
  }
  for kind in dtypes.values():
    errors.check_choice('dtype', kind.name, DTYPES)
  sizes = {
    name: dtypes[name].itemsize * int(np.prod(tensor.shape))
    for name, tensor in tensors.items()
  }
  shards = _plan_shards(sizes, max_shard_bytes)
  names = [WEIGHTS]
  if len(shards) > 1:
    names = [
      f'model-{i:05d}-of-{len(shards):05d}.safetensors'
      for i in range(1, len(shards) + 1)
    ]
  table = hf_names.make_decoder_rules()['embedding'].name
  content = _make_content(config, dtypes[table].name, source)
  with (
    _write_whole(folder) as part,
    tqdm.tqdm(total=len(tensors), desc='writing', disable=not progress) as bar,
  ):
    weight_map: dict[str, str] = {}
    for file_name, shard in zip(names, shards, strict=True):
      arrays = {}
      for name in shard:
        slots = tensors[name].slots
        pieces = [
          np.asarray(_take(flat[s.path], s.layer), dtypes[name]) for s in slots
        ]
        arrays[_full_name(name)] = tensors[name].write(pieces)
        bar.update()
      with whole_file.replace(part / file_name) as path:
        safetensors.numpy.save_file(arrays, path, metadata=_FORMAT)
      weight_map |= dict.fromkeys(arrays, file_name)
    if len(shards) > 1:
      _write_json(
        part / INDEX,
        {
          'metadata': {'total_size': sum(sizes.values())},
          'weight_map': weight_map,
        },
      )
    if source is not None:
      for name in COMPANIONS:
        path = pathlib.Path(source) / name
        if path.is_file():
          shutil.copyfile(path, part / name)
    _write_json(part / hf_config.FILE, content)
  return folder


@contextlib.contextmanager
def _write_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a folder to fill, which gets its name if nothing fails.

  Raises:
    DataError: it cannot be written.
  """
  # Beside it, so that renaming is atomic; of a name that nobody else has.
  part = folder.with_name(f'{folder.name}.{uuid.uuid4().hex[:8]}.part')
  try:
    part.mkdir(parents=True)
    yield part
    os.replace(part, folder)
  except (OSError, safetensors.SafetensorError) as error:
    raise errors.DataError(
      f'{folder} cannot be written ({error}): choose another place'
    ) from error
  finally:
    shutil.rmtree(part, ignore_errors=True)


def _make_content(
  config: qwen3_vl_lib.Qwen3VLConfig,
  dtype: str,
  source: str | os.PathLike[str] | None,
) -> dict[str, Any]:
  """Makes the content of config.json, the source's where one is given.

  Raises:
    DataError: the source is of another size.
  """
  content = hf_config.make(config, dtype)
  if source is None:
    return content
  theirs = hf_config.read(source)
  # What `config` says of speed and adapters is in neither.
  if hf_config.make(hf_config.parse(theirs), dtype) != content:
    raise errors.DataError(
      f'{source} is of another size than the parameters: give the folder that'
      ' they were read from'
    )
  return hf_config.update(theirs, dtype)


def _take(x: Any, layer: int | None) -> np.ndarray:
  """Returns a layer of a parameter, from whatever devices, on the host."""
  return np.asarray(jax.device_get(x if layer is None else x[layer]))


def _full_name(name: str) -> str:
  return name if name == hf_names.HEAD else hf_names.PREFIX + name


def _check_limit(max_bytes: float) -> None:
  if not max_bytes >= 1:  # NaN is refused, too.
    raise errors.UsageError(
      f'max_shard_bytes={max_bytes} must be positive: raise it'
    )


def _plan_shards(sizes: Mapping[str, int], max_bytes: float) -> list[list[str]]:
  """Deals the tensors' names out to files, in the order of the names."""
  _check_limit(max_bytes)
  shards: list[list[str]] = [[]]
  filled = 0
  for name in sorted(sizes, key=_natural):
    size = sizes[name]
    if shards[-1] and filled + size > max_bytes:
      shards.append([])
      filled = 0
    shards[-1].append(name)
    filled += size
  return shards


def _natural(name: str) -> list[tuple[bool, int, str]]:
  """Orders layer 10 after layer 9."""
  return [
    (part.isdigit(), int(part) if part.isdigit() else 0, part)
    for part in name.split('.')
  ]


def _list_files(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the files of the weights."""
  index = folder / INDEX
  if (folder / WEIGHTS).is_file():
    # It goes before an index beside it, as in transformers.
    return [folder / WEIGHTS]
  if not index.is_file():
    raise errors.DataError(
      f'{folder} has neither {WEIGHTS} nor {INDEX}: fetch the whole model'
    )
  try:
    names = set(
      json.loads(index.read_text(encoding='utf-8'))['weight_map'].values()
    )
  except (OSError, ValueError, KeyError, AttributeError) as error:
    raise errors.DataError(
      f'{index} is damaged ({error!r}): fetch it anew'
    ) from error
  missing = sorted(name for name in names if not (folder / name).is_file())
  if missing:
    raise errors.DataError(
      f'{folder} lacks {", ".join(missing)}, which {INDEX} names: fetch the'
      ' whole model'
    )
  return [folder / name for name in sorted(names)]


def _open(path: pathlib.Path) -> Any:
  try:
    return safetensors.safe_open(path, framework='numpy')
  except (safetensors.SafetensorError, OSError) as error:
    raise _make_damage(path, error) from error


def _make_damage(path: pathlib.Path, error: Exception) -> errors.DataError:
  return errors.DataError(f'{path} is damaged ({error}): fetch it anew')


def _write_json(path: pathlib.Path, content: Any) -> None:
  path.write_text(
    json.dumps(content, indent=2, sort_keys=True) + '\n', encoding='utf-8'
  )


def convert_folder(
  source: str | os.PathLike[str],
  out: str | os.PathLike[str],
  *,
  dtype: str = '',
  adapters: str | os.PathLike[str] | None = None,
  max_shard_bytes: float = MAX_SHARD_BYTES,
) -> str:
  """Writes the model of one folder to another; says what was written.

  Args:
    source: of a Qwen3-VL model.
    out: must not exist.
    dtype: one of `DTYPES`; '' keeps that of the source.
    adapters: a folder of PEFT's whose adapters are merged into the weights.
    max_shard_bytes: see `save_folder`.

  Raises:
    UsageError: `out` exists, or a setting is out of its range.
    DataError: see `open_checkpoint` and `peft_format.load_adapters`.
  """
  if dtype:
    errors.check_choice('dtype', dtype, DTYPES)
  _check_limit(max_shard_bytes)
  if pathlib.Path(out).exists():
    raise errors.UsageError(f'{out} exists: choose another folder')
  config = read_config(source)
  loaded = adapters and peft_format.load_adapters(adapters, config.decoder)
  params = load_params(source, progress=True)
  if loaded:
    params['decoder'] = lora_lib.merge(
      lora_lib.join(params['decoder'], loaded[0]), loaded[1]
    )
  save_folder(
    out,
    params,
    config,
    source=source,
    dtype=dtype or None,
    max_shard_bytes=max_shard_bytes,
    progress=True,
  )
  leaves = jax.tree.leaves(params)
  count = sum(leaf.size for leaf in leaves)
  files = sorted(pathlib.Path(out).glob('*.safetensors'))
  size = sum(path.stat().st_size for path in files)
  kinds = dtype or '+'.join(sorted({leaf.dtype.name for leaf in leaves}))
  return (
    f'wrote {count:,} parameters ({kinds}, {size / 1e9:.3g} GB in {len(files)}'
    f' files) to {out}; missing, unknown or misshapen tensors: none\n'
    f'next: vhop embed PICTURES --model={out} --out=FILE'
  )

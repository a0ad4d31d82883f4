"""Writes and reads the two TFDS data sets of a world, in ArrayRecord files."""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import io
import itertools
import logging
import os
import pathlib
from typing import Any

from array_record.python import array_record_module
import numpy as np
import tensorflow_datasets as tfds

from vhop_jax import errors

IMAGES_SPLIT = 'gallery'
QUERIES_SPLIT = 'queries'
DATASETS = {IMAGES_SPLIT: 'vhop_images', QUERIES_SPLIT: 'vhop_queries'}
DATASET_VERSION = '1.0.0'
SHARD_BYTES = 256 * 2**20
# One row a group: rows are read one by one, in any order.
_WRITER_OPTIONS = 'group_size:1'
_MESSAGE_LENGTH = 120  # Of a reader's error that is passed on.


class _RowsBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Writes rows that were made elsewhere."""

  VERSION = tfds.core.Version(DATASET_VERSION)
  SPLIT: str
  DESCRIPTION: str

  def __init__(
    self,
    *,
    rows: Iterable[dict[str, Any]],
    shard_lengths: Sequence[int],
    size_px: tuple[int, int],
    **kwargs: Any,
  ):
    """Keeps the rows for `download_and_prepare`.

    Args:
      rows: the values of each row.
      shard_lengths: how many rows go into each file.
      size_px: width and height of the images.
      **kwargs: for TFDS, for example `data_dir`.
    """
    self._rows, self._shard_lengths = rows, list(shard_lengths)
    self._size_px = size_px
    super().__init__(file_format='array_record', **kwargs)

  def _make_features(self) -> dict[str, Any]:
    raise NotImplementedError

  def _info(self) -> tfds.core.DatasetInfo:
    # TFDS's other way to make the info looks for files beside this module.
    return tfds.core.DatasetInfo(
      builder=self,
      description=self.DESCRIPTION,
      features=tfds.features.FeaturesDict(self._make_features()),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
    return {self.SPLIT: self._generate_examples()}

  def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from enumerate(self._rows)

  def _generate_splits(
    self, dl_manager: Any, download_config: Any
  ) -> list[tfds.core.SplitInfo]:
    """Writes the rows as they come.

    TFDS's own writer sorts first: up to 1 GB in memory, and beyond that in
    files that it cannot handle without TensorFlow.
    """
    features = self.info.features
    serializer = tfds.core.example_serializer.ExampleSerializer(
      features.get_serialized_info()
    )
    template = self._get_filename_template(split_name=self.SPLIT)
    [examples] = self._split_generators(dl_manager).values()
    num_bytes = 0
    for i, length in enumerate(self._shard_lengths):
      path = template.sharded_filepath(
        shard_index=i, num_shards=len(self._shard_lengths)
      )
      writer = array_record_module.ArrayRecordWriter(
        os.fspath(path), _WRITER_OPTIONS
      )
      for _, row in itertools.islice(examples, length):
        data = serializer.serialize_example(features.encode_example(row))
        writer.write(data)
        num_bytes += len(data)
      writer.close()
    return [
      tfds.core.SplitInfo(
        name=self.SPLIT,
        shard_lengths=self._shard_lengths,
        num_bytes=num_bytes,
        filename_template=template,
      )
    ]


class VhopImages(_RowsBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Writes the gallery of a world, one image a row."""

  name = DATASETS[IMAGES_SPLIT]
  SPLIT = IMAGES_SPLIT
  DESCRIPTION = 'Rendered scenes of one or two objects, in the order of ids.'

  def _make_features(self) -> dict[str, Any]:
    width_px, height_px = self._size_px
    return {
      'id': tfds.features.Text(),
      'family': np.int64,
      'image': tfds.features.Image(
        shape=(height_px, width_px, 3), encoding_format='png'
      ),
      'objects': tfds.features.Text(),
      'scene': tfds.features.Text(),
    }


class VhopQueries(_RowsBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Writes the queries of a world, one a row."""

  name = DATASETS[QUERIES_SPLIT]
  SPLIT = QUERIES_SPLIT
  DESCRIPTION = 'Multi-hop questions over the images of one world.'

  def _make_features(self) -> dict[str, Any]:
    texts = ('id', 'image', 'instruction', 'hops', 'chains', 'answers')
    return {
      'family': np.int64,
      **{name: tfds.features.Text() for name in texts},
    }


def write_rows(
  folder: str | os.PathLike[str],
  split: str,
  rows: Iterable[dict[str, Any]],
  *,
  count: int,
  num_bytes: int,
  size_px: tuple[int, int],
) -> None:
  """Writes one data set of a world.

  Args:
    folder: the world.
    split: `IMAGES_SPLIT` or `QUERIES_SPLIT`.
    rows: the values of each row, in order; made while writing.
    count: how many rows there will be.
    num_bytes: about how large they are in all, to cut them into files.
    size_px: width and height of the images.
  """
  builders = {IMAGES_SPLIT: VhopImages, QUERIES_SPLIT: VhopQueries}
  shards = min(count, 1 + num_bytes // SHARD_BYTES)
  lengths = [
    (i + 1) * count // shards - i * count // shards for i in range(shards)
  ]
  with _quiet_tfds():
    builders[split](
      rows=rows,
      shard_lengths=lengths,
      size_px=size_px,
      data_dir=os.fspath(folder),
    ).download_and_prepare()


def get_folder(folder: str | os.PathLike[str], split: str) -> pathlib.Path:
  """Returns the folder that TFDS reads a world's data set from."""
  return pathlib.Path(folder) / DATASETS[split] / DATASET_VERSION


def read_rows(
  folder: str | os.PathLike[str], split: str, count: int
) -> Iterator[dict[str, Any]]:
  """Reads the rows of one data set; images stay encoded.

  Args:
    folder: the world.
    split: `IMAGES_SPLIT` or `QUERIES_SPLIT`.
    count: how many rows the header promises.

  Yields:
    One dict a row, in stored order, texts as `str`.

  Raises:
    DataError: the files are missing, truncated or not ArrayRecord.
  """
  path = get_folder(folder, split)
  decoders = None
  if split == IMAGES_SPLIT:
    decoders = {'image': tfds.decode.SkipDecoding()}
  try:
    source = tfds.builder_from_directory(path).as_data_source(
      split=split, decoders=decoders
    )
    if len(source) != count:
      raise ValueError(f'{len(source)} records instead of {count}')
    rows = iter(source)
  except Exception as error:  # The readers raise whatever C++ gives them.
    raise _make_error(path, error) from None
  for _ in range(count):
    try:
      row = next(rows)
      # The number of records is what TFDS wrote down; where the file has
      # fewer, ArrayRecord gives empty ones and no error.
      if any(value is None for value in row.values()):
        raise ValueError('a record is empty')
    except Exception as error:
      raise _make_error(path, error) from None
    yield {
      key: value.decode()
      if isinstance(value, bytes) and (split, key) != (IMAGES_SPLIT, 'image')
      else value
      for key, value in row.items()
    }


def _make_error(path: pathlib.Path, error: Exception) -> errors.DataError:
  """Makes one line of whatever a reader said."""
  reason = ' '.join(str(error).split())[:_MESSAGE_LENGTH]
  return errors.DataError(
    f'the ArrayRecord files in {path} are damaged or incomplete ({reason});'
    ' build the world again with --overwrite'
  )


@contextlib.contextmanager
def _quiet_tfds() -> Iterator[None]:
  """Silences TFDS's bars, log and prints, which tell of its inner steps."""
  logger = logging.getLogger('absl')
  level = logger.level
  tfds.disable_progress_bar()
  logger.setLevel(logging.ERROR)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    logger.setLevel(level)
    tfds.enable_progress_bar()

import itertools

import tensorflow_datasets as tfds

from vhop_jax.worlds import records

TEXTS = ('id', 'image', 'instruction', 'hops', 'chains', 'answers')


def write(folder, count, num_bytes=0):
  rows = (
    {'family': i, **dict.fromkeys(TEXTS, 'é' * (i % 7))} for i in range(count)
  )
  records.write_rows(
    folder,
    records.QUERIES_SPLIT,
    rows,
    count=count,
    num_bytes=num_bytes,
    size_px=(48, 32),
  )


def test_rows_are_read_as_they_were_written(tmp_path):
  write(tmp_path, 12)
  rows = list(records.read_rows(tmp_path, records.QUERIES_SPLIT, 12))
  assert [row['family'] for row in rows] == list(range(12))
  assert rows[3]['image'] == 'ééé'


def test_large_data_are_cut_into_files_without_changing_the_order(tmp_path):
  write(tmp_path, 11, num_bytes=3 * records.SHARD_BYTES)
  path = records.get_folder(tmp_path, records.QUERIES_SPLIT)
  assert len(list(path.glob('*.array_record-*-of-00004'))) == 4
  rows = list(records.read_rows(tmp_path, records.QUERIES_SPLIT, 11))
  assert [row['family'] for row in rows] == list(range(11))


def test_rows_are_written_while_they_are_made(tmp_path, monkeypatch):
  # Were they collected first, a world would have to fit in memory.
  made, seen = itertools.count(), []
  writer = records.array_record_module.ArrayRecordWriter

  class Spy:
    def __init__(self, *args):
      self._writer = writer(*args)

    def write(self, data):
      seen.append(next(made))
      self._writer.write(data)

    def close(self):
      self._writer.close()

  monkeypatch.setattr(records.array_record_module, 'ArrayRecordWriter', Spy)
  rows = ({'family': next(made), **dict.fromkeys(TEXTS, '')} for _ in range(3))
  records.write_rows(
    tmp_path,
    records.QUERIES_SPLIT,
    rows,
    count=3,
    num_bytes=0,
    size_px=(48, 32),
  )
  assert seen == [1, 3, 5]


def test_any_tfds_program_can_read_the_data_sets(folder, world):
  path = records.get_folder(folder, records.IMAGES_SPLIT)
  builder = tfds.builder_from_directory(path)
  source = builder.as_data_source(split=records.IMAGES_SPLIT)
  assert len(source) == len(world.images)
  assert source[2]['image'].shape == (32, 48, 3)
  assert source[2]['id'].decode() == world.images[2].id

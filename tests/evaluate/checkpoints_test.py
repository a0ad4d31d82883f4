import ml_collections
import pytest

from vhop_jax.evaluate import checkpoints


def make(tmp_path, *, routers=None, **changes):
  values = {'seed': 0, 'budget': 16, 'test_sets': ('a',), 'title': 't'}
  config = ml_collections.ConfigDict({**values, **changes})
  return checkpoints.make_keeper(tmp_path / 'out', config, routers or {})


def test_what_was_kept_is_returned(tmp_path, folder):
  keeper = make(tmp_path)
  assert keeper.load('vague, 4 hops', [folder]) is None
  keeper.save('vague, 4 hops', [folder], [1, {'a': 2}])
  assert make(tmp_path).load('vague, 4 hops', [folder]) == [1, {'a': 2}]
  assert make(tmp_path).load('another', [folder]) is None


@pytest.mark.parametrize(
  ('changes', 'is_kept'),
  [
    ({'seed': 1}, False),
    ({'budget': 8}, False),
    # What else is measured or shown makes no difference.
    ({'test_sets': ('a', 'b')}, True),
    ({'title': 'other'}, True),
  ],
)
def test_a_setting_that_matters_makes_it_void(
  tmp_path, folder, changes, is_kept
):
  make(tmp_path).save('a', [folder], [1])
  found = make(tmp_path, **changes).load('a', [folder])
  assert found == ([1] if is_kept else None)


def test_another_router_or_world_makes_it_void(tmp_path, folder, other_folder):
  file = tmp_path / 'router'
  file.write_bytes(b'one')
  make(tmp_path, routers={'sft': str(file)}).save('a', [folder], [1])
  assert make(tmp_path, routers={'sft': str(file)}).load('a', [folder]) == [1]
  keeper = make(tmp_path, routers={'sft': str(file)})
  assert keeper.load('a', [other_folder]) is None
  file.write_bytes(b'two')
  assert make(tmp_path, routers={'sft': str(file)}).load('a', [folder]) is None


def test_broken_file_is_measured_again(tmp_path, folder):
  keeper = make(tmp_path)
  keeper.save('a', [folder], [1])
  [file] = (tmp_path / 'out').rglob('*.json')
  file.write_text('{')
  assert keeper.load('a', [folder]) is None

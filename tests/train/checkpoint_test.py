from vhop_jax.train import checkpoint


def test_differences_name_settings_by_their_path():
  saved = {'optimizer': {'lr': 1.0, 'b1': 0.9}, 'seed': 1, 'old': 2}
  current = {'optimizer': {'lr': 2.0, 'b1': 0.9}, 'seed': 1, 'new': 3}
  assert checkpoint.find_differences(saved, current) == [
    'new (none) -> 3',
    'old 2 -> (none)',
    'optimizer.lr 1.0 -> 2.0',
  ]


def test_free_settings_do_not_differ():
  saved = {'train': {'log_every': 1, 'mesh': {'data': 1}}, 'steps': 3}
  current = {'train': {'log_every': 2, 'mesh': {'data': 8}}, 'steps': 3}
  assert checkpoint.find_differences(saved, current) == []

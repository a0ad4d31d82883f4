import numpy as np
import pytest

from vhop_jax.worlds import leaks
from vhop_jax.worlds import world as world_lib

FAMILIES, SIZE = 50, 9
ROLES = ('query', 'a1', 'answer', 'trap')


def make_world(order):
  """Makes a world without objects whose images stand in the given order.

  Args:
    order: family and role number of each image; roles 0 to 2 are query image,
      first image and answer, all others are distractors.
  """
  positions = {key: f'{i:05d}' for i, key in enumerate(order)}
  return world_lib.World(
    spec=world_lib.Spec(4, FAMILIES, 0),
    images=tuple(
      world_lib.ImageRecord(image, family, (), {})
      for (family, _), image in positions.items()
    ),
    queries=tuple(
      world_lib.Query(
        id=f'{family}_leftof',
        family=family,
        image=positions[family, 0],
        instruction='',
        hops=(),
        chains=((positions[family, 1], positions[family, 2]),),
        answers=(positions[family, 2],),
      )
      for family in range(FAMILIES)
    ),
  )


def all_images():
  return [(f, role) for f in range(FAMILIES) for role in range(SIZE)]


@pytest.mark.parametrize('seed', range(5))
def test_shuffled_gallery_has_no_leak(seed):
  keys = all_images()
  order = np.random.default_rng(seed).permutation(len(keys))
  assert list(leaks.find_leaks(make_world([keys[i] for i in order]))) == []


def test_families_that_stand_together_are_noticed():
  found = '; '.join(leaks.find_leaks(make_world(all_images())))
  assert 'of one family' in found


@pytest.mark.parametrize('role', [0, 2])
def test_role_that_always_comes_last_is_noticed(role):
  rng = np.random.default_rng(0)
  keys = [(rng.random() + (r == role), f, r) for f, r in all_images()]
  order = [(f, r) for _, f, r in sorted(keys)]
  found = '; '.join(leaks.find_leaks(make_world(order)))
  assert ('query images', 'chains', 'answers')[role] in found

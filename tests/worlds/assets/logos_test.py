import numpy as np
import pytest

from vhop_jax.worlds.assets import logos, pack_logos


def test_every_logo_on_the_sheet_is_chosen_again():
  # The packer's own rules hold for what it packed: legible, no two alike.
  icons = np.stack([logos.load_logo(name) for name in logos.list_logos()]) / 255
  assert len(icons) > 1000
  # Fifteen greys move some icons across a limit.
  assert len(pack_logos.choose_icons(icons)) > 0.95 * len(icons)


def test_names_are_sorted_and_each_stands_once():
  names = logos.list_logos()
  assert list(names) == sorted(set(names))


def test_packer_leaves_out_what_is_thin_solid_or_a_copy():
  rng = np.random.default_rng(0)
  size = logos.SIZE_PX
  blocks = np.kron(rng.random((3, 8, 8)) > 0.5, np.ones((6, 6))) * 1.0
  thin = np.zeros((size, size))
  thin[:, 23:25] = 1
  solid = np.ones((size, size))
  icons = np.stack([*blocks, thin, solid, blocks[0], 1 - blocks[1]])
  chosen = pack_logos.choose_icons(icons)
  assert len(chosen) == 3
  assert not {3, 4} & set(chosen)


def test_unknown_logo_is_an_error():
  with pytest.raises(ValueError, match='no-such-logo'):
    logos.load_logo('no-such-logo')

r"""Packs logos of Simple Icons into the sheet that `logos.py` reads.

  npm pack simple-icons@16.37.0 && tar xzf simple-icons-16.37.0.tgz
  pip install 'vhop_jax[logos]'
  python -m vhop_jax.worlds.assets.pack_logos package

Kept is what is square enough for a label, neither thin nor solid, still seen at
16 px, and unlike every other one that is kept.
"""

import io
import json
import pathlib
import sys

import numpy as np
from PIL import Image

from vhop_jax.worlds.assets import logos

_DRAWN_PX = 4 * logos.SIZE_PX
_MIN_EXTENT_FRAC = 0.75
_INK_FRAC = (0.2, 0.72)
_SMALL_PX = 16
_MIN_CONTRAST = 0.3
_MAX_LIKENESS = 0.75


def draw_icon(path: pathlib.Path) -> np.ndarray:
  """Returns an icon's ink [SIZE_PX, SIZE_PX], 0 to 1."""
  import resvg_py  # type: ignore[import-not-found]

  data = resvg_py.svg_to_bytes(
    svg_string=path.read_text(), width=_DRAWN_PX, height=_DRAWN_PX
  )
  with Image.open(io.BytesIO(bytes(data))) as image:
    ink = np.asarray(image)[..., 3] / 255
  size = logos.SIZE_PX
  return ink.reshape(size, 4, size, 4).mean(axis=(1, 3))


def choose_icons(icons: np.ndarray) -> list[int]:
  """Chooses legible icons no two of which are alike.

  Args:
    icons: ink [I, SIZE_PX, SIZE_PX].

  Returns:
    Their positions, ascending.
  """
  high = (icons.max(axis=2) > 0.3).mean(axis=1)
  wide = (icons.max(axis=1) > 0.3).mean(axis=1)
  ink = icons.mean(axis=(1, 2))
  every = logos.SIZE_PX // _SMALL_PX
  small = icons.reshape(-1, _SMALL_PX, every, _SMALL_PX, every).mean((2, 4))
  contrast = small.std(axis=(1, 2))
  legible = (np.minimum(high, wide) >= _MIN_EXTENT_FRAC) & (
    (ink > _INK_FRAC[0]) & (ink < _INK_FRAC[1]) & (contrast > _MIN_CONTRAST)
  )
  looks = small.reshape(len(small), -1)
  looks = looks - looks.mean(axis=1, keepdims=True)
  looks /= np.linalg.norm(looks, axis=1, keepdims=True) + 1e-9
  chosen: list[int] = []
  for i in np.argsort(-contrast):
    # A negative of another icon is as like it as a copy.
    if legible[i] and not (
      chosen and np.abs(looks[chosen] @ looks[i]).max() > _MAX_LIKENESS
    ):
      chosen.append(int(i))
  return sorted(chosen)


def main(folder: str) -> None:
  """Writes the sheet and the names beside this file."""
  package = pathlib.Path(folder)
  version = json.loads((package / 'package.json').read_text())['version']
  paths = sorted((package / 'icons').glob('*.svg'))
  icons = np.stack([draw_icon(path) for path in paths])
  chosen = choose_icons(icons)
  size, columns = logos.SIZE_PX, logos.COLUMNS
  sheet = np.zeros((-(-len(chosen) // columns) * size, columns * size))
  for place, i in enumerate(chosen):
    row, column = divmod(place, columns)
    sheet[
      row * size : (row + 1) * size, column * size : (column + 1) * size
    ] = icons[i]
  out = pathlib.Path(__file__).parent
  # Sixteen greys halve the file and no eye sees it.
  grey = (np.round(15 * sheet) * 17).astype(np.uint8)
  Image.fromarray(grey).save(out / logos.SHEET_FILE, optimize=True)
  names = [paths[i].stem for i in chosen]
  values = {'source': f'simple-icons {version}', 'names': names}
  (out / logos.NAMES_FILE).write_text(json.dumps(values, indent=0) + '\n')
  print(f'{len(names)} of {len(paths)} logos')


if __name__ == '__main__':
  main(sys.argv[1])

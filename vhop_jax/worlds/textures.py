"""Makes the procedural textures that grounds and walls are painted with.

Each texture is a tile that repeats without a seam. It has two channels: how
much of the second colour to mix in, and a shade to multiply by (0.5 leaves the
colour as it is). As bitmaps with mip levels they cost one look-up per pixel and
do not flicker in the distance.
"""

from collections.abc import Callable

import numpy as np

SIZE_PX = 256

_Pair = tuple[np.ndarray, np.ndarray]


def _sample_noise(rng: np.random.Generator, octaves: range) -> np.ndarray:
  """Samples smooth noise in [0, 1] that tiles: a sum of scaled-up lattices."""
  total = np.zeros((SIZE_PX, SIZE_PX))
  for octave in octaves:
    cells = 2**octave
    lattice = rng.uniform(-1, 1, (cells, cells))
    position = np.arange(SIZE_PX) * cells / SIZE_PX
    low = position.astype(int)
    frac = position - low
    frac = frac * frac * (3 - 2 * frac)
    high = (low + 1) % cells
    rows = lattice[low] * (1 - frac)[:, None] + lattice[high] * frac[:, None]
    total += (rows[:, low] * (1 - frac) + rows[:, high] * frac) / 2 ** (
      octave - octaves[0]
    )
  low_value, high_value = total.min(), total.max()
  return (total - low_value) / (high_value - low_value)


def _make_grid() -> _Pair:
  """Returns u (to the right) and v (downwards), both in [0, 1)."""
  v, u = np.mgrid[0:SIZE_PX, 0:SIZE_PX] / SIZE_PX
  return u, v


def _make_plain(rng: np.random.Generator) -> _Pair:
  noise = _sample_noise(rng, range(5, 8))
  return 0 * noise, 0.48 + 0.04 * noise


def _make_checks(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  mask = ((u * 4).astype(int) + (v * 4).astype(int)) % 2
  return mask.astype(float), 0.47 + 0.06 * _sample_noise(rng, range(4, 8))


def _make_stripes(rng: np.random.Generator) -> _Pair:
  u, _ = _make_grid()
  mask = (u * 4) % 1 < 0.5
  return mask.astype(float), 0.48 + 0.04 * _sample_noise(rng, range(5, 8))


def _make_bands(rng: np.random.Generator) -> _Pair:
  u, _ = _make_grid()
  wide = (u * 2) % 1 < 0.35
  thin = ((u * 2 - 0.6) % 1) < 0.08
  return (wide | thin).astype(float), 0.48 + 0.04 * _sample_noise(
    rng, range(5, 8)
  )


def _make_planks(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  num_planks = 6
  plank = (u * num_planks).astype(int)
  tone = rng.uniform(0, 1, (num_planks, 2))
  start = rng.uniform(0, 1, num_planks)[plank]
  half = (((v + start) % 1) * 2).astype(int)
  grain = _sample_noise(rng, range(1, 4))[:, ::1]
  stretched = np.sin(40 * u + 7 * _sample_noise(rng, range(1, 3)) + 9 * plank)
  mask = 0.65 * tone[plank, half] + 0.2 * grain + 0.15 * (0.5 + 0.5 * stretched)
  joint = np.minimum((u * num_planks) % 1, 0.5) < 0.05
  joint |= ((v + start) * 2) % 1 < 0.012
  return mask, np.where(joint, 0.27, 0.5)


def _make_tiles(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  tone = rng.uniform(0, 0.35, (4, 4))[(v * 4).astype(int), (u * 4).astype(int)]
  grout = ((u * 4) % 1 < 0.06) | ((v * 4) % 1 < 0.06)
  return np.where(grout, 1.0, tone), 0.47 + 0.06 * _sample_noise(
    rng, range(4, 7)
  )


def _make_bricks(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  row = (v * 8).astype(int)
  shifted = (u * 4 + 0.5 * (row % 2)) % 4
  tone = rng.uniform(0, 0.4, (8, 4))[row, shifted.astype(int)]
  mortar = (shifted % 1 < 0.05) | ((v * 8) % 1 < 0.1)
  return np.where(mortar, 1.0, tone), 0.46 + 0.08 * _sample_noise(
    rng, range(4, 8)
  )


def _make_noise(rng: np.random.Generator) -> _Pair:
  noise = _sample_noise(rng, range(2, 7))
  return np.clip(1.6 * noise - 0.3, 0, 1), np.full_like(noise, 0.5)


def _make_marble(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  warp = _sample_noise(rng, range(1, 6))
  veins = np.abs(np.sin(np.pi * (u * 2 + v + 3 * warp)))
  return (1 - veins) ** 3, 0.47 + 0.06 * warp


def _make_terrazzo(rng: np.random.Generator) -> _Pair:
  u, v = _make_grid()
  mask = np.zeros_like(u)
  for _ in range(90):
    x, y, radius, angle = rng.uniform((0, 0, 0.012, 0), (1, 1, 0.035, np.pi))
    du, dv = (u - x + 0.5) % 1 - 0.5, (v - y + 0.5) % 1 - 0.5
    a = du * np.cos(angle) + dv * np.sin(angle)
    b = dv * np.cos(angle) - du * np.sin(angle)
    mask[(np.abs(a) + 0.6 * np.abs(b)) < radius] = rng.uniform(0.5, 1)
  return mask, 0.48 + 0.04 * _sample_noise(rng, range(5, 8))


def _make_gradient(rng: np.random.Generator) -> _Pair:
  u, _ = _make_grid()
  return 0.5 - 0.5 * np.cos(2 * np.pi * u), 0.49 + 0.02 * _sample_noise(
    rng, range(5, 8)
  )


# The order is part of a texture's look: each one is drawn from its own seed.
_MAKERS: dict[str, Callable[[np.random.Generator], _Pair]] = {
  'plain': _make_plain,
  'checks': _make_checks,
  'stripes': _make_stripes,
  'bands': _make_bands,
  'planks': _make_planks,
  'tiles': _make_tiles,
  'bricks': _make_bricks,
  'noise': _make_noise,
  'marble': _make_marble,
  'terrazzo': _make_terrazzo,
  'gradient': _make_gradient,
}
TEXTURES = tuple(_MAKERS)


def make_textures() -> np.ndarray:
  """Makes every texture in the order of `TEXTURES`.

  Returns:
    uint8 [number of textures, SIZE_PX, SIZE_PX, 2]: mix and shade.
  """
  pairs = [
    make(np.random.default_rng(i)) for i, make in enumerate(_MAKERS.values())
  ]
  stacked = np.stack([np.stack(pair, axis=-1) for pair in pairs])
  return np.round(255 * np.clip(stacked, 0, 1)).astype(np.uint8)

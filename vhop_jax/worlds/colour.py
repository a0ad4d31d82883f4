"""Measures how different colours look.

Colours are sRGB in [0, 1] under the light that sRGB is made for, D65.
"""

import numpy as np

# CIE XYZ of sRGB's primaries, and of its white, IEC 61966-2-1.
_XYZ = np.array(
  [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
  ]
)
_WHITE = _XYZ.sum(axis=1)


def decode_srgb(srgb: np.ndarray) -> np.ndarray:
  """Converts sRGB [...] to linear RGB [...]."""
  return np.where(
    srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4
  )


def compute_oklab(srgb: np.ndarray) -> np.ndarray:
  """Converts sRGB [..., 3] to OKLab, in which distance is difference seen.

  Source: B. Ottosson, "A perceptual color space for image processing" (2020).
  """
  cones = decode_srgb(srgb) @ np.array(
    [
      [0.4122214708, 0.2119034982, 0.0883024619],
      [0.5363325363, 0.6806995451, 0.2817188376],
      [0.0514459929, 0.1073969566, 0.6299787005],
    ]
  )
  return np.cbrt(cones) @ np.array(
    [
      [0.2104542553, 1.9779984951, 0.0259040371],
      [0.7936177850, -2.4285922050, 0.7827717662],
      [-0.0040720468, 0.4505937099, -0.8086757660],
    ]
  )


def compute_lab(srgb: np.ndarray) -> np.ndarray:
  """Converts sRGB [..., 3] to CIELAB [..., 3]: L* in [0, 100], a*, b*.

  Source: CIE 15, "Colorimetry".
  """
  ratio = decode_srgb(srgb) @ _XYZ.T / _WHITE
  delta = 6 / 29
  f = np.where(
    ratio > delta**3, np.cbrt(ratio), ratio / (3 * delta**2) + 4 / 29
  )
  x, y, z = np.moveaxis(f, -1, 0)
  return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def compute_delta_e(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Computes CIEDE2000, the difference that is seen between two colours.

  Source: G. Sharma, W. Wu, E. N. Dalal, "The CIEDE2000 Color-Difference
  Formula: Implementation Notes, Supplementary Test Data, and Mathematical
  Observations", Color Research and Application 30 (2005). The weights k_L, k_C
  and k_H are 1.

  Args:
    first: CIELAB [..., 3].
    second: CIELAB [..., 3]; the two are broadcast.

  Returns:
    The differences [...]. About 1 is just noticed, side by side.
  """
  lightness_1, a_1, b_1 = np.moveaxis(first, -1, 0)
  lightness_2, a_2, b_2 = np.moveaxis(second, -1, 0)
  # Near grey, a* is stretched (equations 2 to 7; hues in radians).
  mean_chroma = (np.hypot(a_1, b_1) + np.hypot(a_2, b_2)) / 2
  stretch = 1.5 - 0.5 * _saturate(mean_chroma)
  chroma_1, chroma_2 = (
    np.hypot(stretch * a_1, b_1),
    np.hypot(stretch * a_2, b_2),
  )
  hue_1 = np.arctan2(b_1, stretch * a_1) % (2 * np.pi)
  hue_2 = np.arctan2(b_2, stretch * a_2) % (2 * np.pi)

  # Equations 8 to 11. A grey has no hue: its chroma of 0 makes it harmless.
  turn = hue_2 - hue_1
  turn = np.where(turn > np.pi, turn - 2 * np.pi, turn)
  turn = np.where(turn < -np.pi, turn + 2 * np.pi, turn)
  grey = chroma_1 * chroma_2 == 0
  turn = np.where(grey, 0, turn)
  hue_step = 2 * np.sqrt(chroma_1 * chroma_2) * np.sin(turn / 2)

  # Equations 12 to 14: the mean hue lies within the smaller of two angles.
  lightness = (lightness_1 + lightness_2) / 2
  chroma = (chroma_1 + chroma_2) / 2
  hue = (hue_1 + hue_2) / 2
  apart = np.abs(hue_1 - hue_2) > np.pi
  hue = np.where(apart, np.where(hue < np.pi, hue + np.pi, hue - np.pi), hue)
  hue = np.where(grey, hue_1 + hue_2, hue)

  # Equations 15 to 21.
  weight = (
    1
    - 0.17 * np.cos(hue - np.radians(30))
    + 0.24 * np.cos(2 * hue)
    + 0.32 * np.cos(3 * hue + np.radians(6))
    - 0.20 * np.cos(4 * hue - np.radians(63))
  )
  spread = np.exp(-(((np.degrees(hue) - 275) / 25) ** 2))
  rotation = -np.sin(np.radians(60) * spread) * 2 * _saturate(chroma)
  middle = (lightness - 50) ** 2
  scale_l = 1 + 0.015 * middle / np.sqrt(20 + middle)
  scale_c = 1 + 0.045 * chroma
  scale_h = 1 + 0.015 * chroma * weight

  # Equation 22.
  step_l = (lightness_2 - lightness_1) / scale_l
  step_c = (chroma_2 - chroma_1) / scale_c
  step_h = hue_step / scale_h
  return np.sqrt(step_l**2 + step_c**2 + step_h**2 + rotation * step_c * step_h)


def _saturate(chroma: np.ndarray) -> np.ndarray:
  """Returns the formula's function of chroma, which goes from 0 to 1."""
  return np.sqrt(chroma**7 / (chroma**7 + 25.0**7))

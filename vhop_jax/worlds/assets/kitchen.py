"""Composes things from a kitchen.

Like all type functions, each takes four proportions in [0, 1] and returns the
pieces of the mesh, in any size and place.
"""

import numpy as np

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Pieces,
  arc,
  box,
  curve,
  cylinder,
  ellipsoid,
  lathe,
  mix,
  rounded_box,
)
from vhop_jax.worlds.assets.sweeps import torus, tube


def make_kettle(
  height: float, spout: float, handle: float, taper: float
) -> Pieces:
  """Makes a stove kettle with a spout and a handle over the lid."""
  h = mix(0.55, 0.9, height)
  top = mix(0.24, 0.36, taper)
  side = curve([(0.48, 0), (0.54, 0.15 * h), (0.46, 0.6 * h), (top, h)])
  reach = mix(0.72, 0.9, spout)
  path = curve(
    [
      (0.4, 0.25 * h, 0),
      (0.62, 0.45 * h, 0),
      (reach, mix(0.9, 1.1, spout) * h, 0),
    ]
  )
  lift = mix(0.35, 0.6, handle)
  arch = arc(1.0, -5, 185, 14) * (top + 0.1, lift, 1) + (0, h - 0.02, 0)
  return [
    (Part.BODY, lathe([(0, 0), *side, (0, h)])),
    (Part.BODY, tube(path, np.linspace(0.15, 0.075, len(path)))),
    (Part.TRIM, ellipsoid(top * 0.9, 0.09).move(y=h)),
    (Part.TRIM, ellipsoid(0.07).move(y=h + 0.13)),
    (Part.DARK, tube(arch, 0.05)),
  ]


def make_mug(height: float, handle: float, flare: float, drop: float) -> Pieces:
  """Makes a mug with an ear-shaped handle."""
  h = mix(0.75, 1.2, height)
  low, high = mix(0.48, 0.36, flare), mix(0.42, 0.5, flare)
  side = curve([(low, 0), (low + 0.03, 0.1 * h), (high, h)], 3)
  wall = [(high - 0.06, h), (low - 0.04, 0.1), (0, 0.1)]
  size = mix(0.2, 0.34, handle)
  ear = arc(size, -100, 100, 12) * (1, 1.15, 1)
  ear = ear + ((low + high) / 2 - 0.02, mix(0.6, 0.5, drop) * h, 0)
  return [
    (Part.BODY, lathe([(0, 0), *side, *wall], 24)),
    (Part.TRIM, tube(ear, 0.065)),
  ]


def make_wine_glass(
  bowl: float, stem: float, flare: float, foot: float
) -> Pieces:
  """Makes a wine glass: a bowl on a thin stem with a foot."""
  r = mix(0.3, 0.42, bowl)
  s = mix(0.35, 0.6, stem)
  rim = r * mix(0.65, 1.05, flare)
  top = s + 0.75
  outer = curve([(0.05, s), (0.72 * r, s + 0.1), (r, s + 0.33), (rim, top)], 4)
  inner = outer[::-1] * (0.92, 1)
  base = mix(0.22, 0.3, foot)
  stand = curve([(base, 0.03), (0.06, 0.09), (0.045, 0.2), (0.05, s)], 3)
  return [
    (Part.BODY, lathe([*outer, *inner], 20, 60)),
    (Part.TRIM, lathe([(0, 0), (base, 0), *stand], 20)),
  ]


def make_bottle(
  width: float, neck: float, shoulder: float, cap: float
) -> Pieces:
  """Makes a bottle with a long neck and a cap."""
  r = mix(0.2, 0.3, width)
  n = r * mix(0.32, 0.45, neck)
  s = mix(0.5, 0.7, shoulder)
  lid = mix(0.08, 0.16, cap)
  side = [(0, 0), (r * 0.94, 0), (r, 0.04), (r, s - 0.1)]
  bend = curve([(r, s - 0.08), (r * 0.9, s), (n, s + 0.17), (n, 1.0)], 4)
  return [
    (Part.BODY, lathe([*side, *bend])),
    (Part.TRIM, cylinder(n * 1.25, lid).move(y=0.97)),
  ]


def make_bowl(depth: float, foot: float, flare: float, rim: float) -> Pieces:
  """Makes an open bowl on a ring foot."""
  h = mix(0.38, 0.6, depth)
  base = mix(0.18, 0.26, foot)
  wide = mix(0.46, 0.56, flare)
  outer = curve([(base, 0.07), (0.42, 0.4 * h), (wide, h)], 5)
  inner = outer[::-1] * (0.92, 1) + (0, 0.03)
  thick = mix(0.014, 0.03, rim)
  return [
    (Part.BODY, lathe([(0, 0.07), *outer, *inner, (0, 0.1)], 24, 60)),
    (Part.TRIM, cylinder(base * 1.05, 0.09, base, 24)),
    (Part.TRIM, torus(wide - 0.01, thick).turn('x', 90).move(y=h)),
  ]


def make_toaster(
  length: float, height: float, roundness: float, toast: float
) -> Pieces:
  """Makes a toaster with two slices of toast in it."""
  w, h = mix(0.85, 1.2, length), mix(0.55, 0.75, height)
  up = mix(0.06, 0.2, toast)
  pieces: Pieces = [
    (
      Part.BODY,
      rounded_box(w, h, 0.6, mix(0.08, 0.2, roundness)).move(y=0.05),
    ),
    (Part.DARK, box(w * 0.9, 0.06, 0.52)),
    (Part.DARK, box(0.04, 0.4 * h, 0.08).move(w / 2, 0.3 * h)),
    (Part.TRIM, box(0.12, 0.09, 0.2).move(w / 2 + 0.06, 0.55 * h)),
  ]
  for z in (-0.13, 0.13):
    pieces.append((Part.DARK, box(w * 0.78, 0.02, 0.16).move(0, h + 0.04, z)))
    slice_ = rounded_box(w * 0.64, 0.4, 0.09, 0.09)
    pieces.append((Part.WOOD, slice_.move(0, h - 0.35 + up, z)))
  return pieces


def make_cupcake(
  swirl: float, width: float, cup: float, cherry: float
) -> Pieces:
  """Makes a cupcake: frosting in tiers above a paper cup, with a cherry."""
  r = mix(0.42, 0.52, width)
  h = mix(0.26, 0.36, cup)
  tiers = 3
  rise = mix(0.19, 0.26, swirl)
  pieces: Pieces = [(Part.LIGHT, cylinder(r * 0.66, h, r * 0.88))]
  for i in range(tiers):
    size = r * (1.06 - 0.3 * i)
    ball = ellipsoid(size, 0.2, segments=20, rows=8)
    pieces.append((Part.BODY, ball.move(y=h + 0.08 + i * rise)))
  top = h + 0.2 + (tiers - 1) * rise
  ball = ellipsoid(mix(0.09, 0.14, cherry), segments=12, rows=8)
  pieces.append((Part.TRIM, ball.move(y=top + 0.1)))
  return pieces


def make_frying_pan(
  depth: float, handle: float, flare: float, lift: float
) -> Pieces:
  """Makes a frying pan with a long handle."""
  h = mix(0.16, 0.28, depth)
  low, high = mix(0.46, 0.36, flare), 0.5
  outer = [(0, 0), (low, 0), (high, h)]
  inner = [(high - 0.04, h), (low - 0.03, 0.05), (0, 0.05)]
  reach = mix(0.5, 0.75, handle)
  rise = mix(0.05, 0.25, lift)
  grip = [(0.45, 0.75 * h, 0), (0.6, h, 0), (0.5 + reach, h + rise, 0)]
  return [
    (Part.BODY, lathe([*outer, *inner], 28)),
    (Part.TRIM, tube(curve(grip), 0.06).scale(1, 1, 1.4)),
  ]

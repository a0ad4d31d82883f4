"""Composes tools, instruments, clothes and other things people use."""

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
)
from vhop_jax.worlds.assets.sweeps import extrude, loft, torus, tube


def make_dumbbell(
  discs: float, length: float, grip: float, taper: float
) -> Pieces:
  """Makes a dumbbell lying on its discs."""
  w = mix(0.5, 0.75, length)
  r = mix(0.24, 0.34, discs)
  t = mix(0.04, 0.09, grip)
  pieces: Pieces = [
    (Part.METAL, tube([(-w - 0.1, r, 0), (w + 0.1, r, 0)], t)),
  ]
  small = r * mix(0.65, 0.85, taper)
  for x in (-1, 1):
    big = cylinder(r, 0.26, segments=20).move(y=-0.13).turn('z', 90)
    disc = cylinder(small, 0.1, segments=18).move(y=-0.05).turn('z', 90)
    pieces.append((Part.BODY, big.move(x * (w - 0.12), r)))
    pieces.append((Part.TRIM, disc.move(x * (w + 0.04), r)))
  return pieces


def make_hammer(head: float, handle: float, claw: float, grip: float) -> Pieces:
  """Makes a hammer standing on its handle, with a claw."""
  h = mix(0.75, 1.0, handle)
  w = mix(0.24, 0.32, head)
  fork = mix(0.3, 0.42, claw)
  g = mix(0.055, 0.08, grip)
  face = cylinder(0.14, 0.14, segments=16).turn('z', -90)
  pieces: Pieces = [
    (Part.WOOD, cylinder(g * 1.15, h, g * 0.8, 10)),
    (Part.BODY, box(0.26, 0.28, 0.28).move(y=h - 0.06)),
    (
      Part.BODY,
      cylinder(0.11, w, segments=14).turn('z', -90).move(0.08, h + 0.08),
    ),
    (Part.BODY, face.scale(1, 1.15, 1.15).move(0.08 + w, h + 0.08)),
    (Part.TRIM, cylinder(g * 1.5, 0.2, g * 1.3, 10)),
  ]
  for z in (-1, 1):
    path = curve(
      [
        (-0.1, h + 0.12, z * 0.05),
        (-0.1 - fork * 0.6, h + 0.1, z * 0.08),
        (-0.1 - fork, h - 0.08, z * 0.1),
      ]
    )
    spike = tube(path, np.linspace(0.1, 0.025, len(path)), 8)
    pieces.append((Part.BODY, spike))
  return pieces


def make_key(
  bow: float, length: float, teeth: float, thickness: float
) -> Pieces:
  """Makes a big key standing on its tip."""
  r = mix(0.17, 0.24, bow)
  h = mix(0.55, 0.75, length)
  t = mix(0.055, 0.08, thickness)
  count = 2 + round(teeth)
  pieces: Pieces = [
    (Part.BODY, torus(r, t * 1.15).move(y=h + r)),
    (Part.BODY, tube([(0, 0, 0), (0, h, 0)], t, 10)),
    (Part.TRIM, cylinder(t * 1.7, 0.08, segments=14).move(y=h - 0.13)),
  ]
  for i in range(count):
    tooth = box(0.26 - 0.05 * (i % 2), 0.085, t * 1.3)
    pieces.append((Part.BODY, tooth.move(0.11, 0.03 + 0.13 * i)))
  return pieces


def make_guitar(waist: float, neck: float, body: float, hole: float) -> Pieces:
  """Makes a guitar standing upright."""
  n = mix(0.55, 0.75, neck)
  low = mix(0.32, 0.4, body)
  pinch = mix(0.17, 0.25, waist)
  high = low * 0.72
  half = curve(
    [
      (0.03, 0.0),
      (low * 0.72, 0.05),
      (low, 0.25),
      (pinch, 0.5),
      (high, 0.7),
      (high * 0.6, 0.86),
      (0.05, 0.88),
    ],
    4,
  )
  outline = np.concatenate([half, half[::-1] * (-1, 1)])
  hub = mix(0.09, 0.15, hole)
  front = 0.11
  top = 0.8 + n
  pieces: Pieces = [
    (Part.BODY, extrude(outline, 0.2, 50)),
    (
      Part.DARK,
      cylinder(hub, 0.02, segments=16)
      .turn('x', 90)
      .move(0, 0.52, front - 0.01),
    ),
    (Part.TRIM, box(0.24, 0.06, 0.05).move(0, 0.22, front)),
    (Part.WOOD, box(0.12, n + 0.2, 0.08).move(0, 0.6, front)),
    (Part.TRIM, box(0.15, 0.2, 0.09, (1.35, 1)).move(0, top, front - 0.02)),
  ]
  for x in (-1, 1):
    for y in (0.05, 0.14):
      peg = box(0.07, 0.035, 0.05).move(x * 0.13, top + y, front - 0.02)
      pieces.append((Part.LIGHT, peg))
  return pieces


def make_trophy(cup: float, handles: float, stem: float, base: float) -> Pieces:
  """Makes a trophy cup with two handles on a plinth."""
  r = mix(0.28, 0.38, cup)
  s = mix(0.16, 0.3, stem)
  b = mix(0.36, 0.5, base)
  e = mix(0.14, 0.22, handles)
  y = 0.2
  bowl = curve([(0.06, y + s), (r * 0.75, y + s + 0.12), (r, y + s + 0.6)], 5)
  inner = [(r - 0.04, y + s + 0.6), (r * 0.6, y + s + 0.2), (0, y + s + 0.15)]
  foot = curve([(0.22, y), (0.07, y + 0.1), (0.06, y + s)], 3)
  pieces: Pieces = [
    (Part.TRIM, box(b, y, b, 0.85)),
    (Part.BODY, lathe(foot, 14)),
    (Part.BODY, lathe([*bowl, *inner], 22, 60)),
  ]
  for x in (-1, 1):
    ear = arc(e, -110, 110, 10) * (1, 1.15, 1) + (r * 0.88, y + s + 0.36, 0)
    pieces.append((Part.BODY, tube(ear, 0.045).scale(x, 1, 1)))
  return pieces


def make_hat(height: float, brim: float, taper: float, band: float) -> Pieces:
  """Makes a top hat with a ribbon."""
  h = mix(0.5, 0.8, height)
  r = 0.33
  top = r * mix(0.85, 1.12, taper)
  wide = mix(0.48, 0.58, brim)
  b = mix(0.1, 0.18, band)
  y = 0.07
  curl = [
    (0, 0.02),
    (wide * 0.85, 0.0),
    (wide, 0.08),
    (wide - 0.04, 0.1),
    (r, y),
  ]
  ribbon = lathe([(r + 0.012, y), (mix(r, top, b / h) + 0.014, y + b)], 24)
  return [
    (Part.BODY, lathe([*curl, (top, y + h), (0, y + h)], 24)),
    (Part.TRIM, ribbon),
  ]


def make_boot(shaft: float, toe: float, heel: float, cuff: float) -> Pieces:
  """Makes a rubber boot, its toe to the right."""
  h = mix(0.75, 1.0, shaft)
  t = mix(0.45, 0.6, toe)
  k = mix(0.03, 0.07, heel)
  c = mix(0.08, 0.16, cuff)
  sole = k + 0.04
  rows = np.array(
    [
      # Centre along x, height, half length, half width.
      [0.5 * t - 0.2, sole, 0.5 * t + 0.02, 0.165],
      [0.5 * t - 0.2, sole + 0.1, 0.5 * t + 0.03, 0.18],
      [0.45 * t - 0.2, sole + 0.2, 0.45 * t + 0.02, 0.17],
      [0.1 * t - 0.14, sole + 0.3, 0.2 + 0.1 * t, 0.16],
      [-0.06, sole + 0.45, 0.2, 0.165],
      [-0.05, sole + h, 0.22, 0.19],
    ]
  )
  angle = -np.arange(16) * 2 * np.pi / 16
  rings = np.stack(
    [
      rows[:, :1] + rows[:, 2:3] * np.cos(angle),
      np.repeat(rows[:, 1:2], 16, 1),
      rows[:, 3:] * np.sin(angle),
    ],
    -1,
  )
  pad = rings[[0, 0]] * (1.03, 0, 1.08) + np.array(
    [[[0, k - 0.02, 0]], [[0, sole + 0.03, 0]]]
  )
  ring = lathe([(0.19, 0), (0.235, 0), (0.235, c), (0.19, c)], 18).scale(
    1, 1, 0.88
  )
  hole = cylinder(0.2, 0.01, segments=18).scale(1, 1, 0.85)
  return [
    (Part.BODY, loft(rings)),
    (Part.DARK, loft(pad)),
    (Part.DARK, box(0.26, sole, 0.32, 1.1).move(-0.08)),
    (Part.DARK, box(0.3, sole, 0.32, 1.1).move(t - 0.36)),
    (Part.TRIM, ring.move(-0.05, sole + h - c + 0.02)),
    (Part.DARK, hole.move(-0.05, sole + h)),
  ]


def make_anvil(horn: float, waist: float, length: float, foot: float) -> Pieces:
  """Makes an anvil with a horn to the right."""
  w = mix(0.6, 0.8, length)
  n = mix(0.26, 0.4, waist)
  k = mix(0.35, 0.5, horn)
  f = mix(0.55, 0.7, foot)
  spike = cylinder(0.15, k, 0.02, 14).turn('z', -90).scale(1, 0.8, 1)
  return [
    (Part.TRIM, box(f, 0.14, 0.42, 0.9)),
    (Part.BODY, box(f * 0.8, 0.14, 0.36, (n / (f * 0.8), 0.7)).move(y=0.14)),
    (Part.BODY, box(n, 0.22, 0.26, (1.3, 1.2)).move(y=0.26)),
    (Part.BODY, box(w, 0.24, 0.36).move(-0.04, 0.46)),
    (Part.BODY, spike.move(w / 2 - 0.06, 0.58)),
    (Part.BODY, box(0.2, 0.13, 0.3).move(-w / 2 - 0.1, 0.57)),
  ]


def make_telephone(
  width: float, dial: float, cord: float, height: float
) -> Pieces:
  """Makes an old telephone with a dial and a handset on top."""
  w = mix(0.65, 0.8, width)
  h = mix(0.4, 0.52, height)
  r = mix(0.15, 0.2, dial)
  case = box(w, h, 0.62, (0.62, 0.5)).move(z=-0.04)
  lean = 22
  face = cylinder(r, 0.05, segments=18).turn('x', 90 - lean)
  knob = cylinder(r * 0.42, 0.08, segments=12).turn('x', 90 - lean)
  grip = curve(
    [
      (-0.44, h + 0.1, 0),
      (-0.3, h + 0.24, 0),
      (0.3, h + 0.24, 0),
      (0.44, h + 0.1, 0),
    ],
    4,
  )
  pieces: Pieces = [
    (Part.BODY, case),
    (Part.LIGHT, face.move(0, h * 0.48, 0.18)),
    (Part.TRIM, knob.move(0, h * 0.49, 0.2)),
    (Part.BODY, tube(grip, 0.07, 10).move(z=-0.06)),
  ]
  size = mix(0.12, 0.16, cord)
  for x in (-1, 1):
    cup = cylinder(size, 0.14, size * 0.75, 14)
    pieces.append(
      (Part.BODY, cup.turn('z', x * 20).move(x * 0.44, h + 0.0, -0.06))
    )
    pieces.append(
      (Part.TRIM, box(0.1, 0.14, 0.2).move(x * 0.17, h - 0.02, -0.06))
    )
  return pieces


def make_globe(tilt: float, size: float, stand: float, land: float) -> Pieces:
  """Makes a globe with land on it, held by an arm on a foot."""
  r = mix(0.34, 0.42, size)
  s = mix(0.2, 0.3, stand)
  y = 0.24 + r
  lean = mix(15, 35, tilt)
  arm = arc(r + 0.07, -100, 90, 14)
  pieces: Pieces = [
    (Part.BODY, ellipsoid(r, segments=22, rows=14).move(y=y)),
    (Part.METAL, tube(arm, 0.026).turn('z', -lean).move(y=y)),
    (Part.BODY, cylinder(s, 0.07, segments=18)),
    (Part.BODY, cylinder(0.07, 0.2, 0.045, 10).move(y=0.05)),
  ]
  spots = (
    (20, 30, 0.4),
    (-25, -40, 0.33),
    (35, -80, 0.3),
    (10, 110, 0.42),
    (-30, 170, 0.34),
    (45, 200, 0.3),
  )
  for high, around, wide in spots:
    patch = ellipsoid(
      r * wide * mix(0.65, 0.9, land), r * wide * 0.65, 0.05, 12, 6
    )
    patch = patch.move(z=r * 0.965).turn('x', -high).turn('y', around)
    pieces.append((Part.TRIM, patch.move(y=y)))
  return pieces


def make_camera(
  width: float, lens: float, flash: float, height: float
) -> Pieces:
  """Makes a camera with a big lens and a flash."""
  w = mix(0.85, 1.05, width)
  h = mix(0.5, 0.62, height)
  r = mix(0.2, 0.26, lens)
  k = mix(0.14, 0.3, lens)
  barrel = cylinder(r, k, r * 0.92, 20).turn('x', 90)
  glass = cylinder(r * 0.72, 0.03, segments=16).turn('x', 90)
  return [
    (Part.BODY, box(w, h, 0.36)),
    (
      Part.BODY,
      box(w * 0.38, mix(0.12, 0.2, flash), 0.3, (0.7, 0.9)).move(y=h),
    ),
    (Part.TRIM, barrel.move(0, h * 0.5, 0.17)),
    (Part.DARK, glass.move(0, h * 0.5, 0.17 + k)),
    (Part.LIGHT, box(w * 0.2, 0.09, 0.03).move(0, h + 0.03, 0.14)),
    (Part.METAL, cylinder(0.07, 0.07, segments=12).move(w * 0.34, h)),
    (Part.DARK, cylinder(0.09, 0.05, segments=12).move(-w * 0.34, h)),
    (Part.DARK, box(w * 0.14, h * 0.8, 0.03).move(-w * 0.4, h * 0.1, 0.18)),
  ]

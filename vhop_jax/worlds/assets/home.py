"""Composes small things from around the house."""

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


def make_vase(belly: float, neck: float, lip: float, height: float) -> Pieces:
  """Makes a vase with a belly, a narrow neck and a flared lip."""
  b = mix(0.26, 0.4, belly)
  n = mix(0.09, 0.18, neck)
  rim = mix(0.16, 0.34, lip)
  at = mix(0.28, 0.45, height)
  outer = curve([(0.16, 0), (b, at), (n, 0.78), (rim, 1.0)], 6)
  inner = [(rim - 0.03, 1.0), (n - 0.03, 0.78), (0, 0.7)]
  return [
    (Part.BODY, lathe([(0, 0), *outer, *inner], 20, 60)),
    (Part.TRIM, cylinder(0.19, 0.05)),
  ]


def make_bucket(
  taper: float, height: float, handle: float, rim: float
) -> Pieces:
  """Makes a bucket with a raised wire handle."""
  h = mix(0.65, 0.9, height)
  low = mix(0.4, 0.3, taper)
  up = mix(0.3, 0.6, handle)
  wire = arc(1.0, 0, 180, 14) * (0.5, up, 1) + (0, h - 0.06, 0)
  side = [(0, 0), (low, 0), (0.5, h), (0.45, h), (low - 0.04, 0.06), (0, 0.06)]
  band = torus(0.5, mix(0.014, 0.045, rim)).turn('x', 90).move(y=h)
  return [
    (Part.BODY, lathe(side, 24)),
    (Part.TRIM, band),
    (Part.METAL, tube(wire, 0.025, 6)),
  ]


def make_barrel(
  belly: float, height: float, hoops: float, gap: float
) -> Pieces:
  """Makes a barrel with hoops."""
  h = mix(0.95, 1.35, height)
  end = mix(0.4, 0.3, belly)
  side = curve([(end, 0), (0.46, h / 2), (end, h)], 6)
  pieces: Pieces = [
    (
      Part.BODY,
      lathe(
        [(0, 0), *side, (end - 0.05, h), (end - 0.05, h - 0.05), (0, h - 0.05)],
        22,
      ),
    ),
  ]
  wide = mix(0.02, 0.036, hoops)
  out = mix(0.01, 0.04, hoops)
  for y in (mix(0.1, 0.2, gap), mix(0.35, 0.3, gap)):
    for level in (y, 1 - y):
      r = np.interp(level * h, side[:, 1], side[:, 0])
      hoop = lathe(
        [
          (r - 0.02, -wide / 2),
          (r + out, -wide / 2),
          (r + out, wide / 2),
          (r - 0.02, wide / 2),
        ],
        22,
      )
      pieces.append((Part.TRIM, hoop.move(y=level * h)))
  return pieces


def make_lamp(shade: float, taper: float, stem: float, foot: float) -> Pieces:
  """Makes a table lamp with a large shade."""
  r = mix(0.36, 0.48, shade)
  top = r * mix(0.4, 0.75, taper)
  s = mix(0.35, 0.6, stem)
  h = mix(0.42, 0.56, shade)
  outer = [(r, s), (top, s + h)]
  inner = [(top - 0.02, s + h), (r - 0.02, s)]
  base = mix(0.18, 0.28, foot)
  stand = curve([(base, 0.04), (0.06, 0.1), (0.09, 0.2), (0.04, s)], 3)
  return [
    (Part.BODY, lathe([*outer, *inner], 22)),
    (Part.LIGHT, ellipsoid(0.12, segments=10, rows=6).move(y=s + 0.12)),
    (Part.TRIM, lathe([(0, 0), (base, 0), *stand, (0.04, s + 0.1)], 16)),
  ]


def make_candle(
  width: float, height: float, plate: float, flame: float
) -> Pieces:
  """Makes a thick burning candle in a chamberstick with a finger ring."""
  r = mix(0.15, 0.22, width)
  h = mix(0.7, 0.95, height)
  p = mix(0.23, 0.29, plate)
  f = mix(0.1, 0.15, flame)
  fire = lathe(curve([(0, 0), (0.07, 0.4 * f), (0.05, f), (0, 2.2 * f)], 3), 10)
  dish = [
    (0, 0),
    (p * 0.8, 0),
    (p, 0.1),
    (p - 0.04, 0.1),
    (p * 0.75, 0.05),
    (0, 0.05),
  ]
  return [
    (Part.BODY, lathe([(0, 0), (r, 0), (r, h - 0.03), (r - 0.03, h), (0, h)])),
    (Part.TRIM, lathe(dish)),
    (Part.METAL, torus(0.1, 0.03, 14).move(p + 0.06, 0.1)),
    (Part.DARK, cylinder(0.02, 0.1, segments=6).move(y=h)),
    (Part.LIGHT, fire.move(y=h + 0.05)),
  ]


def make_lantern(
  width: float, height: float, roof: float, handle: float
) -> Pieces:
  """Makes a lantern with a glowing pane on each side and a ring on top."""
  w = mix(0.42, 0.56, width)
  h = mix(0.5, 0.75, height)
  r = mix(0.22, 0.36, roof)
  ring = mix(0.09, 0.15, handle)
  pieces: Pieces = [
    (Part.BODY, box(w * 1.2, 0.12, w * 1.2)),
    (Part.LIGHT, box(w * 0.8, h, w * 0.8).move(y=0.1)),
    (Part.BODY, box(w * 1.35, 0.06, w * 1.35).move(y=0.08 + h)),
    (Part.BODY, box(w * 1.3, r, w * 1.3, 0.25).move(y=0.12 + h)),
    (Part.TRIM, torus(ring, 0.03, 14).move(y=0.1 + h + r + ring)),
  ]
  for x in (-1, 1):
    for z in (-1, 1):
      post = box(0.11, h, 0.11).move(x * w / 2, 0.1, z * w / 2)
      pieces.append((Part.BODY, post))
    pieces.append(
      (Part.BODY, box(w, 0.06, 0.05).move(0, 0.1 + h / 2, x * w * 0.42))
    )
    pieces.append(
      (Part.BODY, box(0.05, 0.06, w).move(x * w * 0.42, 0.1 + h / 2, 0))
    )
  return pieces


def make_gift_box(
  width: float, height: float, ribbon: float, bow: float
) -> Pieces:
  """Makes a wrapped gift with a ribbon and a bow."""
  w = mix(0.7, 1.0, width)
  h = mix(0.5, 0.9, height)
  s = mix(0.045, 0.1, ribbon)
  size = mix(0.12, 0.17, bow)
  pieces: Pieces = [
    (Part.BODY, box(w, h, 0.8)),
    (Part.BODY, box(w * 1.07, 0.16, 0.86).move(y=h - 0.1)),
    (Part.TRIM, box(s, h + 0.08, 0.88)),
    (Part.TRIM, box(w * 1.09, h + 0.08, s)),
  ]
  for side in (-1, 1):
    loop = torus(size, 0.028, 14).scale(1, 0.65, 1.4).move(size * 0.95)
    loop = loop.turn('z', 25).scale(side, 1, 1)
    pieces.append((Part.TRIM, loop.move(y=h + 0.13)))
  pieces.append(
    (Part.TRIM, ellipsoid(0.09, segments=10, rows=6).move(y=h + 0.13))
  )
  return pieces


def make_alarm_clock(
  bells: float, depth: float, legs: float, hands: float
) -> Pieces:
  """Makes an alarm clock with two bells on top."""
  d = mix(0.25, 0.45, depth)
  b = mix(0.16, 0.22, bells)
  s = mix(0.1, 0.2, legs)
  case = cylinder(0.5, d, segments=26).move(y=-d / 2).turn('x', 90)
  pieces: Pieces = [
    (Part.BODY, case),
    (Part.BODY, torus(0.47, 0.06).move(z=d / 2)),
    (Part.LIGHT, cylinder(0.43, 0.03, segments=24).turn('x', 90).move(z=d / 2)),
  ]
  for angle in (0, 90, 180, 270):
    tick = box(0.05, 0.09, 0.03).move(0, 0.31, d / 2 + 0.03)
    pieces.append((Part.DARK, tick.turn('z', angle)))
  for turn, size in ((0.0, 0.3), (mix(-150, -60, hands), 0.22)):
    hand = box(0.07, size, 0.03).move(z=d / 2 + 0.045)
    pieces.append((Part.DARK, hand.turn('z', turn)))
  for side in (-1, 1):
    bell = ellipsoid(b, b * 0.8, b, 14, 8).move(y=0.5 + b * 0.65)
    pieces.append((Part.BODY, bell.turn('z', 36 * side)))
    leg = tube([(0, -0.45, 0), (0, -0.5 - s, 0)], [0.06, 0.08])
    pieces.append((Part.TRIM, leg.turn('z', 35 * side)))
  pieces.append((Part.TRIM, box(0.06, 0.2, 0.06).move(y=0.5)))
  pieces.append((Part.TRIM, box(0.16, 0.08, 0.1).move(y=0.68)))
  return pieces


def make_hourglass(
  waist: float, width: float, posts: float, plates: float
) -> Pieces:
  """Makes an hourglass: two bulbs between plates held by posts."""
  r = mix(0.26, 0.34, width)
  w = mix(0.05, 0.12, waist)
  bulb = curve([(r, 0.06), (r, 0.22), (w, 0.545), (r, 0.87), (r, 1.03)], 5)
  h = mix(0.07, 0.14, plates)
  pieces: Pieces = [
    (Part.BODY, lathe(bulb, 20, 60)),
    (Part.BODY, cylinder(r * 1.3, h)),
    (Part.BODY, cylinder(r * 1.3, h).move(y=1.09 - h)),
  ]
  thick = mix(0.02, 0.04, posts)
  away = r * mix(0.98, 1.16, posts)
  for angle in (45, 135, 225, 315):
    post = cylinder(thick, 1.0, segments=6).move(away, 0.05)
    pieces.append((Part.TRIM, post.turn('y', angle)))
  return pieces


def make_umbrella(
  dome: float, hook: float, ribs: float, length: float
) -> Pieces:
  """Makes an open umbrella on its hooked stick."""
  h = mix(0.24, 0.42, dome)
  s = mix(0.75, 1.0, length)
  panels = 6 + 2 * round(2 * ribs)
  r = mix(0.07, 0.11, hook)
  outer = curve(
    [(0.62, s - h), (0.5, s - 0.35 * h), (0.25, s - 0.07 * h), (0, s)], 4
  )
  inner = outer[::-1] - (0, 0.02)
  stick = [*(arc(r, 180, 350, 8) + (r, r, 0))[::-1], (0, 2 * r, 0), (0, s, 0)]
  del stick[-3]
  hooked = np.array(
    [
      *(arc(r, 360, 180, 8) + (-r, r, 0)),
    ]
  )
  handle = np.concatenate([hooked[::-1], [(0, 2.2 * r, 0), (0, 0.3, 0)]])
  return [
    (Part.BODY, lathe([*outer, *inner], panels, 60)),
    (Part.METAL, cylinder(0.025, s - 0.1, segments=8).move(y=0.15)),
    (Part.TRIM, tube(handle, 0.045)),
    (Part.TRIM, cylinder(0.03, 0.12, 0.01, 8).move(y=s - 0.01)),
  ]


def make_watering_can(
  height: float, spout: float, handle: float, rose: float
) -> Pieces:
  """Makes a watering can with a long spout and a sprinkler head."""
  h = mix(0.5, 0.75, height)
  reach = mix(0.75, 1.0, spout)
  top = mix(0.75, 1.0, spout)
  head = mix(0.1, 0.15, rose)
  path = [(0.3, 0.12, 0), (reach, top, 0)]
  loop = curve(
    [
      (-0.3, 0.15 * h, 0),
      (-mix(0.55, 0.75, handle), 0.6 * h, 0),
      (-0.45, h + 0.2, 0),
      (0.0, h + 0.22, 0),
      (0.25, h - 0.05, 0),
    ],
    4,
  )
  sprinkler = (
    cylinder(0.05, 0.16, head, 16).turn('z', -48).move(reach - 0.03, top - 0.02)
  )
  return [
    (Part.BODY, cylinder(0.4, h, 0.34, 22)),
    (Part.BODY, tube(path, [0.11, 0.05])),
    (Part.TRIM, sprinkler),
    (Part.TRIM, tube(loop, 0.036)),
  ]


def make_bell(
  flare: float, height: float, handle: float, clapper: float
) -> Pieces:
  """Makes a hand bell with a wooden grip."""
  h = mix(0.65, 0.85, height)
  r = mix(0.42, 0.52, flare)
  side = curve(
    [
      (r, 0.05),
      (0.36, 0.18 * h),
      (0.3, 0.5 * h),
      (0.27, 0.78 * h),
      (0.18, 0.95 * h),
      (0.05, h),
    ],
    4,
  )
  g = mix(0.25, 0.42, handle)
  grip = lathe(
    curve(
      [(0.06, 0), (0.09, 0.5 * g), (0.06, 0.8 * g), (0.1, g), (0, g + 0.06)], 3
    ),
    12,
  )
  return [
    (Part.BODY, lathe([(r - 0.06, 0.08), *side, (0, h + 0.1)], 24)),
    (Part.DARK, cylinder(r - 0.05, 0.02).move(y=0.06)),
    (
      Part.METAL,
      ellipsoid(mix(0.08, 0.13, clapper), segments=10, rows=6).move(y=0.08),
    ),
    (Part.TRIM, grip.move(y=h + 0.08)),
  ]


def make_backpack(
  height: float, roundness: float, pocket: float, straps: float
) -> Pieces:
  """Makes a backpack with a front pocket, a flap and two straps."""
  h = mix(0.8, 1.05, height)
  p = mix(0.3, 0.45, pocket)
  apart = mix(0.17, 0.27, straps)
  top = arc(0.14, 0, 180, 8) + (0, h - 0.02, 0)
  pieces: Pieces = [
    (Part.BODY, rounded_box(0.74, h, 0.4, mix(0.1, 0.19, roundness), 4)),
    (Part.BODY, rounded_box(0.54, p, 0.2, 0.08).move(0, 0.08, 0.24)),
    (Part.TRIM, rounded_box(0.56, 0.08, 0.22, 0.04).move(0, p, 0.24)),
    (Part.TRIM, rounded_box(0.77, 0.06, 0.43, 0.03).move(0, h * 0.72)),
    (Part.TRIM, tube(top, 0.035)),
  ]
  for side in (-1, 1):
    pieces.append(
      (Part.BODY, rounded_box(0.16, 0.34, 0.26, 0.07).move(side * 0.41, 0.05))
    )
    strap = curve(
      [
        (0, h * 0.92, -0.18),
        (0, h * 0.75, -0.38),
        (0, h * 0.3, -0.36),
        (0, 0.06, -0.18),
      ],
      4,
    )
    pieces.append((Part.DARK, tube(strap, 0.036).move(side * apart)))
  return pieces

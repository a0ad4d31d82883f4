"""Composes houses and things that stand outdoors."""

import numpy as np

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Pieces,
  box,
  cylinder,
  ellipsoid,
  lathe,
  mix,
)
from vhop_jax.worlds.assets.sweeps import extrude, torus, tube


def _gable(
  width: float, eaves: float, ridge: float
) -> list[tuple[float, float]]:
  """Returns the outline of a wall under a pitched roof."""
  return [
    (-width / 2, 0),
    (width / 2, 0),
    (width / 2, eaves),
    (0, ridge),
    (-width / 2, eaves),
  ]


def _roof(
  width: float,
  eaves: float,
  ridge: float,
  depth: float,
  thickness: float,
  part: Part,
) -> Pieces:
  """Makes the two slabs of a pitched roof."""
  run, rise = width / 2, ridge - eaves
  slope = float(np.degrees(np.arctan2(rise, run)))
  long = float(np.hypot(run, rise)) * 1.22
  pieces: Pieces = []
  for side in (-1, 1):
    slab = box(long, thickness, depth).move(long / 2).turn('z', -slope)
    pieces.append((part, slab.scale(side, 1, 1).move(y=ridge)))
  return pieces


def make_house(
  height: float, roof: float, chimney: float, width: float
) -> Pieces:
  """Makes a house with a pitched roof, a chimney, a door and windows."""
  w = mix(0.7, 0.85, width)
  e = mix(0.62, 0.8, height)
  r = e + mix(0.17, 0.28, roof)
  d = 0.64
  c = mix(0.1, 0.2, chimney)
  front = d / 2
  pieces: Pieces = [
    (Part.BODY, extrude(_gable(w, e, r), d)),
    *_roof(w, e, r, d * 1.04, 0.045, Part.WOOD),
    (Part.BODY, box(0.14, r - e + c, 0.14).move(w * 0.27, e + 0.05, -0.12)),
    (Part.TRIM, box(0.2, 0.34, 0.03).move(0, 0, front)),
  ]
  for x in (-1, 1):
    window = box(0.14, 0.14, 0.03).move(x * w * 0.3, 0.2, front)
    pieces.append((Part.LIGHT, window))
    side = box(0.03, 0.16, 0.16)
    pieces.append((Part.LIGHT, side.move(x * w / 2, 0.2, 0.16)))
    pieces.append((Part.LIGHT, side.move(x * w / 2, 0.2, -0.16)))
  return pieces


def make_bird_house(
  height: float, roof: float, hole: float, pole: float
) -> Pieces:
  """Makes a bird house with a round hole on a pole."""
  p = mix(0.3, 0.5, pole)
  e = mix(0.34, 0.48, height)
  r = e + mix(0.18, 0.3, roof)
  w = 0.52
  h = mix(0.085, 0.12, hole)
  return [
    (Part.WOOD, cylinder(0.05, p, segments=8)),
    (Part.TRIM, cylinder(0.2, 0.06, 0.16, 14)),
    (Part.BODY, extrude(_gable(w, e, r), 0.46).move(y=p)),
    *[
      (part, piece.move(y=p))
      for part, piece in _roof(w, e, r, 0.56, 0.05, Part.BODY)
    ],
    (
      Part.DARK,
      cylinder(h, 0.02, segments=16).turn('x', 90).move(0, p + e * 0.75, 0.225),
    ),
    (
      Part.WOOD,
      tube([(0, p + e * 0.38, 0.2), (0, p + e * 0.38, 0.36)], 0.025, 6),
    ),
  ]


def make_mailbox(
  length: float, post: float, flag: float, height: float
) -> Pieces:
  """Makes a mailbox with a round top on a post, with a raised flag."""
  w = mix(0.65, 0.9, length)
  p = mix(0.4, 0.6, post)
  h = mix(0.14, 0.24, height)
  r = 0.24
  angle = np.radians(np.linspace(0, 180, 11))
  outline = [
    (-r, 0.0),
    (r, 0.0),
    *np.stack([r * np.cos(angle), h + r * np.sin(angle)], -1),
  ]
  case = extrude(outline, w).turn('y', 90).move(y=p)
  door = extrude(np.array(outline) * 0.86, 0.04).turn('y', 90)
  up = mix(0.24, 0.36, flag)
  return [
    (Part.WOOD, box(0.12, p, 0.12)),
    (Part.BODY, case),
    (Part.LIGHT, door.move(w / 2 + 0.005, p + 0.03)),
    (
      Part.DARK,
      ellipsoid(0.04, segments=8, rows=6).move(w / 2 + 0.04, p + h + 0.1),
    ),
    (Part.TRIM, box(0.05, up + 0.1, 0.03).move(w * 0.2, p + h * 0.5, r + 0.02)),
    (
      Part.TRIM,
      box(0.2, 0.14, 0.03).move(w * 0.2 + 0.075, p + h * 0.5 + up, r + 0.02),
    ),
  ]


def make_windmill(
  height: float, blades: float, taper: float, width: float
) -> Pieces:
  """Makes a windmill with four sails."""
  h = mix(0.7, 0.9, height)
  top = mix(0.17, 0.24, taper)
  long = mix(0.42, 0.55, blades)
  wide = mix(0.12, 0.17, width)
  pieces: Pieces = [
    (Part.BODY, cylinder(0.34, h, top, 18)),
    (Part.BODY, cylinder(top * 1.2, 0.22, 0.02, 18).move(y=h)),
    (Part.DARK, box(0.17, 0.26, 0.06).move(0, 0, 0.3)),
    (Part.LIGHT, box(0.1, 0.1, 0.05).move(0, h * 0.5, 0.27)),
    (Part.DARK, tube([(0, h - 0.02, 0), (0, h - 0.02, top + 0.2)], 0.05)),
  ]
  for angle in (20, 110, 200, 290):
    sail = box(wide, long - 0.1, 0.03).move(wide * 0.35, 0.1)
    arm = box(0.04, long, 0.05)
    for part, piece in ((Part.TRIM, sail), (Part.WOOD, arm)):
      piece = piece.turn('z', angle).move(0, h - 0.02, top + 0.16)
      pieces.append((part, piece))
  return pieces


def make_lighthouse(
  height: float, taper: float, gallery: float, roof: float
) -> Pieces:
  """Makes a lighthouse with a lantern room above a gallery."""
  h = mix(0.7, 0.95, height)
  top = mix(0.13, 0.18, taper)
  g = top + mix(0.05, 0.11, gallery)
  r = mix(0.11, 0.2, roof)
  return [
    (Part.BODY, cylinder(0.36, 0.08, 0.32, 20)),
    (Part.BODY, cylinder(0.28, h, top, 20).move(y=0.06)),
    (Part.DARK, box(0.13, 0.2, 0.06).move(0, 0.06, 0.25)),
    (Part.TRIM, cylinder(g, 0.06, segments=18).move(y=0.05 + h)),
    (Part.LIGHT, cylinder(top * 0.75, 0.18, segments=12).move(y=0.1 + h)),
    (Part.TRIM, cylinder(top * 1.05, r, 0.01, 18).move(y=0.28 + h)),
  ]


def make_castle(
  towers: float, height: float, roof: float, gate: float
) -> Pieces:
  """Makes a castle: walls between round towers with pointed roofs."""
  h = mix(0.42, 0.6, height)
  r = mix(0.12, 0.16, towers)
  k = mix(0.13, 0.22, roof)
  d = mix(0.2, 0.3, gate)
  pieces: Pieces = [
    (Part.BODY, box(0.72, h * 0.75, 0.72)),
    (Part.DARK, box(d, h * 0.5, 0.04).move(0, 0, 0.36)),
  ]
  for x in (-1, 1):
    for z in (-1, 1):
      at = (x * 0.36, 0, z * 0.36)
      pieces.append((Part.BODY, cylinder(r, h, segments=14).move(*at)))
      tip = cylinder(r * 1.04, k, 0, 14).move(x * 0.36, h, z * 0.36)
      pieces.append((Part.TRIM, tip))
  for middle in (-0.15, 0.0, 0.15):
    for z in (-1, 1):
      tooth = box(0.09, 0.08, 0.08).move(middle, h * 0.75, z * 0.32)
      pieces.append((Part.BODY, tooth))
  return pieces


def make_fire_hydrant(
  height: float, nozzles: float, dome: float, foot: float
) -> Pieces:
  """Makes a fire hydrant with side nozzles."""
  h = mix(0.5, 0.7, height)
  n = mix(0.09, 0.13, nozzles)
  d = mix(0.16, 0.26, dome)
  f = mix(0.25, 0.295, foot)
  y = 0.08 + h * 0.68
  nozzle = tube([(-0.38, y, 0), (0.38, y, 0)], n, 10)
  cap = tube([(-0.42, y, 0), (0.42, y, 0)], n * 0.75, 6)
  front = cylinder(0.12, 0.12, segments=14).turn('x', 90)
  return [
    (Part.TRIM, cylinder(f, 0.08)),
    (Part.BODY, cylinder(0.23, h, segments=18).move(y=0.08)),
    (
      Part.BODY,
      lathe(
        [
          (0.27, 0),
          (0.27, 0.05),
          (0.23, 0.06),
          (0.19, d * 0.7),
          (0.06, d),
          (0, d),
        ],
        18,
      ).move(y=0.08 + h),
    ),
    (Part.TRIM, cylinder(0.05, 0.1, segments=6).move(y=0.06 + h + d)),
    (Part.BODY, nozzle),
    (Part.TRIM, cap),
    (Part.BODY, front.move(0, y - 0.04, 0.2)),
  ]


def make_well(
  height: float, roof: float, width: float, bucket: float
) -> Pieces:
  """Makes a well: a round wall, two posts, a pitched roof, a bucket."""
  r = mix(0.34, 0.42, width)
  h = mix(0.32, 0.46, height)
  e = h + 0.45
  k = mix(0.2, 0.34, roof)
  b = mix(0.07, 0.1, bucket)
  pieces: Pieces = [
    (
      Part.BODY,
      lathe([(r, 0), (r, h), (r - 0.09, h), (r - 0.09, 0.1), (0, 0.1)], 20),
    ),
    *_roof(2 * r * 0.9, e, e + k, 0.62, 0.05, Part.BODY),
    (Part.WOOD, tube([(-r, e - 0.1, 0), (r, e - 0.1, 0)], 0.03, 6)),
    (Part.DARK, cylinder(0.012, 0.24, segments=4).move(y=e - 0.34)),
    (Part.TRIM, cylinder(b, 0.13, b * 1.2, 12).move(y=e - 0.45)),
    (Part.TRIM, torus(r - 0.045, 0.05).turn('x', 90).move(y=h)),
  ]
  for x in (-1, 1):
    post = box(0.07, e + 0.04 - h * 0.5, 0.09)
    pieces.append((Part.WOOD, post.move(x * (r - 0.05), h * 0.5)))
  return pieces

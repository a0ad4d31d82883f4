"""Composes vehicles and things of the road; they drive to the right."""

import numpy as np

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Pieces,
  box,
  curve,
  cylinder,
  ellipsoid,
  lathe,
  mix,
  rounded_box,
)
from vhop_jax.worlds.assets.sweeps import extrude, loft, torus, tube


def _wheel(radius: float, width: float) -> Pieces:
  """Makes a wheel with a hub around the z axis, centred at the origin."""
  tyre = cylinder(radius, width, segments=16).move(y=-width / 2)
  hub = cylinder(radius * 0.5, width * 1.1, segments=10).move(y=-width * 0.55)
  return [(Part.DARK, tyre.turn('x', 90)), (Part.LIGHT, hub.turn('x', 90))]


def _at(pieces: Pieces, x: float, y: float, z: float) -> Pieces:
  """Shifts several pieces."""
  return [(part, piece.move(x, y, z)) for part, piece in pieces]


def make_car(cabin: float, length: float, wheels: float, hood: float) -> Pieces:
  """Makes a car with a cabin with windows, and four wheels."""
  w = mix(1.15, 1.5, length)
  c = mix(0.26, 0.38, cabin)
  r = mix(0.12, 0.165, wheels)
  x = mix(-0.16, 0.02, hood)
  span = w * 0.52
  y = r + 0.36
  pieces: Pieces = [
    (Part.BODY, rounded_box(w, 0.4, 0.62, 0.1).move(y=r * 0.8)),
    (Part.BODY, box(span, c, 0.56, (0.68, 0.86)).move(x, y)),
    (
      Part.DARK,
      box(span * 0.8, c * 0.62, 0.555, (0.76, 0.91)).move(x, y + 0.08, 0.016),
    ),
    (
      Part.DARK,
      box(span * 0.8, c * 0.62, 0.555, (0.76, 0.91)).move(x, y + 0.08, -0.016),
    ),
    (Part.DARK, box(span * 0.985, c * 0.6, 0.42, (0.8, 0.9)).move(x, y + 0.08)),
    (Part.TRIM, box(w * 1.03, 0.09, 0.58).move(y=r * 0.85)),
  ]
  for z in (-1, 1):
    for side in (-1, 1):
      pieces += _at(_wheel(r, 0.12), side * w * 0.29, r, z * 0.28)
    lamp = ellipsoid(0.05, 0.075, 0.075, 8, 6)
    pieces.append((Part.LIGHT, lamp.move(w / 2 - 0.01, r + 0.17, z * 0.2)))
  return pieces


def make_sailboat(hull: float, mast: float, sail: float, jib: float) -> Pieces:
  """Makes a sailing boat with two sails."""
  w = mix(0.85, 1.1, hull)
  h = mix(0.75, 1.05, mast)
  x = np.array([-0.5, -0.3, 0.0, 0.3, 0.55]) * w
  half = np.array([0.15, 0.2, 0.21, 0.15, 0.01])
  deck = np.array([0.26, 0.25, 0.25, 0.27, 0.33])
  keel = np.array([0.05, 0.0, 0.0, 0.02, 0.16])
  middle = keel + 0.35 * (deck - keel)
  zeros = 0 * x
  rings = np.stack(
    [
      np.stack([x, deck, half], -1),
      np.stack([x, deck, -half], -1),
      np.stack([x, middle, -0.8 * half], -1),
      np.stack([x, keel, zeros], -1),
      np.stack([x, middle, 0.8 * half], -1),
    ],
    1,
  )[:, ::-1]
  big = [(-mix(0.38, 0.5, sail) * w, 0.36), (0.0, 0.36), (0.0, 0.3 + h)]
  small = [
    (0.06, 0.4),
    (mix(0.3, 0.4, jib) * w, 0.38),
    (0.06, 0.2 + h * mix(0.75, 0.95, jib)),
  ]
  return [
    (Part.BODY, loft(rings[:, ::-1], flat=True)),
    (Part.LIGHT, box(w * 0.26, 0.1, 0.2).move(-0.28 * w, 0.24)),
    (Part.WOOD, cylinder(0.03, h + 0.1, segments=8).move(0.03, 0.24)),
    (Part.BODY, extrude(big, 0.03)),
    (Part.TRIM, extrude(small, 0.03)),
  ]


def make_aeroplane(
  wings: float, body: float, tail: float, propeller: float
) -> Pieces:
  """Makes a propeller plane on its wheels."""
  span = mix(0.5, 0.66, wings)
  r = mix(0.13, 0.18, body)
  t = mix(0.24, 0.36, tail)
  y = 0.32
  hull = curve(
    [
      (0.02, -0.55),
      (r * 0.6, -0.3),
      (r, 0.1),
      (r * 0.95, 0.38),
      (r * 0.5, 0.52),
    ],
    4,
  )
  fuselage = lathe([(0, -0.55), *hull, (0, 0.52)], 16).turn('z', -90)
  chord = 0.26
  wing = [
    (-chord * 0.5, 0),
    (chord * 0.5, 0),
    (chord * 0.35, span),
    (-chord * 0.3, span),
  ]
  fin = [(-0.55, 0.02), (-0.3, 0.02), (-0.46, t), (-0.58, t)]
  p = mix(0.2, 0.3, propeller)
  pieces: Pieces = [
    (Part.BODY, fuselage.move(y=y)),
    (Part.BODY, extrude(fin, 0.05).move(y=y)),
    (Part.DARK, ellipsoid(0.17, 0.1, 0.1, 12, 8).move(0.12, y + r * 0.85)),
    (Part.TRIM, cylinder(0.07, 0.14, 0.01, 10).turn('z', -90).move(0.52, y)),
    (Part.DARK, box(0.03, 2 * p, 0.06).move(0.58, y - p)),
  ]
  flat = extrude(wing, 0.055).turn('x', 90)
  small = flat.scale(0.6, 1, 0.42).move(-0.48, y + 0.04)
  for z in (-1, 1):
    pieces.append((Part.BODY, flat.scale(1, 1, z).move(0.12, y - 0.02)))
    pieces.append((Part.TRIM, small.scale(1, 1, z)))
    pieces.append(
      (
        Part.METAL,
        tube([(0.2, y - r, z * 0.06), (0.2, 0.08, z * 0.16)], 0.025, 6),
      )
    )
    wheel = cylinder(0.08, 0.06, segments=12).turn('x', 90)
    pieces.append((Part.DARK, wheel.move(0.2, 0.08, z * 0.17 - 0.03)))
  return pieces


def make_locomotive(
  boiler: float, chimney: float, cab: float, wheels: float
) -> Pieces:
  """Makes a steam locomotive with a chimney and a cab."""
  r = mix(0.2, 0.26, boiler)
  h = mix(0.2, 0.36, chimney)
  k = mix(0.62, 0.8, cab)
  s = mix(0.12, 0.16, wheels)
  y = s * 1.6
  pieces: Pieces = [
    (Part.BODY, box(1.15, 0.1, 0.42).move(0, y - 0.06)),
    (
      Part.BODY,
      cylinder(r, 0.75, segments=18).turn('z', -90).move(-0.15, y + r),
    ),
    (
      Part.TRIM,
      cylinder(r * 1.06, 0.06, segments=18).turn('z', -90).move(0.58, y + r),
    ),
    (Part.BODY, box(0.36, k, 0.5).move(-0.36, y)),
    (Part.TRIM, box(0.4, 0.055, 0.52).move(-0.36, y + k)),
    (Part.DARK, box(0.18, 0.18, 0.52).move(-0.36, y + k - 0.3)),
    (Part.BODY, cylinder(0.07, h, 0.13, 14).move(0.42, y + 2 * r - 0.03)),
    (Part.BODY, ellipsoid(0.1, segments=12, rows=8).move(0.08, y + 2 * r)),
    (Part.LIGHT, ellipsoid(0.06, segments=8, rows=6).move(0.64, y + 1.6 * r)),
    (Part.BODY, box(0.16, s * 1.5, 0.5, (0.2, 0.9)).move(0.58, 0.02)),
  ]
  for z in (-1, 1):
    for x in (-0.38, -0.05, 0.28):
      pieces += _at(_wheel(s, 0.07), x, s, z * 0.24)
  return pieces


def make_rocket(
  height: float, nose: float, fins: float, belly: float
) -> Pieces:
  """Makes a rocket with a pointed nose, fins and a porthole."""
  h = mix(0.55, 0.8, height)
  r = mix(0.19, 0.26, belly)
  n = mix(0.18, 0.3, nose)
  f = mix(0.18, 0.3, fins)
  foot = 0.16
  side = curve(
    [(r * 0.62, foot), (r, foot + 0.45 * h), (r * 0.72, foot + h)], 6
  )
  cone = curve([(r * 0.72, 0), (r * 0.45, n * 0.6), (0, n)], 4)
  fin = [
    (r * 0.5, foot + 0.05),
    (r + f, 0.0),
    (r + f, 0.14),
    (r * 0.85, foot + 0.38),
  ]
  pieces: Pieces = [
    (Part.BODY, lathe([(0, foot), *side])),
    (Part.TRIM, lathe(cone, 16).move(y=foot + h)),
    (Part.DARK, cylinder(r * 0.7, 0.1, r * 0.45, 14).move(y=foot - 0.09)),
    (
      Part.LIGHT,
      ellipsoid(r * 0.42, r * 0.42, 0.06, 14, 6).move(
        0, foot + 0.68 * h, r * 0.86
      ),
    ),
    (Part.TRIM, torus(r * 0.44, 0.03, 14).move(0, foot + 0.68 * h, r * 0.88)),
  ]
  blade = extrude(fin, 0.05)
  for angle in (0, 90, 180, 270):
    pieces.append((Part.BODY, blade.turn('y', angle + 45)))
  return pieces


def make_tyre(
  thickness: float, hub: float, tread: float, foot: float
) -> Pieces:
  """Makes a thick ring standing upright in a small rest."""
  r = mix(0.1, 0.17, thickness)
  wide = mix(1.0, 1.7, tread)
  ring = torus(0.5 - r, r, 28).scale(1, 1, wide)
  inner = 0.5 - 1.9 * r
  band = lathe(
    [
      (inner, -0.05),
      (inner + 0.03, -0.05),
      (inner + 0.03, 0.05),
      (inner, 0.05),
      (inner, -0.05),
    ],
    22,
  )
  size = mix(0.26, 0.4, foot)
  pieces: Pieces = [
    (Part.BODY, ring.move(y=0.52)),
    (Part.TRIM, box(size, 0.1, 2 * r * wide + 0.12, 0.7)),
  ]
  if hub > 0.5:
    pieces.append((Part.METAL, band.turn('x', 90).move(y=0.52)))
  return pieces


def make_traffic_cone(
  slant: float, stripes: float, base: float, tip: float
) -> Pieces:
  """Makes a traffic cone with a band on a square foot."""
  r = mix(0.28, 0.36, slant)
  t = mix(0.04, 0.09, tip)
  b = mix(0.76, 0.92, base)
  y = mix(0.45, 0.6, stripes)
  width = mix(0.1, 0.16, stripes)

  def radius(height: float) -> float:
    return mix(r, t, height) + 0.008

  band = lathe([(radius(y), y), (radius(y + width), y + width)], 22)
  return [
    (Part.BODY, rounded_box(b, 0.09, b, 0.04, 2)),
    (Part.BODY, cylinder(r, 1.0, t, 22).move(y=0.07)),
    (Part.TRIM, band.move(y=0.07)),
  ]


def make_hot_air_balloon(
  size: float, taper: float, basket: float, ropes: float
) -> Pieces:
  """Makes a hot-air balloon with its basket."""
  r = mix(0.4, 0.5, size)
  n = mix(0.1, 0.18, taper)
  b = mix(0.2, 0.28, basket)
  y = b + mix(0.14, 0.26, ropes)
  side = curve(
    [
      (n, y),
      (r * 0.75, y + 0.25),
      (r, y + 0.55),
      (r * 0.7, y + 0.85),
      (0.0, y + 1.0),
    ],
    4,
  )
  pieces: Pieces = [
    (Part.BODY, lathe([(0, y), *side], 22)),
    (Part.TRIM, lathe([(n + 0.01, 0), (n + 0.1, 0.1)], 16).move(y=y - 0.01)),
    (Part.WOOD, box(b * 0.85, b, b * 0.85, 1.15)),
    (Part.TRIM, box(b * 1.08, 0.05, b * 1.08).move(y=b - 0.02)),
  ]
  for x in (-1, 1):
    for z in (-1, 1):
      rope = [
        (x * b * 0.42, b, z * b * 0.42),
        (x * n * 0.7, y + 0.02, z * n * 0.7),
      ]
      pieces.append((Part.DARK, tube(rope, 0.014, 4)))
  return pieces

"""Composes toys and figures; their faces look along +z."""

import numpy as np

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Piece,
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


def _ball(radius: float) -> Piece:
  """Makes a small ball with few faces."""
  return ellipsoid(radius, segments=10, rows=6)


def make_teddy_bear(
  head: float, ears: float, belly: float, limbs: float
) -> Pieces:
  """Makes a sitting teddy bear."""
  r = mix(0.26, 0.34, head)
  e = mix(0.1, 0.16, ears)
  b = mix(0.3, 0.38, belly)
  leg = mix(0.13, 0.17, limbs)
  y = 0.66 + r * 0.75
  pieces: Pieces = [
    (Part.BODY, ellipsoid(b, 0.38, b * 0.9).move(y=0.36)),
    (Part.TRIM, ellipsoid(b * 0.62, 0.24, 0.1, 12, 6).move(0, 0.36, b * 0.84)),
    (Part.BODY, ellipsoid(r, r * 0.92, r * 0.92).move(y=y)),
    (
      Part.LIGHT,
      ellipsoid(r * 0.42, r * 0.34, r * 0.4, 10, 6).move(
        0, y - r * 0.25, r * 0.75
      ),
    ),
    (Part.DARK, _ball(r * 0.15).move(0, y - r * 0.12, r * 1.1)),
  ]
  for x in (-1, 1):
    pieces += [
      (
        Part.BODY,
        ellipsoid(e, e, e * 0.6, 10, 6).move(x * r * 0.78, y + r * 0.75),
      ),
      (
        Part.TRIM,
        ellipsoid(e * 0.6, e * 0.6, e * 0.3, 8, 6).move(
          x * r * 0.78, y + r * 0.75, e * 0.5
        ),
      ),
      (Part.DARK, _ball(r * 0.13).move(x * r * 0.36, y + r * 0.15, r * 0.85)),
      (
        Part.BODY,
        ellipsoid(0.11, 0.24, 0.12, 10, 7)
        .turn('z', x * 40)
        .move(x * (b + 0.06), 0.48, 0.06),
      ),
      (
        Part.BODY,
        ellipsoid(leg, leg, 0.26, 10, 7)
        .turn('y', x * 22)
        .move(x * b * 0.72, leg, 0.32),
      ),
      (
        Part.TRIM,
        ellipsoid(leg * 0.7, leg * 0.7, 0.04, 10, 6)
        .turn('y', x * 22)
        .move(x * (b * 0.72 + 0.095), leg, 0.56),
      ),
    ]
  return pieces


def make_robot(
  head: float, height: float, arms: float, antenna: float
) -> Pieces:
  """Makes a toy robot of boxes with an antenna."""
  w = mix(0.4, 0.52, head)
  h = mix(0.45, 0.62, height)
  up = mix(0.12, 0.24, antenna)
  neck = 0.34 + h
  pieces: Pieces = [
    (Part.BODY, box(0.58, h, 0.38).move(y=0.34)),
    (Part.TRIM, box(0.36, h * 0.5, 0.04).move(0, 0.34 + h * 0.3, 0.19)),
    (Part.DARK, box(0.2, 0.07, 0.2).move(y=neck)),
    (Part.BODY, box(w, 0.36, 0.36).move(y=neck + 0.06)),
    (Part.DARK, box(w * 0.55, 0.06, 0.03).move(0, neck + 0.12, 0.18)),
    (Part.METAL, cylinder(0.025, up, segments=6).move(y=neck + 0.42)),
    (Part.TRIM, _ball(0.07).move(y=neck + 0.42 + up)),
  ]
  lift = mix(0, 70, arms)
  for x in (-1, 1):
    arm = box(0.14, 0.42, 0.16).move(y=-0.4).turn('x', -lift if x > 0 else 0)
    pieces += [
      (Part.LIGHT, _ball(0.085).move(x * w * 0.24, neck + 0.3, 0.16)),
      (Part.DARK, _ball(0.04).move(x * w * 0.24, neck + 0.3, 0.23)),
      (Part.BODY, arm.move(x * 0.37, 0.28 + h)),
      (Part.BODY, box(0.19, 0.36, 0.22).move(x * 0.15)),
      (Part.TRIM, box(0.23, 0.12, 0.36).move(x * 0.15, 0, 0.05)),
    ]
  return pieces


def make_duck(neck: float, body: float, bill: float, tail: float) -> Pieces:
  """Makes a rubber duck, its bill to the right."""
  b = mix(0.4, 0.5, body)
  r = mix(0.24, 0.29, neck)
  y = mix(0.68, 0.85, neck)
  k = mix(0.12, 0.2, bill)
  t = mix(0.14, 0.28, tail)
  end = tube([(-0.3, 0.35, 0), (-b - 0.12, 0.45 + t, 0)], [0.24, 0.03])
  pieces: Pieces = [
    (Part.BODY, ellipsoid(b, 0.32, 0.34).move(y=0.3)),
    (Part.BODY, end),
    (Part.BODY, cylinder(0.24, y - 0.3, 0.16, 14).move(b * 0.55, 0.3)),
    (Part.BODY, ellipsoid(r).move(b * 0.6, y)),
    (
      Part.TRIM,
      ellipsoid(k, 0.06, 0.14, 12, 8).move(b * 0.6 + r + k * 0.4, y - 0.04),
    ),
  ]
  for z in (-1, 1):
    wing = ellipsoid(0.26, 0.17, 0.08, 12, 8).turn('z', -15)
    pieces.append((Part.BODY, wing.move(-0.08, 0.38, z * 0.32)))
    eye = _ball(0.05).move(b * 0.6 + r * 0.55, y + 0.08, z * r * 0.72)
    pieces.append((Part.DARK, eye))
  return pieces


def make_piggy_bank(
  length: float, snout: float, ears: float, legs: float
) -> Pieces:
  """Makes a piggy bank, its snout to the right."""
  b = mix(0.46, 0.58, length)
  s = mix(0.13, 0.18, snout)
  e = mix(0.12, 0.2, ears)
  leg = mix(0.14, 0.24, legs)
  y = leg + 0.33
  turn = np.linspace(0, 540, 16)
  coil = np.stack(
    [
      -b - 0.006 * np.arange(16),
      y + 0.07 * np.sin(np.radians(turn)),
      0.07 * np.cos(np.radians(turn)),
    ],
    -1,
  )
  pieces: Pieces = [
    (Part.BODY, ellipsoid(b, 0.38, 0.37, 20, 12).move(y=y)),
    (Part.TRIM, cylinder(s, 0.2, segments=14).turn('z', -90).move(b - 0.1, y)),
    (Part.DARK, box(0.2, 0.02, 0.05).move(0, y + 0.375)),
    (Part.TRIM, tube(coil, 0.022, 6)),
  ]
  for z in (-1, 1):
    pieces += [
      (
        Part.BODY,
        cylinder(e * 0.7, e * 1.5, 0, 8)
        .scale(0.5, 1, 1)
        .turn('x', z * 25)
        .move(b * 0.55, y + 0.27, z * 0.18),
      ),
      (Part.DARK, _ball(0.045).move(b * 0.82, y + 0.14, z * 0.2)),
      (Part.DARK, _ball(0.035).move(b + 0.1, y, z * s * 0.42)),
    ]
    for x in (-1, 1):
      foot = cylinder(0.1, leg + 0.15, segments=12)
      pieces.append((Part.BODY, foot.move(x * b * 0.5, 0, z * 0.2)))
  return pieces


def make_snowman(belly: float, head: float, hat: float, nose: float) -> Pieces:
  """Makes a snowman with a hat, a carrot and buttons."""
  a, c = mix(0.34, 0.42, belly), mix(0.17, 0.23, head)
  b = (a + c) / 2
  y1, y2 = a * 1.7 + b * 0.6, a * 1.7 + b * 1.9 + c * 0.55
  h = mix(0.16, 0.28, hat)
  carrot = cylinder(0.055, mix(0.18, 0.32, nose), 0, 8).turn('x', 90)
  pieces: Pieces = [
    (Part.BODY, ellipsoid(a).move(y=a * 0.92)),
    (Part.BODY, ellipsoid(b).move(y=y1)),
    (Part.BODY, ellipsoid(c).move(y=y2)),
    (
      Part.TRIM,
      torus(c * 0.8, 0.06, 16).turn('x', 90).move(y=(y1 + b * 0.35 + y2) / 2),
    ),
    (Part.DARK, cylinder(c * 1.15, 0.04, segments=16).move(y=y2 + c * 0.7)),
    (Part.DARK, cylinder(c * 0.75, h, segments=16).move(y=y2 + c * 0.7)),
    (Part.TRIM, carrot.move(0, y2, c * 0.9)),
  ]
  for y in (0.1, -0.08):
    pieces.append((Part.DARK, _ball(0.04).move(0, y1 + y, b * 0.97)))
  for x in (-1, 1):
    pieces.append(
      (Part.DARK, _ball(0.035).move(x * c * 0.4, y2 + c * 0.3, c * 0.86))
    )
    arm = [(x * b * 0.8, y1 + 0.05, 0), (x * (b + 0.3), y1 + 0.25, 0)]
    pieces.append((Part.WOOD, tube(arm, 0.025, 6)))
  return pieces


def make_drum(
  height: float, sticks: float, hoops: float, waist: float
) -> Pieces:
  """Makes a toy drum with two sticks on it."""
  h = mix(0.9, 1.15, height)
  t = mix(0.02, 0.055, hoops)
  middle = mix(0.53, 0.42, waist)
  pieces: Pieces = [
    (Part.BODY, lathe(curve([(0.5, 0), (middle, h / 2), (0.5, h)], 4), 24)),
    (Part.LIGHT, cylinder(0.48, 0.03, segments=24).move(y=h)),
    (Part.TRIM, lathe([(0.47, 0), (0.54, 0), (0.54, t), (0.5, t)], 24)),
    (
      Part.TRIM,
      lathe([(0.5, -t), (0.54, -t), (0.54, 0.03), (0.47, 0.03)], 24).move(y=h),
    ),
  ]
  long = mix(0.45, 0.65, sticks)
  for x in (-1, 1):
    stick = [
      (x * 0.08, h + 0.07, -0.2),
      (x * (0.08 + long * 0.6), h + 0.12, long * 0.6),
    ]
    pieces.append((Part.WOOD, tube(stick, 0.025, 6)))
    pieces.append((Part.WOOD, _ball(0.06).move(x * 0.08, h + 0.07, -0.2)))
  return pieces


def make_chess_pawn(
  head: float, skirt: float, collar: float, height: float
) -> Pieces:
  """Makes a chess pawn: a ball on a collar on a flared foot."""
  r = mix(0.17, 0.23, head)
  h = mix(0.5, 0.72, height)
  base = mix(0.27, 0.33, skirt)
  side = curve([(base * 0.85, 0.13), (0.18, 0.3), (0.11, h)], 5)
  c = mix(0.16, 0.24, collar)
  return [
    (
      Part.TRIM,
      lathe(
        [(0, 0), (base, 0), (base, 0.1), (base * 0.85, 0.14), (0, 0.14)], 22
      ),
    ),
    (Part.BODY, lathe(side, 20)),
    (Part.BODY, lathe([(0.1, h - 0.05), (c, h), (0.1, h + 0.05)], 20)),
    (Part.BODY, ellipsoid(r, segments=18, rows=12).move(y=h + r * 0.95)),
  ]


def make_spinning_top(
  width: float, height: float, knob: float, tip: float
) -> Pieces:
  """Makes a spinning top with a handle."""
  r = mix(0.42, 0.54, width)
  h = mix(0.55, 0.85, height)
  side = curve(
    [
      (0.05, mix(0.05, 0.16, tip)),
      (r * 0.75, h * 0.45),
      (r, h * 0.66),
      (r * 0.55, h * 0.88),
      (0.09, h),
    ],
    4,
  )
  k = mix(0.16, 0.32, knob)
  return [
    (Part.METAL, cylinder(0.02, 0.2, 0.05, 8)),
    (Part.BODY, lathe([*side, (0, h)], 24)),
    (Part.TRIM, torus(r * 0.99, 0.022).turn('x', 90).move(y=h * 0.66)),
    (Part.BODY, cylinder(0.05, k, segments=10).move(y=h)),
    (Part.TRIM, ellipsoid(0.08, 0.07, 0.08, 12, 8).move(y=h + k)),
  ]


def make_crown(
  points: float, height: float, flare: float, jewels: float
) -> Pieces:
  """Makes a crown with pointed teeth and balls on them."""
  count = 5 + round(3 * points)
  h = mix(0.4, 0.65, height)
  wide = mix(0.46, 0.58, flare)
  j = mix(0.04, 0.065, jewels)
  k = 4 * count
  angle = np.arange(k) * 2 * np.pi / k
  wave = np.abs(np.arange(k) % 4 - 2) / 2
  top = h * (0.45 + 0.55 * (1 - wave))
  r = 0.44 + (wide - 0.44) * top / h
  ring = np.stack([np.cos(angle), np.sin(angle)], -1)

  def wall(radii: np.ndarray, heights: np.ndarray) -> np.ndarray:
    return np.stack([radii * ring[:, 0], heights, -radii * ring[:, 1]], -1)

  flat = 0 * angle
  outer, inner = wall(r, top), wall(r - 0.05, top)
  feet = [wall(radius + flat, flat) for radius in (0.44, 0.39)]
  out, up = wall(1 + flat, flat), wall(flat, 1 + flat)
  rows = [feet[0], outer, outer, inner, inner, feet[1]]
  low = np.arange(0, 6, 2)[:, None] * k
  here = np.arange(k)
  there = (here + 1) % k
  a, b = low + here, low + there
  faces = np.concatenate(
    [np.stack([a, b, a + k], -1), np.stack([b, b + k, a + k], -1)]
  ).reshape(-1, 3)
  normals = np.concatenate([out, out, up, up, -out, -out])
  pieces: Pieces = [
    (Part.BODY, Piece(np.concatenate(rows), normals, faces)),
    (Part.TRIM, torus(0.44, 0.034).turn('x', 90).move(y=0.05)),
  ]
  for i in range(2, k, 4):
    ball = ellipsoid(j, segments=8, rows=6)
    pieces.append((Part.TRIM, ball.move(*outer[i])))
  return pieces


def make_rocking_horse(
  rockers: float, neck: float, legs: float, tail: float
) -> Pieces:
  """Makes a rocking horse, its head to the right."""
  h = mix(0.4, 0.52, legs)
  up = mix(0.3, 0.42, neck)
  y = h + 0.12
  bend = mix(0.12, 0.22, rockers)
  pieces: Pieces = [
    (Part.BODY, ellipsoid(0.37, 0.2, 0.19).move(y=y)),
    (Part.BODY, tube([(0.22, y, 0), (0.42, y + up, 0)], [0.16, 0.1], 10)),
    (
      Part.BODY,
      ellipsoid(0.2, 0.11, 0.1, 12, 8).turn('z', -30).move(0.5, y + up),
    ),
    (
      Part.TRIM,
      tube(
        curve(
          [
            (0.05, y + 0.12, 0),
            (0.22, y + up * 0.7, 0),
            (0.36, y + up + 0.14, 0),
          ]
        ),
        0.06,
        6,
      ),
    ),
    (
      Part.TRIM,
      tube(
        curve(
          [
            (-0.32, y + 0.05, 0),
            (-0.5, y, 0),
            (-0.5 - mix(0, 0.12, tail), y - 0.25, 0),
          ]
        ),
        0.055,
        6,
      ),
    ),
    (Part.TRIM, rounded_box(0.26, 0.09, 0.3, 0.04, 2).move(-0.05, y + 0.12)),
  ]
  for z in (-1, 1):
    pieces.append((Part.DARK, _ball(0.03).move(0.47, y + up + 0.05, z * 0.09)))
    pieces.append(
      (
        Part.BODY,
        cylinder(0.04, 0.12, 0, 6).move(0.38, y + up + 0.06, z * 0.06),
      )
    )
    for x in (-1, 1):
      leg = [(x * 0.22, y, z * 0.1), (x * 0.32, 0.1, z * 0.17)]
      pieces.append((Part.BODY, tube(leg, [0.09, 0.065])))
    rocker = arc(1.0, 215, 325, 12) * (0.75, bend * 2.2, 1) + (
      0,
      bend * 2.2,
      z * 0.17,
    )
    pieces.append((Part.WOOD, tube(rocker, 0.028, 6)))
  return pieces

"""Composes plants, fruit and animals."""

import numpy as np

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Piece,
  Pieces,
  curve,
  cylinder,
  ellipsoid,
  lathe,
  mix,
)
from vhop_jax.worlds.assets.sweeps import extrude, tube


def make_mushroom(
  cap: float, height: float, stem: float, dome: float
) -> Pieces:
  """Makes a mushroom with a wide cap."""
  r = mix(0.42, 0.56, cap)
  h = mix(0.32, 0.5, height)
  s = mix(0.11, 0.17, stem)
  up = mix(0.3, 0.5, dome)
  top = curve([(r * 0.96, 0), (r, 0.06), (r * 0.75, up * 0.68), (0, up)], 5)
  stalk = curve([(s * 1.35, 0), (s, h * 0.4), (s, h + 0.08)], 4)
  return [
    (Part.BODY, lathe([(0, 0), *top], 22).move(y=h)),
    (Part.LIGHT, lathe([(0, 0), *stalk], 14)),
    (Part.TRIM, cylinder(s * 1.7, 0.04, s * 1.2, 16).move(y=h * 0.7)),
  ]


def make_cactus(height: float, left: float, right: float, pot: float) -> Pieces:
  """Makes a cactus with two arms in a pot."""
  h = mix(0.65, 0.95, height)
  r = 0.14
  p = mix(0.15, 0.2, pot)
  y = 0.26
  trunk = lathe(
    [*curve([(r, 0), (r, h * 0.8), (r * 0.75, h - 0.03), (0, h)], 4)], 14
  )
  pieces: Pieces = [
    (Part.TRIM, cylinder(p * 0.8, 0.24, p * 1.05, 18)),
    (Part.TRIM, cylinder(p * 1.15, 0.07, segments=18).move(y=0.2)),
    (Part.BODY, trunk.move(y=y)),
  ]
  for x, share in ((-1, left), (1, right)):
    low = y + h * (0.3 if x < 0 else 0.45)
    up = mix(0.14, 0.36, share)
    arm = curve(
      [
        (0, low, 0),
        (x * 0.28, low + 0.02, 0),
        (x * 0.36, low + 0.14, 0),
        (x * 0.36, low + 0.14 + up, 0),
      ],
      4,
    )
    pieces.append((Part.BODY, tube(arm, 0.088, 10)))
    end = ellipsoid(0.088, segments=10, rows=6)
    pieces.append((Part.BODY, end.move(x * 0.36, low + 0.14 + up)))
  return pieces


def make_pine_tree(
  tiers: float, width: float, trunk: float, overlap: float
) -> Pieces:
  """Makes a pine tree of stacked cones with a star ball on top."""
  count = 3 + round(tiers)
  r = mix(0.34, 0.46, width)
  t = mix(0.14, 0.26, trunk)
  rise = 0.85 / count
  pieces: Pieces = [(Part.WOOD, cylinder(0.08, t + 0.1, segments=10))]
  for i in range(count):
    size = r * (1 - 0.72 * i / count)
    tall = rise * mix(1.35, 1.9, overlap)
    pieces.append((Part.BODY, cylinder(size, tall, 0, 16).move(y=t + i * rise)))
  top = t + (count - 1) * rise + tall
  pieces.append((Part.TRIM, ellipsoid(0.07, segments=10, rows=6).move(y=top)))
  return pieces


def make_pumpkin(
  flatness: float, ribs: float, stem: float, depth: float
) -> Pieces:
  """Makes a ribbed pumpkin with a stem."""
  count = 7 + round(3 * ribs)
  y = mix(0.42, 0.3, flatness)
  k = 6 * count
  ball = ellipsoid(0.5, y, segments=k, rows=10)
  angles = np.arctan2(ball.positions[:, 2], ball.positions[:, 0])
  ridge = np.abs(np.cos(angles * count / 2))
  cut = mix(0.12, 0.24, depth)
  swell = (1 - cut + cut * ridge)[:, None]
  slope = -cut * count / 2 * np.sign(np.cos(angles * count / 2))
  slope = slope * np.sin(angles * count / 2)
  sideways = np.stack([np.sin(angles), 0 * angles, -np.cos(angles)], -1)
  lean = np.hypot(ball.normals[:, 0], ball.normals[:, 2])
  pumpkin = Piece(
    ball.positions * np.where(np.arange(3) == 1, 1, swell),
    ball.normals + sideways * (slope * lean)[:, None],
    ball.faces,
  )
  h = mix(0.12, 0.26, stem)
  path = curve([(0, y * 0.85, 0), (0.02, y + h * 0.6, 0), (0.12, y + h, 0)])
  return [
    (Part.BODY, pumpkin),
    (Part.TRIM, tube(path, np.linspace(0.09, 0.06, len(path)))),
  ]


def make_apple(width: float, dent: float, leaf: float, taper: float) -> Pieces:
  """Makes an apple with a stalk and a leaf."""
  r = mix(0.44, 0.54, width)
  low = mix(0.24, 0.14, taper)
  d = mix(0.72, 0.82, 1 - dent)
  side = curve(
    [
      (0.06, 0.05),
      (low, 0.0),
      (r * 0.85, 0.25),
      (r, 0.55),
      (r * 0.6, 0.86),
      (0.14, 0.83),
      (0, d),
    ],
    4,
  )
  size = mix(0.14, 0.24, leaf)
  blade = ellipsoid(size, 0.03, size * 0.5, 12, 6).turn('z', 25)
  stalk = curve([(0, d - 0.05, 0), (0.01, 0.92, 0), (0.07, 1.06, 0)])
  return [
    (Part.BODY, lathe(side, 24)),
    (Part.WOOD, tube(stalk, 0.035, 6)),
    (Part.TRIM, blade.move(size + 0.02, 1.0)),
  ]


def make_fish(length: float, tail: float, fin: float, height: float) -> Pieces:
  """Makes a fish on a stand, swimming to the right."""
  w = mix(0.4, 0.5, length)
  h = mix(0.22, 0.32, height)
  t = mix(0.22, 0.34, tail)
  f = mix(0.1, 0.22, fin)
  y = 0.32 + h
  fan = [(-w * 0.75, 0.0), (-w - 0.28, t), (-w - 0.16, 0.0), (-w - 0.28, -t)]
  back = curve(
    [
      (w * 0.4, h * 0.8),
      (0.0, h + f),
      (-w * 0.55, h * 0.9 + f * 0.6),
      (-w * 0.5, h * 0.6),
    ],
    3,
  )
  pieces: Pieces = [
    (Part.BODY, ellipsoid(w, h, h * 0.55, 20, 12).move(y=y)),
    (Part.BODY, extrude(fan, 0.06).move(y=y)),
    (Part.TRIM, extrude(back, 0.05).move(y=y)),
    (Part.METAL, cylinder(0.035, 0.4, segments=8).move(y=0.02)),
    (Part.METAL, cylinder(0.18, 0.05, 0.14, 16)),
  ]
  for z in (-1, 1):
    pieces += [
      (
        Part.LIGHT,
        ellipsoid(0.07, 0.07, 0.04, 10, 6).move(
          w * 0.58, y + h * 0.25, z * h * 0.42
        ),
      ),
      (
        Part.DARK,
        ellipsoid(0.04, 0.04, 0.04, 8, 6).move(
          w * 0.6, y + h * 0.25, z * (h * 0.42 + 0.025)
        ),
      ),
      (
        Part.TRIM,
        ellipsoid(0.14, 0.07, 0.02, 10, 6)
        .turn('z', 30)
        .move(-0.02, y - 0.06, z * h * 0.56),
      ),
    ]
  return pieces


def make_snail(
  shell: float, head: float, horns: float, length: float
) -> Pieces:
  """Makes a snail with a coiled shell, its head to the right."""
  r = mix(0.3, 0.4, shell)
  w = mix(0.42, 0.55, length)
  up = mix(0.3, 0.45, head)
  h = mix(0.14, 0.26, horns)
  foot = curve(
    [
      (-w - 0.15, 0.04, 0),
      (-0.2, 0.1, 0),
      (w * 0.6, 0.1, 0),
      (w, 0.22, 0),
      (w + 0.08, up, 0),
    ],
    4,
  )
  sizes = np.interp(
    np.linspace(0, 1, len(foot)), [0, 0.3, 1], [0.03, 0.12, 0.1]
  )
  turns = np.linspace(0, 1, 30)
  angle = np.radians(-60 + 760 * turns)
  spiral = (r - 0.17) * (1 - turns) + 0.06
  coil = np.stack(
    [-spiral * np.cos(angle), spiral * np.sin(angle), 0 * angle], -1
  )
  thick = np.maximum(0.42 * r * (1 - 0.6 * turns), 0.045)
  disc = ellipsoid(r * 1.02, r * 1.02, r * 0.42)
  y = 0.12 + r
  pieces: Pieces = [
    (Part.BODY, tube(foot, sizes, 10)),
    (Part.BODY, ellipsoid(0.12, segments=10, rows=6).move(w + 0.09, up)),
    (Part.TRIM, disc.move(-0.08, y)),
    (Part.BODY, tube(coil, thick, 10).scale(1, 1, 1.35).move(-0.08, y)),
  ]
  for z in (-1, 1):
    tip = (w + 0.16, up + h, z * 0.1)
    pieces.append((Part.TRIM, tube([(w + 0.1, up, z * 0.05), tip], 0.025, 6)))
    pieces.append((Part.DARK, ellipsoid(0.045, segments=8, rows=6).move(*tip)))
  return pieces


def make_flower(
  petals: float, size: float, height: float, leaves: float
) -> Pieces:
  """Makes a big flower in a pot."""
  count = 5 + round(3 * petals)
  r = mix(0.15, 0.19, size)
  h = mix(0.55, 0.75, height)
  pieces: Pieces = [
    (Part.BODY, cylinder(0.17, 0.26, 0.25, 18)),
    (Part.BODY, cylinder(0.28, 0.08, segments=18).move(y=0.22)),
    (Part.DARK, cylinder(0.03, h, segments=6).move(y=0.2)),
    (Part.TRIM, ellipsoid(0.14, 0.14, 0.09, 14, 8).move(0, 0.2 + h, 0.06)),
  ]
  for i in range(count):
    petal = ellipsoid(r, 0.8 * r, 0.06, 10, 6).move(0.25)
    petal = petal.turn('z', i * 360 / count)
    pieces.append((Part.BODY, petal.move(y=0.2 + h)))
  for x in (-1, 1):
    leaf = ellipsoid(mix(0.12, 0.2, leaves), 0.05, 0.1, 10, 6)
    leaf = leaf.move(x * 0.15).turn('z', x * 35).move(y=0.38)
    pieces.append((Part.DARK, leaf))
  return pieces


def make_palm_tree(
  height: float, fronds: float, lean: float, island: float
) -> Pieces:
  """Makes a palm tree with hanging fronds."""
  h = mix(0.7, 0.95, height)
  count = 6 + round(2 * fronds)
  x = mix(0.02, 0.2, lean)
  trunk = curve([(0, 0, 0), (x * 0.25, h * 0.5, 0), (x, h, 0)], 5)
  pieces: Pieces = [
    (Part.WOOD, tube(trunk, np.linspace(0.085, 0.05, len(trunk)), 8)),
    (Part.TRIM, ellipsoid(mix(0.2, 0.3, island), 0.08, segments=14, rows=6)),
  ]
  path = curve(
    [(0, 0, 0), (0.22, 0.13, 0), (0.42, 0.02, 0), (0.54, -0.22, 0)], 3
  )
  wide = np.interp(
    np.linspace(0, 1, len(path)), [0, 0.4, 1], [0.05, 0.14, 0.01]
  )
  frond = tube(path, wide, 8)
  # Flattens the frond about its own spine.
  spine = np.concatenate([path, path[[0, -1]]]).repeat(8, axis=0)
  flat = (0.25, 0.25, 1)
  frond = Piece(
    spine + (frond.positions - spine) * flat, frond.normals / flat, frond.faces
  )
  for i in range(count):
    turned = frond.turn('y', i * 360 / count)
    pieces.append((Part.BODY, turned.move(x, h)))
  return pieces

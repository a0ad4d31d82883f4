"""Composes pieces of furniture."""

from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Pieces,
  box,
  cylinder,
  lathe,
  mix,
  rounded_box,
)
from vhop_jax.worlds.assets.sweeps import tube


def make_chair(back: float, width: float, seat: float, slats: float) -> Pieces:
  """Makes a chair with four legs and a slatted back."""
  w = mix(0.48, 0.62, width)
  s = mix(0.4, 0.52, seat)
  b = mix(0.45, 0.7, back)
  pieces: Pieces = [(Part.BODY, box(w, 0.1, w).move(y=s))]
  for x in (-1, 1):
    post = box(0.09, s + b, 0.09).move(x * (w / 2 - 0.045), 0, 0.045 - w / 2)
    leg = box(0.09, s, 0.09).move(x * (w / 2 - 0.045), 0, w / 2 - 0.045)
    pieces += [(Part.BODY, post), (Part.BODY, leg)]
  count = 2 + round(slats)
  for i in range(count):
    high = b * 0.5 / count
    y = s + b - high - i * (b * 0.75 / count)
    slat = box(w - 0.06, high, 0.06).move(0, y, 0.045 - w / 2)
    pieces.append((Part.BODY, slat))
  cushion = rounded_box(w * 0.86, 0.09, w * 0.82, 0.04)
  pieces.append((Part.TRIM, cushion.move(0, s + 0.07, 0.03)))
  return pieces


def make_stool(height: float, seat: float, splay: float, legs: float) -> Pieces:
  """Makes a round stool with three or four splayed legs."""
  h = mix(0.65, 0.95, height)
  r = mix(0.32, 0.4, seat)
  foot = r * mix(0.85, 1.25, splay)
  count = 3 + round(legs)
  profile = [
    (0, 0),
    (r * 0.92, 0),
    (r, 0.05),
    (r, 0.15),
    (r * 0.92, 0.2),
    (0, 0.2),
  ]
  pieces: Pieces = [(Part.BODY, lathe(profile, 22).move(y=h))]
  for i in range(count):
    leg = tube([(foot, 0, 0), (r * 0.6, h + 0.02, 0)], 0.045)
    pieces.append((Part.BODY, leg.turn('y', 45 + i * 360 / count)))
    rung = tube([(foot * 0.88, h * 0.35, 0), (0, h * 0.35, 0)], 0.025, 6)
    pieces.append((Part.TRIM, rung.turn('y', 45 + i * 360 / count)))
  return pieces


def make_table(length: float, height: float, top: float, legs: float) -> Pieces:
  """Makes a table with four turned-out legs."""
  w = mix(0.95, 1.4, length)
  h = mix(0.5, 0.7, height)
  t = mix(0.07, 0.14, top)
  thick = mix(0.09, 0.14, legs)
  pieces: Pieces = [
    (Part.BODY, box(w, t, 0.75).move(y=h)),
    (Part.TRIM, box(w * 0.88, 0.1, 0.63).move(y=h - 0.1)),
  ]
  for x in (-1, 1):
    for z in (-1, 1):
      leg = box(thick * 0.65, h, thick * 0.65, 1 / 0.65)
      at = (x * (w / 2 - thick), 0, z * (0.375 - thick))
      pieces.append((Part.BODY, leg.move(*at)))
  return pieces


def make_sofa(
  length: float, back: float, arms: float, cushions: float
) -> Pieces:
  """Makes a sofa with a back, two arms and seat cushions."""
  w = mix(1.1, 1.6, length)
  b = mix(0.55, 0.75, back)
  a = mix(0.14, 0.22, arms)
  count = 2 + round(cushions)
  pieces: Pieces = [
    (Part.BODY, rounded_box(w, 0.28, 0.62, 0.05, 2).move(y=0.08)),
    (Part.BODY, rounded_box(w, b, 0.24, 0.09).move(0, 0.08, -0.24)),
  ]
  for x in (-1, 1):
    arm = rounded_box(a, 0.46, 0.66, 0.07).move(x * (w - a) / 2, 0.08, 0.01)
    pieces.append((Part.BODY, arm))
    foot = box(0.08, 0.1, 0.5).move(x * (w / 2 - 0.1))
    pieces.append((Part.WOOD, foot))
  inner = (w - 2 * a) / count
  for i in range(count):
    middle = (i - (count - 1) / 2) * inner
    seat = rounded_box(inner * 0.96, 0.14, 0.46, 0.05, 2)
    pieces.append((Part.TRIM, seat.move(middle, 0.32, 0.1)))
  return pieces


def make_bookshelf(
  height: float, width: float, shelves: float, books: float
) -> Pieces:
  """Makes a bookshelf with rows of books on both of its sides."""
  h = mix(0.95, 1.35, height)
  w = mix(0.65, 0.9, width)
  count = 2 + round(2 * shelves)
  pieces: Pieces = [
    (Part.BODY, box(w, h, 0.05)),
    (Part.BODY, box(0.07, h, 0.38).move(w / 2)),
    (Part.BODY, box(0.07, h, 0.38).move(-w / 2)),
    (Part.BODY, box(w + 0.07, 0.07, 0.38).move(y=h)),
  ]
  colours = (Part.TRIM, Part.LIGHT, Part.DARK, Part.WOOD)
  rise = h / count
  for i in range(count):
    pieces.append((Part.BODY, box(w, 0.07, 0.37).move(y=i * rise)))
    x = -w / 2 + 0.05
    for j in range(3):
      k = (i + j) % 4
      wide = w * (0.12 + 0.04 * k)
      tall = rise * (mix(0.45, 0.65, books) - 0.08 * (k % 2))
      book = box(wide, tall, 0.3).move(x + wide / 2, i * rise + 0.07)
      pieces.append((colours[k], book))
      x += wide + 0.012 + (0.14 * w if j == i % 3 else 0)
  return pieces


def make_television(
  width: float, antenna: float, legs: float, depth: float
) -> Pieces:
  """Makes an old television set with two antennas."""
  w = mix(0.85, 1.15, width)
  d = mix(0.4, 0.6, depth)
  s = mix(0.1, 0.25, legs)
  up = mix(0.3, 0.5, antenna)
  pieces: Pieces = [
    (Part.BODY, rounded_box(w, 0.75, d, 0.08).move(y=s)),
    (
      Part.DARK,
      rounded_box(w * 0.62, 0.55, 0.06, 0.03, 2).move(
        -w * 0.12, s + 0.1, d / 2
      ),
    ),
    (Part.DARK, cylinder(0.06, 0.06, segments=10).move(y=s + 0.78)),
  ]
  for x in (-1, 1):
    stick = [(0, s + 0.75, 0), (x * up * 0.8, s + 0.75 + up, 0)]
    pieces.append((Part.METAL, tube(stick, 0.02, 6)))
    for z in (-1, 1):
      leg = tube(
        [(x * w * 0.4, 0, z * d * 0.42), (x * w * 0.33, s + 0.05, z * d * 0.3)],
        0.035,
        6,
      )
      pieces.append((Part.TRIM, leg))
  for y in (0.5, 0.3):
    knob = cylinder(0.065, 0.06, segments=12).turn('x', 90)
    pieces.append((Part.TRIM, knob.move(w * 0.35, s + y, d / 2)))
  return pieces

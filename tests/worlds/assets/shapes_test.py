"""Tests the primitive pieces."""

import numpy as np
import pytest

from tests.worlds.assets.mesh_checks import (
  compute_face_areas,
  compute_flipped_frac,
)
from vhop_jax.worlds.assets import Part
from vhop_jax.worlds.assets.shapes import (
  Piece,
  arc,
  assemble,
  box,
  curve,
  cylinder,
  ellipsoid,
  lathe,
  mix,
  rounded_box,
)
from vhop_jax.worlds.assets.sweeps import extrude, loft, torus, tube

_SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
_SQUARES = np.array([[(x, y, z) for x, y in _SQUARE] for z in (0.0, 2.0)])
# Bends to both sides, so that the turns of the path add up to nothing.
_WAVE = curve([(0, 0, 0), (1, 1, 0), (2, 0, 0), (3, -1, 0), (4, 0, 0)])

SOLIDS: dict[str, Piece] = {
  'lathe': lathe([(0, 0), (1, 0), (0.5, 1), (0, 1)]),
  'cylinder': cylinder(0.5, 2.0),
  'cone': cylinder(1.0, 1.0, 0.0),
  'ellipsoid': ellipsoid(1, 2, 3),
  'box': box(1, 2, 3),
  'tapered': box(2, 1, 1, (0.5, 1.0)),
  'wedge': box(1, 1, 1, 0.0),
  'rounded_box': rounded_box(1, 2, 1, 0.2),
  'rod up': tube([(0, 0, 0), (0, 1, 0)], 0.1),
  'rod down': tube([(0, 1, 0), (0, 0, 0)], 0.1),
  'rod aslant': tube([(0, 0, 0), (1, -2, 3)], [0.2, 0.1]),
  'tube': tube(_WAVE, 0.1),
  'torus': torus(1.0, 0.2),
  'extrude': extrude(_SQUARE, 2.0),
  'loft': loft(_SQUARES),
  'loft flat': loft(_SQUARES, flat=True),
  'turned': box(1, 2, 3).turn('x', 50).turn('y', 20).turn('z', -70),
  'mirrored': ellipsoid(1).scale(-2, 1, 0.5).move(1, 2, 3),
}


def compute_volume(piece: Piece) -> float:
  """Returns the volume enclosed, by the divergence theorem."""
  area = compute_face_areas(piece.positions, piece.faces)
  return float((piece.positions[piece.faces[:, 0]] * area).sum() / 3)


@pytest.mark.parametrize('name', SOLIDS)
def test_faces_and_normals_point_outwards(name):
  solid = SOLIDS[name]
  # Only an outside that is outside everywhere encloses a positive volume.
  assert compute_volume(solid) > 0
  assert compute_flipped_frac(*solid) == 0
  # Closed: the face areas, as vectors, cancel out.
  total = compute_face_areas(solid.positions, solid.faces).sum(0)
  np.testing.assert_allclose(total, 0, atol=1e-9)


@pytest.mark.parametrize(
  ('name', 'volume', 'tolerance'),
  [
    ('box', 6.0, 1e-9),
    # A frustum of areas 2 and 1 that narrows in one direction: mean width.
    ('tapered', 1.5, 1e-9),
    ('wedge', 1 / 3, 1e-9),
    ('extrude', 2.0, 1e-9),
    ('loft', 2.0, 1e-9),
    # Polygons with many sides fall a few per cent short of round bodies.
    ('cylinder', np.pi / 2, 0.05),
    ('cone', np.pi / 3, 0.05),
    ('ellipsoid', 8 * np.pi, 0.08),
    ('torus', 2 * np.pi**2 * 0.04, 0.1),
  ],
)
def test_volumes(name, volume, tolerance):
  assert compute_volume(SOLIDS[name]) == pytest.approx(volume, rel=tolerance)


def test_lathe_keeps_edges_and_smooths_bends():
  rim = lathe([(0, 0), (1, 0), (1, 1)], 8)
  at_rim = np.isclose(rim.positions[:, 1], 0) & (rim.positions[:, 0] > 0.99)
  # A right angle stays an edge: one normal down, one outwards.
  assert {tuple(np.round(n, 6) + 0.0) for n in rim.normals[at_rim]} == {
    (0, -1, 0),
    (1, 0, 0),
  }
  bend = lathe([(1, 0), (1, 1), (0.8, 2)], 8)
  at_bend = np.isclose(bend.positions[:, 1], 1) & (bend.positions[:, 0] > 0.99)
  assert len({tuple(np.round(n, 6)) for n in bend.normals[at_bend]}) == 1


def test_curve_passes_through_its_points():
  points = np.array([(0, 0), (1, 2), (3, 1), (4, 4)])
  line = curve(points, 5)
  assert len(line) == 16
  np.testing.assert_allclose(line[::5], points)


def test_arc_starts_and_ends_where_told():
  line = arc(2.0, 0, 90, 6)
  np.testing.assert_allclose(line[[0, -1]], [(2, 0, 0), (0, 2, 0)], atol=1e-9)


def test_tube_keeps_its_distance_from_the_path():
  wave = tube(_WAVE, 0.1)
  # Without the caps: the rings, eight vertices a point of the path.
  rings = wave.positions[: 8 * len(_WAVE)].reshape(len(_WAVE), 8, 3)
  distance = np.linalg.norm(rings - _WAVE[:, None], axis=-1)
  np.testing.assert_allclose(distance, 0.1)
  # The third axis is free of the path: the tube is as deep as it is wide.
  assert np.ptp(rings[..., 2]) == pytest.approx(0.2, rel=1e-6)


def test_scaled_normals_stay_perpendicular():
  # On the ellipsoid (x/2)^2 + y^2 + z^2 = 1 the gradient is (x/4, y, z).
  stretched = ellipsoid(2, 1, 1)
  gradient = stretched.positions * (0.25, 1, 1)
  np.testing.assert_allclose(
    np.cross(stretched.normals, gradient), 0, atol=1e-9
  )


def test_turn_follows_the_right_hand_rule():
  point = Piece(
    np.array([[1.0, 0, 0]]), np.array([[1.0, 0, 0]]), np.zeros((0, 3))
  )
  np.testing.assert_allclose(
    point.turn('z', 90).positions, [[0, 1, 0]], atol=1e-9
  )
  np.testing.assert_allclose(
    point.turn('y', 90).positions, [[0, 0, -1]], atol=1e-9
  )


def test_mix_ends():
  assert (mix(2, 5, 0), mix(2, 5, 1)) == (2, 5)


def test_assemble_normalises_and_keeps_pieces_apart():
  mesh = assemble(
    [
      (Part.BODY, box(2, 1, 1).move(10, 5, -3)),
      (Part.TRIM, box(1, 3, 1).move(10, 6, -3)),
    ]
  )
  # Width 2, height 4: the height becomes 1, the width 0.5.
  np.testing.assert_allclose(mesh.positions.min(0), [-0.25, 0, -0.125])
  np.testing.assert_allclose(mesh.positions.max(0), [0.25, 1, 0.125])
  trim = mesh.positions[mesh.part == Part.TRIM]
  np.testing.assert_allclose(trim.min(0), [-0.125, 0.25, -0.125])
  # Faces join vertices of one piece only.
  parts = mesh.part[mesh.faces]
  assert (parts == parts[:, :1]).all()
  assert np.bincount(parts[:, 0]).tolist() == [12, 12]

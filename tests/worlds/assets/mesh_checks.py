"""Measures meshes by other means than those they were made with."""

import numpy as np

from vhop_jax.worlds.assets import Mesh, Part


def compute_face_areas(positions: np.ndarray, faces: np.ndarray) -> np.ndarray:
  """Returns normals of the faces whose lengths are the areas."""
  a, b, c = (positions[faces[:, k]].astype(float) for k in range(3))
  return np.cross(b - a, c - a) / 2


def compute_flipped_frac(
  positions: np.ndarray, normals: np.ndarray, faces: np.ndarray
) -> float:
  """Returns the share of the area whose normals point inwards."""
  area = compute_face_areas(positions, faces)
  flipped = (area * normals[faces].sum(1)).sum(-1) < 0
  sizes = np.linalg.norm(area, axis=1)
  return float(sizes[flipped].sum() / sizes.sum())


def compute_visible_fracs(
  mesh: Mesh, *, num_yaws: int = 6, pitch: float = 0.35
) -> np.ndarray:
  """Returns how much of what a viewer sees belongs to each part.

  Scatters points over the surface and keeps, per cell of a coarse screen, the
  one nearest to the viewer; then averages over views all around.
  """
  rng = np.random.default_rng(0)
  positions = mesh.positions.astype(float)
  sizes = np.linalg.norm(compute_face_areas(positions, mesh.faces), axis=1)
  face = rng.choice(len(sizes), 12_000, p=sizes / sizes.sum())
  weights = rng.dirichlet((1, 1, 1), len(face))
  corners = positions[mesh.faces[face]]
  points = (weights[:, :, None] * corners).sum(1)
  part = mesh.part[mesh.faces[face, 0]]
  counts = np.zeros(len(Part))
  for yaw in 0.2 + np.arange(num_yaws) * 2 * np.pi / num_yaws:
    x = points[:, 0] * np.cos(yaw) + points[:, 2] * np.sin(yaw)
    z = points[:, 2] * np.cos(yaw) - points[:, 0] * np.sin(yaw)
    across = np.floor((x + 1) * 30).astype(int)
    height = points[:, 1] * np.cos(pitch) - z * np.sin(pitch)
    cell = across * 1000 + np.floor((height + 1) * 30).astype(int)
    order = np.lexsort((z * np.cos(pitch) + points[:, 1] * np.sin(pitch), cell))
    nearest = np.append(np.diff(cell[order]) > 0, True)
    counts += np.bincount(part[order][nearest], minlength=len(Part))
  return counts / counts.sum()

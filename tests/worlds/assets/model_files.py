"""Writes small model files: a folder for the pack `meshes:FOLDER`."""

import json
import pathlib

import numpy as np
from PIL import Image

# A box 2 wide, 1 high and 1 deep that stands aside and aloft. Its sides are of
# textured wood, the lid is red, and one triangle cannot be seen through.
CRATE = """
mtllib crate.mtl
v 3 5 1
v 5 5 1
v 5 6 1
v 3 6 1
v 3 5 0
v 5 5 0
v 5 6 0
v 3 6 0
vt 0 0
vt 1 0
vt 1 1
vt 0 1
usemtl wood
f 1/1 2/2 3/3 4/4
f 6/1 5/2 8/3 7/4
f 2/1 6/2 7/3 3/4
f 5/1 1/2 4/3 8/4
f 5/1 6/2 2/3 1/4
usemtl lid
f 4/1 3/2 7/3 8/4
usemtl air
f 1/1 3/2 8/4
"""
CRATE_MATERIALS = """
newmtl wood
Kd 0.3 0.3 0.3
map_Kd wood.png
newmtl lid
Kd 1 0 0
d 1.0
newmtl air
Kd 0 1 0
d 0.0
"""


def make_wood() -> np.ndarray:
  """Makes a texture [4, 4, 3]: upper half light, lower half dark brown."""
  texture = np.zeros((4, 4, 3), np.uint8)
  texture[:2] = (200, 150, 100)
  texture[2:] = (100, 75, 50)
  return texture


def write_crate(folder: pathlib.Path) -> pathlib.Path:
  """Writes the crate as OBJ, MTL and PNG."""
  (folder / 'crate.obj').write_text(CRATE)
  (folder / 'crate.mtl').write_text(CRATE_MATERIALS)
  Image.fromarray(make_wood()).save(folder / 'wood.png')
  return folder / 'crate.obj'


def write_lamp(folder: pathlib.Path) -> pathlib.Path:
  """Writes a lamp as GLB whose z axis points up: a yellow cone, a grey pole."""
  import trimesh
  from trimesh.visual.material import PBRMaterial

  scene = trimesh.Scene()
  shade = trimesh.creation.cone(radius=0.5, height=0.6, sections=24)
  shade.apply_translation([0, 0, 1.4])
  pole = trimesh.creation.cylinder(radius=0.06, height=1.4, sections=12)
  pole.apply_translation([0, 0, 0.7])
  for part, name, colour in (
    (shade, 'shade', [255, 255, 0, 255]),
    (pole, 'pole', [128, 128, 128, 255]),
  ):
    material = PBRMaterial(name=name, baseColorFactor=colour)
    part.visual = trimesh.visual.TextureVisuals(
      uv=np.zeros((len(part.vertices), 2)), material=material
    )
    scene.add_geometry(part, node_name=name, geom_name=name)
  scene.export(folder / 'lamp.glb')
  return folder / 'lamp.glb'


def write_pack(folder: pathlib.Path) -> str:
  """Writes both models and their catalogue; returns the pack's name."""
  write_crate(folder)
  write_lamp(folder)
  rows = [
    {'file': 'crate.obj', 'name': 'crate', 'author': 'A. Maker'},
    {'file': 'lamp.glb', 'name': 'lamp', 'up': 'z', 'licence': 'CC0 1.0'},
  ]
  (folder / 'catalogue.json').write_text(json.dumps(rows))
  return f'meshes:{folder}'

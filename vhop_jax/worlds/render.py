"""Draws a scene with OpenGL, in software or on a GPU.

What is drawn depends on the scene alone; two machines with the same driver give
the same bytes.
"""

import functools
import importlib.resources
import math
import os
from types import TracebackType
from typing import Self

import moderngl
import numpy as np

from vhop_jax.errors import DataError
from vhop_jax.worlds import prints
from vhop_jax.worlds.background import Surface
from vhop_jax.worlds.geometry import Geometry, load_geometry
from vhop_jax.worlds.objects import COLOURS, PATTERNS
from vhop_jax.worlds.scene import SUPPORT, Camera, Placement, Scene
from vhop_jax.worlds.textures import SIZE_PX, TEXTURES, make_textures

_SAMPLES = 4
_SHADOW_MAP_PX = 192
_NEAR, _FAR = 0.1, 500.0
_SCENE_BINDING, _THING_BINDING = 0, 1
_SHADOW_UNIT, _TEXTURES_UNIT, _PRINT_UNIT, _SKIN_UNIT = 0, 1, 2, 3
_MAX_CONTACTS = 8
_SCENE_ROWS, _THING_ROWS = 17 + _MAX_CONTACTS, 10  # Each of four floats.
# By name: the shader files and what is defined in them.
_PROGRAMS = {
  'object': ('object', ()),
  'skinned': ('object', ('SKIN',)),
  'shadow': ('shadow', ()),
  'ground': ('background', ('FINE', 'GROUND')),
  'wall': ('background', ('FINE',)),
}
_BEHIND = 40.0
_BUFFER_BYTES = 1 << 18  # Holds a usual mesh; larger ones get larger buffers.
_CONTACT_DARKNESS = 0.45
_PRINT_DEPTH = (
  0.03  # What lies deeper under a print than this shows its own paint.
)
_REACH = 0.5 * math.sqrt(3)
_NO_EGL = (
  'cannot draw: OpenGL over EGL does not start ({reason}); install the Debian'
  ' packages libegl1, libegl-mesa0 and libgl1-mesa-dri'
)


def size_from_resolution(resolution: int) -> tuple[int, int]:
  """Returns the width and height in pixels of pictures of a resolution."""
  return resolution, 2 * resolution // 3


def _load_shader(name: str, *defined: str) -> str:
  """Reads a shader and puts in front of it what all shaders share."""
  folder = importlib.resources.files('vhop_jax.worlds') / 'shaders'
  shared = (folder / 'scene.glsl').read_text()
  defines = '\n'.join(f'#define {symbol}' for symbol in defined)
  return f'#version 330\n{defines}\n{shared}\n{(folder / name).read_text()}'


@functools.lru_cache(maxsize=4096)
def _decode(srgb: tuple[float, float, float]) -> tuple[float, ...]:
  """Converts an sRGB colour to linear RGB."""
  return tuple(
    value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
    for value in srgb
  )


def _make_view_projection(camera: Camera, aspect: float) -> np.ndarray:
  """Makes the matrix from the world to clip space [4, 4]."""
  axes = camera.compute_axes()
  view = np.eye(4)
  view[:3, :3] = axes * [[1], [1], [-1]]
  view[:3, 3] = -view[:3, :3] @ camera.eye
  zoom = 1 / math.tan(camera.fov / 2)
  projection = np.zeros((4, 4))
  projection[0, 0] = zoom / aspect
  projection[1, 1] = zoom
  projection[2, 2] = (_FAR + _NEAR) / (_NEAR - _FAR)
  projection[2, 3] = 2 * _FAR * _NEAR / (_NEAR - _FAR)
  projection[3, 2] = -1
  return projection @ view


def _make_light_projection(scene: Scene) -> tuple[np.ndarray, float]:
  """Makes the matrix from the world to the shadow map.

  Returns:
    The matrix [4, 4] and the width of the map in the world's lengths.
  """
  axes = scene.light.compute_axes()
  # Every mesh fits into a cube of width 1, so into a ball around its middle.
  things = scene.list_things()
  centres = np.array([[p.x, p.y + p.scale / 2, p.z] for p in things])
  reach = np.array([[_REACH * p.scale] for p in things])
  seen = centres @ axes.T
  low, high = (seen - reach).min(axis=0), (seen + reach).max(axis=0)
  half = (high - low) / 2
  half[:2] = half[:2].max()
  matrix = np.eye(4)
  matrix[:3, :3] = axes / half[:, None]
  matrix[:3, 3] = -(low + high) / 2 / half
  return matrix, 2 * float(half[0])


def _compute_reach(camera: Camera, aspect: float) -> float:
  """Returns how far the ground reaches behind the camera's place.

  The ground ends below the camera, unless a corner of the picture looks back
  from there: one that is much turned, and sees wide.
  """
  right, up, forward = camera.compute_axes()
  half = math.tan(camera.fov / 2)
  corners = [forward + half * (x * aspect * right - up) for x in (-1, 1)]
  return _BEHIND if max(corner[2] for corner in corners) > 0 else 0.0


def _make_surface(surface: Surface, extra: float) -> list[list[float]]:
  """Packs a surface: two colours, then how its texture lies."""
  layer = float(TEXTURES.index(surface.texture))
  cos, sin = math.cos(surface.angle), math.sin(surface.angle)
  return [
    [*_decode(surface.colour), layer],
    [*_decode(surface.second_colour), extra],
    [cos / surface.period, sin / surface.period, *surface.offset],
  ]


def _make_scene_block(scene: Scene, aspect: float) -> bytes:
  """Packs the uniform block `Scene` of scene.glsl."""
  camera, light = scene.camera, scene.light
  light_projection, width = _make_light_projection(scene)
  contacts = [_make_contact(placement) for placement in _list_standing(scene)]
  unused = [[0.0, 0.0, 1.0, 0.0]] * (_MAX_CONTACTS - len(contacts))
  softness = light.softness / width * _SHADOW_MAP_PX
  rows = [
    *_make_view_projection(camera, aspect).T,
    *light_projection.T,
    [*camera.eye, light.ambient],
    [*-light.compute_axes()[2], softness],
    [*light.colour, len(contacts)],
    *contacts,
    *unused,
    *_make_surface(scene.background.ground, _compute_reach(camera, aspect)),
    *_make_surface(scene.background.wall, scene.background.wall_distance),
  ]
  return np.array(rows, np.float32).tobytes()


def _make_print(area: prints.PrintArea | None) -> list[list[float]]:
  """Packs where a print lies: its frame and its side."""
  if area is None:
    return [[0.0] * 4] * 2
  return [
    [area.u, area.v, area.half_width, area.half_height],
    [math.cos(area.side), math.sin(area.side), area.depth - _PRINT_DEPTH, 0.0],
  ]


def _list_standing(scene: Scene) -> list[Placement]:
  """Lists what darkens the ground that it stands on."""
  # Four legs touch it in places only.
  extras = [e.placement for e in scene.extras if e.role != SUPPORT]
  things = [p for p in (*scene.placements, *extras) if not p.y]
  return things[:_MAX_CONTACTS]


def _make_contact(placement: Placement) -> list[float]:
  """Returns where a thing stands, how wide, and how dark it is below it."""
  radius = load_geometry(placement.object).base_radius * placement.scale
  return [placement.x, placement.z, radius + 0.04, _CONTACT_DARKNESS]


def _make_thing_block(placement: Placement, geometry: Geometry) -> bytes:
  """Packs the uniform block `Thing` of object.vert."""
  obj = placement.object
  cos = math.cos(placement.yaw) * placement.scale
  sin = math.sin(placement.yaw) * placement.scale
  rows = [
    [cos, 0, -sin, 0],
    [0, placement.scale, 0, 0],
    [sin, 0, cos, 0],
    [placement.x, placement.y, placement.z, 1],
    [*_decode(COLOURS[obj.colour]), PATTERNS.index(obj.pattern)],
    [*_decode(COLOURS[obj.second_colour]), geometry.two_tone_y],
    [*geometry.body_low, obj.shape[0]],
    [*geometry.body_size, obj.shape[1]],
    *_make_print(geometry.print_area),
  ]
  return np.array(rows, np.float32).tobytes()


class _Slot:
  """Keeps the buffers through which one of the things is drawn.

  The buffers are made once and overwritten: neither a long run nor a large
  world leaves objects behind in the driver.
  """

  def __init__(
    self,
    context: moderngl.Context,
    program: moderngl.Program,
    shadow_program: moderngl.Program,
    skinned_program: moderngl.Program,
  ):
    self._context = context
    self._programs = (program, shadow_program, skinned_program)
    self._owned: list[moderngl.Buffer | moderngl.VertexArray] = []
    self._capacity = (0, 0)
    self._drawn: Geometry | None = None
    self._print = context.texture((prints.SIZE_PX,) * 2, 1)
    # None: Mesa's anisotropic filter may never end on a narrow footprint.
    self._print.anisotropy = 1.0
    self._skin: moderngl.TextureArray | None = None
    self._skin_pixels: np.ndarray | None = None
    self._thing = context.buffer(reserve=4 * 4 * _THING_ROWS)
    self._reserve(_BUFFER_BYTES, _BUFFER_BYTES)

  def _reserve(self, vertex_bytes: int, index_bytes: int) -> None:
    """Makes buffers of at least these sizes."""
    for owned in reversed(self._owned):
      owned.release()
    self._capacity = (vertex_bytes, index_bytes)
    self._vertices = self._context.buffer(reserve=vertex_bytes, dynamic=True)
    self._indices = self._context.buffer(reserve=index_bytes, dynamic=True)
    program, shadow_program, skinned_program = self._programs
    self._array = self._context.vertex_array(
      program,
      [(self._vertices, '3f 3f 1f', 'in_position', 'in_normal', 'in_part')],
      index_buffer=self._indices,
    )
    self._shadow_array = self._context.vertex_array(
      shadow_program,
      [(self._vertices, '3f 16x', 'in_position')],
      index_buffer=self._indices,
    )
    names = ('position', 'normal', 'part', 'uv', 'base')
    self._skinned_array = self._context.vertex_array(
      skinned_program,
      [(self._vertices, '3f 3f 1f 3f 3f', *(f'in_{name}' for name in names))],
      index_buffer=self._indices,
    )
    self._skinned_shadow_array = self._context.vertex_array(
      shadow_program,
      [(self._vertices, '3f 40x', 'in_position')],
      index_buffer=self._indices,
    )
    self._owned = [
      self._vertices,
      self._indices,
      self._array,
      self._shadow_array,
      self._skinned_array,
      self._skinned_shadow_array,
    ]

  def load(self, placement: Placement) -> None:
    """Uploads what is to be drawn."""
    geometry = load_geometry(placement.object)
    if geometry is not self._drawn:
      sizes = (len(geometry.vertices), len(geometry.indices))
      if sizes[0] > self._capacity[0] or sizes[1] > self._capacity[1]:
        self._reserve(2 * sizes[0], 2 * sizes[1])
      self._vertices.write(geometry.vertices)
      self._indices.write(geometry.indices)
      self._drawn = geometry
      self._load_skin(geometry.textures)
    self._thing.write(_make_thing_block(placement, geometry))
    obj = placement.object
    if prints.has_print(obj):
      self._print.write(prints.draw_print(obj.logo, obj.text, obj.font))
      self._print.build_mipmaps()

  def _load_skin(self, textures: np.ndarray | None) -> None:
    """Uploads the textures of a mesh with a skin, unless they are there.

    Args:
      textures: uint8 [T, size, size, 4], or None of a mesh without a skin.
    """
    if textures is None or textures is self._skin_pixels:
      return
    if self._skin is not None:
      self._skin.release()
    self._skin_pixels = textures
    if not len(textures):  # The shader wants one, though no vertex does.
      textures = np.zeros((1, 1, 1, 4), np.uint8)
    count, size = textures.shape[:2]
    self._skin = self._context.texture_array(
      (size, size, count), 4, textures.tobytes()
    )
    self._skin.build_mipmaps()

  def draw(self, *, shadow: bool) -> None:
    """Draws what was loaded."""
    assert self._drawn is not None
    self._thing.bind_to_uniform_block(_THING_BINDING)
    self._print.use(_PRINT_UNIT)
    array = self._shadow_array if shadow else self._array
    if self._drawn.textures is not None:
      assert self._skin is not None
      self._skin.use(_SKIN_UNIT)
      array = self._skinned_shadow_array if shadow else self._skinned_array
    # Of a closed mesh no back face is seen; half the work is saved.
    if self._drawn.closed:
      self._context.enable(moderngl.CULL_FACE)
    else:
      self._context.disable(moderngl.CULL_FACE)
    array.render(vertices=self._drawn.num_indices)

  def release(self) -> None:
    """Gives the buffers back to the driver."""
    for owned in (*reversed(self._owned), self._thing, self._print):
      owned.release()
    self._owned = []
    if self._skin is not None:
      self._skin.release()
      self._skin = self._skin_pixels = None


def _create_context() -> moderngl.Context:
  """Starts OpenGL without a window."""
  # The software rasteriser's threads pay off in no picture of our sizes, and
  # would fight with other worker processes for the cores.
  os.environ.setdefault('LP_NUM_THREADS', '0')
  try:
    return moderngl.create_context(require=330, standalone=True, backend='egl')
  except Exception as error:  # Moderngl raises bare exceptions.
    reason = ' '.join(str(error).split())
    raise DataError(_NO_EGL.format(reason=reason)) from error


class Renderer:
  """Draws scenes at one size. Use one in each process.

  Args:
    width_px: of the pictures.
    height_px: of the pictures.

  Raises:
    DataError: OpenGL is not installed.
  """

  def __init__(self, width_px: int, height_px: int):
    self._size = (width_px, height_px)
    self._context: moderngl.Context | None = _create_context()
    with self._context:
      self._make_resources(self._context)

  def _make_resources(self, context: moderngl.Context) -> None:
    """Compiles the shaders and makes every buffer that drawing needs."""
    programs = {
      name: context.program(
        vertex_shader=_load_shader(f'{file}.vert', *defined),
        fragment_shader=_load_shader(f'{file}.frag', *defined),
      )
      for name, (file, defined) in _PROGRAMS.items()
    }
    for program in programs.values():
      program['Scene'].binding = _SCENE_BINDING
      if 'Thing' in program:
        program['Thing'].binding = _THING_BINDING
      if 'shadow_map' in program:
        program['shadow_map'] = _SHADOW_UNIT
      if 'textures' in program:
        program['textures'] = _TEXTURES_UNIT
      if 'print' in program:
        program['print'] = _PRINT_UNIT
      if 'skin' in program:
        program['skin'] = _SKIN_UNIT
    self._backdrop = [
      context.vertex_array(programs[name], []) for name in ('ground', 'wall')
    ]
    self._programs = (
      programs['object'],
      programs['shadow'],
      programs['skinned'],
    )
    self._slots = [_Slot(context, *self._programs) for _ in range(2)]
    self._block = context.buffer(reserve=4 * 4 * _SCENE_ROWS)
    self._shadow_map = context.depth_texture((_SHADOW_MAP_PX,) * 2)
    self._shadow_map.compare_func = '<='
    self._shadow_map.repeat_x = self._shadow_map.repeat_y = False
    self._shadow_target = context.framebuffer(depth_attachment=self._shadow_map)
    tiles = make_textures()
    self._textures = context.texture_array(
      (SIZE_PX, SIZE_PX, len(tiles)), 2, tiles.tobytes()
    )
    self._textures.build_mipmaps()
    self._textures.anisotropy = 1.0
    self._samples = context.framebuffer(
      context.renderbuffer(self._size, 3, samples=_SAMPLES),
      context.depth_renderbuffer(self._size, samples=_SAMPLES),
    )
    self._target = context.framebuffer(context.renderbuffer(self._size, 3))

  def render(self, scene: Scene) -> np.ndarray:
    """Draws a scene.

    Returns:
      uint8 [height, width, 3], sRGB, the upper row first.
    """
    if self._context is None:
      raise ValueError('the renderer is closed')
    width, height = self._size
    with self._context as context:
      self._block.write(_make_scene_block(scene, width / height))
      self._block.bind_to_uniform_block(_SCENE_BINDING)
      self._shadow_map.use(_SHADOW_UNIT)
      self._textures.use(_TEXTURES_UNIT)
      things = scene.list_things()
      while len(self._slots) < len(things):
        self._slots.append(_Slot(context, *self._programs))
      slots = self._slots[: len(things)]
      for slot, placement in zip(slots, things, strict=True):
        slot.load(placement)

      context.enable_only(moderngl.DEPTH_TEST)
      self._shadow_target.use()
      self._shadow_target.clear()
      for slot in slots:
        slot.draw(shadow=True)

      self._samples.use()
      self._samples.clear(depth=1.0)
      for slot in slots:
        slot.draw(shadow=False)
      context.disable(moderngl.CULL_FACE)
      for quad in self._backdrop:
        quad.render(moderngl.TRIANGLE_STRIP, vertices=4)
      context.copy_framebuffer(self._target, self._samples)
      data = self._target.read(components=3, alignment=1)
    pixels = np.frombuffer(data, np.uint8).reshape(height, width, 3)
    return pixels[::-1].copy()

  def close(self) -> None:
    """Gives everything back to the driver; may be called twice."""
    if self._context is not None:
      self._context.release()
      self._context = None

  def __enter__(self) -> Self:
    """Returns itself."""
    return self

  def __exit__(
    self,
    error_type: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    """Closes."""
    self.close()

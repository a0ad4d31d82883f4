"""Chooses which materials of a model take an object's colours.

The material that one sees most of takes the named colour, with others if it
does not show enough of it; the next one takes the second colour; the rest
stays as the artist made it. Of what is coloured anew only the lightness is
kept, around a mean of 1. Means are taken over square roots, which are nearer to
what one sees than linear values.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np
from PIL import Image

from vhop_jax import errors
from vhop_jax.worlds.assets import Mesh, Part, Skin
from vhop_jax.worlds.assets.model import Material, Model, compute_normals

TEXTURE_PX = 256
# How much of what one sees must have the named colour, and how much makes a
# material worth the second colour, at least.
_FIRST_SHARE = 0.55
_SECOND_SHARE = 0.06
_ALIKE = (
  0.06  # Distance of two colours, as roots of linear RGB, still the same.
)
_SHADES = (0.3, 1.8)  # Darkest and lightest of a texture around a mean of 1.
_RANGE = 2.0  # A texel of 255 in a texture that is coloured anew.
_TONES = (0.6, 1.5)  # The same for whole materials of one colour.
_POINTS = 24_000
_VIEWS = 8
_PITCH = 0.35
_CELLS = 40  # Of a screen that is as wide as the object is large.
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@dataclasses.dataclass(frozen=True, eq=False)
class _Sight:
  """Holds points of a model that can be seen, each as often as it is.

  Attributes:
    material: index of the point's material [N].
    uv: its place in the texture [N, 2].
  """

  material: np.ndarray
  uv: np.ndarray


def make_mesh(
  model: Model,
  first: Sequence[str] = (),
  second: Sequence[str] | None = None,
) -> Mesh:
  """Makes a mesh whose body and trim can be coloured.

  Args:
    model: what to colour.
    first: names of the materials that take the named colour; none chooses them
      by what one sees of them.
    second: names of those that take the second colour; empty for no material,
      None to choose.

  Raises:
    DataError: the model has no material of that name.
  """
  sight = _look(model)
  seen = np.bincount(sight.material, minlength=len(model.materials))
  seen = seen / seen.sum()
  parts = _choose_parts(model, seen, first, second)
  textures: list[np.ndarray] = []
  base = np.zeros((len(model.materials), 3))
  layer = np.full(len(model.materials), -1.0)
  tones = _compute_tones(model, sight, seen, parts)
  for i, material in enumerate(model.materials):
    if material.texture is None:
      base[i] = _decode(material.colour) if parts[i] == Part.OWN else tones[i]
      continue
    layer[i] = len(textures)
    texture = _resize(material.texture)
    if parts[i] == Part.OWN:
      base[i] = _decode(material.colour)
      roots = np.sqrt(_decode(texture[..., :3]))
    else:
      base[i] = _RANGE * tones[i]
      roots = _make_shades(texture, sight.uv[sight.material == i])
    textures.append(np.concatenate([roots, texture[..., 3:]], axis=-1))
  return _weld(model, parts, base, layer, textures)


def _decode(srgb: np.ndarray) -> np.ndarray:
  """Converts sRGB in [0, 1] to linear RGB."""
  return np.where(
    srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4
  )


def _look(model: Model) -> _Sight:
  """Looks at a model from all around.

  Scatters points over the surface and keeps, in each cell of a coarse screen,
  the one that is nearest to the viewer.
  """
  rng = np.random.default_rng(0)
  corners = model.corners
  sides = corners[:, 1:] - corners[:, :1]
  areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1)
  face = rng.choice(len(areas), _POINTS, p=areas / areas.sum())
  weights = rng.dirichlet((1, 1, 1), _POINTS)
  points = np.einsum('nk,nkc->nc', weights, corners[face])
  uv = np.einsum('nk,nkc->nc', weights, model.uv[face])
  visible = []
  for yaw in 0.2 + np.arange(_VIEWS) * 2 * np.pi / _VIEWS:
    cos, sin = np.cos(yaw), np.sin(yaw)
    across = points[:, 0] * cos + points[:, 2] * sin
    towards = points[:, 2] * cos - points[:, 0] * sin
    up = points[:, 1] * np.cos(_PITCH) - towards * np.sin(_PITCH)
    near = towards * np.cos(_PITCH) + points[:, 1] * np.sin(_PITCH)
    column, row = (
      np.floor((value + 2) * _CELLS).astype(int) for value in (across, up)
    )
    cell = column * 4 * _CELLS + row
    order = np.lexsort((near, cell))
    visible.append(order[np.append(np.diff(cell[order]) > 0, True)])
  chosen = np.concatenate(visible)
  return _Sight(model.material[face[chosen]], uv[chosen])


def _choose_parts(
  model: Model,
  seen: np.ndarray,
  first: Sequence[str],
  second: Sequence[str] | None,
) -> np.ndarray:
  """Decides for each material what part of the object it is [M]."""
  parts = np.full(len(seen), Part.OWN, np.uint8)
  looks = _group(model.materials)
  shares = np.bincount(looks, seen)
  order = [int(group) for group in np.argsort(-shares, kind='stable')]
  if first:
    parts[_find(model.materials, first)] = Part.BODY
  else:
    total = 0.0
    while order and total < _FIRST_SHARE:
      parts[looks == order[0]] = Part.BODY
      total += shares[order.pop(0)]
  if second is not None:
    parts[_find(model.materials, second)] = Part.TRIM
    return parts
  for group in order:
    free = (looks == group) & (parts == Part.OWN)
    if seen[free].sum() >= _SECOND_SHARE:
      parts[free] = Part.TRIM
      break
  return parts


def _find(materials: Sequence[Material], names: Sequence[str]) -> np.ndarray:
  """Returns which materials [M] have one of the names.

  Raises:
    DataError: one of the names is no material's.
  """
  known = [material.name for material in materials]
  for name in names:
    if name not in known:
      raise errors.DataError(
        f'there is no material {name!r}: choose among'
        f' {", ".join(sorted(set(known)))}'
      )
  return np.array([name in names for name in known], bool)


def _group(materials: Sequence[Material]) -> np.ndarray:
  """Numbers materials [M]; those that look the same have the same number."""
  groups: list[int] = []
  for i, material in enumerate(materials):
    groups.append(i)
    for k, other in enumerate(materials[:i]):
      if material.texture is None and other.texture is None:
        roots = [np.sqrt(_decode(m.colour)) for m in (material, other)]
        same = bool(np.linalg.norm(roots[0] - roots[1]) < _ALIKE)
      else:
        same = (
          material.texture is not None
          and other.texture is not None
          and np.array_equal(material.texture, other.texture)
        )
      if same:
        groups[i] = groups[k]
        break
  return np.array(groups)


def _compute_tones(
  model: Model, sight: _Sight, seen: np.ndarray, parts: np.ndarray
) -> np.ndarray:
  """Computes how light each material is among those of its colour [M].

  The mean over what one sees of a colour is 1.
  """
  lightness = np.empty(len(seen))
  for i, material in enumerate(model.materials):
    colours = _decode(material.colour)
    if material.texture is not None:
      texels = _pick_texels(
        material.texture, sight.uv[sight.material == i]
      ).astype(float)
      colours = colours * _decode(texels[:, :3] / 255).mean(axis=0)
    lightness[i] = colours @ _LUMINANCE
  tones = np.ones(len(seen))
  for part in (Part.BODY, Part.TRIM):
    chosen = parts == part
    weights = seen[chosen]
    if not weights.sum() > 0:
      continue
    mean = np.average(lightness[chosen], weights=weights)
    tone = np.sqrt((lightness[chosen] + 0.02) / (mean + 0.02)).clip(*_TONES)
    tones[chosen] = tone / np.average(np.sqrt(tone), weights=weights) ** 2
  return tones


def _pick_texels(texture: np.ndarray, uv: np.ndarray) -> np.ndarray:
  """Returns the texels [N, 4] at places; of no place, all texels."""
  if not len(uv):
    return texture.reshape(-1, 4)
  height, width = texture.shape[:2]
  column = np.floor(uv[:, 0] % 1 * width).astype(int) % width
  row = np.floor((1 - uv[:, 1]) % 1 * height).astype(int) % height
  return texture[row, column]


def _resize(texture: np.ndarray) -> np.ndarray:
  """Returns a texture [S, S, 4] in [0, 1], the upper row first."""
  image = Image.fromarray(texture, 'RGBA')
  if image.size != (TEXTURE_PX, TEXTURE_PX):
    image = image.resize((TEXTURE_PX, TEXTURE_PX), Image.Resampling.BOX)
  return np.asarray(image, float) / 255


def _make_shades(texture: np.ndarray, uv: np.ndarray) -> np.ndarray:
  """Makes roots of a texture's lightness [S, S, 3] over `_RANGE`.

  Args:
    texture: in [0, 1], [S, S, 4].
    uv: where one sees it; there the mean is 1.
  """
  lightness = _decode(texture[..., :3]) @ _LUMINANCE
  stacked = np.concatenate([lightness[..., None]] * 4, axis=-1)
  # Cutting off what is too dark or too light moves the mean: again.
  for _ in range(3):
    mean = np.sqrt(_pick_texels(stacked, uv)[:, 0]).mean() ** 2
    stacked = (stacked / max(mean, 1e-3)).clip(*_SHADES)
  return np.sqrt(stacked[..., :3] / _RANGE)


def _weld(
  model: Model,
  parts: np.ndarray,
  base: np.ndarray,
  layer: np.ndarray,
  textures: Sequence[np.ndarray],
) -> Mesh:
  """Joins the corners of the triangles that are the same in all."""
  material = np.repeat(model.material, 3)
  rows = np.concatenate(
    [
      model.corners.reshape(-1, 3),
      compute_normals(model.corners).reshape(-1, 3),
      model.uv.reshape(-1, 2),
      layer[material][:, None],
      base[material],
      parts[material][:, None],
    ],
    axis=1,
  )
  # Where there is no texture, the place in it must keep no corners apart.
  rows[:, 6:8] = np.where(rows[:, 8:9] < 0, 0, rows[:, 6:8])
  _, index, inverse = np.unique(
    np.round(rows * 1e4).astype(np.int64),
    axis=0,
    return_index=True,
    return_inverse=True,
  )
  vertices = rows[index]
  size = (len(textures), TEXTURE_PX, TEXTURE_PX, 4)
  stacked = np.stack(textures)[:, ::-1] if textures else np.zeros(size)
  return Mesh(
    positions=vertices[:, :3].astype(np.float32),
    normals=vertices[:, 3:6].astype(np.float32),
    part=vertices[:, 12].astype(np.uint8),
    faces=inverse.reshape(-1, 3).astype(np.uint32),
    skin=Skin(
      uv=vertices[:, 6:9].astype(np.float32),
      base=vertices[:, 9:12].astype(np.float32),
      textures=np.round(255 * stacked.clip(0, 1)).astype(np.uint8),
    ),
  )

"""Turns pictures of any size into patches, as Qwen3-VL was trained on.

The reference is transformers' `Qwen2VLImageProcessorPil`: the same pixels, bit
for bit. What has an alpha channel is laid on white, and a picture is turned
as its EXIF orientation says; of an animation the first frame is read. Videos
are left out.

In one point the reference is wrong: of a grey picture of 16 bits Pillow's
`convert('RGB')` clips the values at 255, so that it is white. Here the upper
eight bits are read, as Pillow itself reads colours of 16 bits.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
import os
import pathlib
from typing import Any
import warnings

import numpy as np
from PIL import Image, ImageOps

from vhop_jax import errors
from vhop_jax.typing import Float32, UInt8, ndarray, typed

FILE = 'preprocessor_config.json'
MAX_ASPECT = 200  # Longer strips are refused, by the reference too.
_CHANNELS = 3
_WHITE = (255, 255, 255, 255)
# The limits of Qwen3-VL-Embedding's recipe. It sets them itself: the files of
# Qwen3-VL's folders have others, from 65,536 to 16,777,216.
MIN_PIXELS, MAX_PIXELS = 4096, 1_843_200

# Settings of the file that change no number.
_IGNORED = frozenset(
  (
    'auto_map',
    'crop_size',
    'data_format',
    'default_to_square',
    'device',
    'disable_grouping',
    'do_center_crop',
    'do_pad',
    'image_processor_type',
    'input_data_format',
    'pad_size',
    'processor_class',
    'return_tensors',
  )
)
# Settings of the file that would change numbers if they were anything else.
_FIXED: Mapping[str, Any] = {
  'do_convert_rgb': True,
  'do_normalize': True,
  'do_rescale': True,
  'do_resize': True,
  'resample': int(Image.Resampling.BICUBIC),
  'rescale_factor': 1 / 255,
}


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
  """Says how pictures become patches; the defaults are Qwen3-VL-Embedding's.

  Attributes:
    min_pixels: smaller pictures are enlarged to at least this.
    max_pixels: larger pictures are shrunk to at most this.
    patch_size: pixels per patch, along each side.
    temporal_patch_size: frames per patch; a picture is repeated.
    merge_size: patches per visual token, along each side.
    mean: of each channel, of values from 0 to 1.
    std: likewise.
  """

  min_pixels: int = MIN_PIXELS
  max_pixels: int = MAX_PIXELS
  patch_size: int = 16
  temporal_patch_size: int = 2
  merge_size: int = 2
  mean: tuple[float, ...] = (0.5, 0.5, 0.5)
  std: tuple[float, ...] = (0.5, 0.5, 0.5)

  def __post_init__(self) -> None:
    if not 0 < self.min_pixels <= self.max_pixels:
      raise errors.UsageError(
        f'min_pixels={self.min_pixels} must be positive and at most'
        f' max_pixels={self.max_pixels}'
      )

  @property
  def factor(self) -> int:
    """Gives what both sides of a resized picture are multiples of, in px."""
    return self.patch_size * self.merge_size

  @property
  def max_patches(self) -> int:
    """Gives the patches of the largest picture; a long strip may have more."""
    return self.max_pixels // self.factor**2 * self.merge_size**2

  def find_size(self, height: int, width: int) -> tuple[int, int]:
    """Returns the height and width that a picture is resized to, in px.

    Both are multiples of `factor`, their product lies within the limits, and
    their ratio is about the picture's.

    Raises:
      DataError: one side is more than 200 times the other.
    """
    if max(height, width) > MAX_ASPECT * min(height, width):
      raise errors.DataError(
        f'a picture of {width} x {height} px is more than {MAX_ASPECT} times'
        ' as long as it is wide: cut it'
      )
    factor = self.factor
    # Python's rounding: halves go to the even number.
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor**2 > self.max_pixels:
      shrink = math.sqrt(height * width / self.max_pixels)
      rows = max(1, math.floor(height / shrink / factor))
      columns = max(1, math.floor(width / shrink / factor))
    elif rows * columns * factor**2 < self.min_pixels:
      enlarge = math.sqrt(self.min_pixels / (height * width))
      rows = math.ceil(height * enlarge / factor)
      columns = math.ceil(width * enlarge / factor)
    return rows * factor, columns * factor

  def resize(self, pixels: UInt8[ndarray, 'H W 3']) -> UInt8[ndarray, 'h w 3']:
    """Returns a picture in the size of `find_size`.

    Raises:
      DataError: see `find_size`.
    """
    size = self.find_size(*pixels.shape[:2])
    if size == pixels.shape[:2]:
      return pixels
    image = Image.fromarray(pixels)
    return np.asarray(image.resize(size[::-1], Image.Resampling.BICUBIC))

  @typed
  def make_patches(
    self, pixels: UInt8[ndarray, 'H W 3']
  ) -> tuple[Float32[ndarray, 'patches patch_dim'], tuple[int, int, int]]:
    """Resizes a picture and cuts it into normalised patches.

    Args:
      pixels: sRGB.

    Returns:
      The patches, each as (colour, frame, row, column), in the order of merged
      blocks; and how many there are along time, height and width.

    Raises:
      DataError: see `find_size`.
    """
    return self.cut_patches(self.resize(pixels))

  @typed
  def cut_patches(
    self, pixels: UInt8[ndarray, 'h w 3']
  ) -> tuple[Float32[ndarray, 'patches patch_dim'], tuple[int, int, int]]:
    """Cuts what `resize` gave into patches; see `make_patches`."""
    size = pixels.shape[:2]
    # In double precision and then in single, as the reference does.
    values = (pixels.astype(np.float64) * (1 / 255)).astype(np.float32)
    values -= np.asarray(self.mean, np.float32)
    values /= np.asarray(self.std, np.float32)
    side, merge = self.patch_size, self.merge_size
    rows, columns = size[0] // side, size[1] // side
    blocks = values.reshape(
      rows // merge, merge, side, columns // merge, merge, side, _CHANNELS
    ).transpose(0, 3, 1, 4, 6, 2, 5)
    patches = np.repeat(
      blocks[:, :, :, :, :, None], self.temporal_patch_size, axis=5
    )
    return patches.reshape(rows * columns, -1), (1, rows, columns)


def read_processor(folder: str | os.PathLike[str]) -> ImageProcessor:
  """Reads the settings in a Hugging Face folder, if it has any.

  Raises:
    DataError: the file is damaged, or asks for what is not implemented.
  """
  path = pathlib.Path(folder) / FILE
  if not path.is_file():
    return ImageProcessor()
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
    return _parse(content)
  except (OSError, ValueError, TypeError, AttributeError) as error:
    raise errors.DataError(
      f'{path} is damaged ({error}): fetch it anew'
    ) from error


def _parse(content: Mapping[str, Any]) -> ImageProcessor:
  # A limit or a size that is null is not set; a switch that is null is off.
  content = {k: v for k, v in content.items() if v is not None or k in _FIXED}
  size = dict(content.get('size', {}))
  settings: dict[str, Any] = {
    # Older files say it in their own words.
    'min_pixels': content.get('min_pixels', size.pop('shortest_edge', None)),
    'max_pixels': content.get('max_pixels', size.pop('longest_edge', None)),
    'patch_size': content.get('patch_size'),
    'temporal_patch_size': content.get('temporal_patch_size'),
    'merge_size': content.get('merge_size'),
    'mean': content.get('image_mean'),
    'std': content.get('image_std'),
  }
  if size:
    raise errors.DataError(
      f'{FILE}: size has {", ".join(sorted(size))}, and only shortest_edge and'
      ' longest_edge are implemented'
    )
  known = {'size', 'image_mean', 'image_std', *settings, *_FIXED, *_IGNORED}
  for name, value in content.items():
    if name not in known:
      raise errors.DataError(
        f'{FILE}: {name}={value!r} is a setting that this version does not know'
      )
    if name in _FIXED and (
      value is None or not math.isclose(value, _FIXED[name], rel_tol=1e-6)
    ):
      raise errors.DataError(
        f'{FILE}: {name}={value!r} is not implemented, only {_FIXED[name]!r}'
      )
  for name in ('mean', 'std'):
    if settings[name] is not None:
      settings[name] = tuple(map(float, settings[name]))
  return ImageProcessor(**{k: v for k, v in settings.items() if v is not None})


def read_picture(path: str | os.PathLike[str]) -> UInt8[ndarray, 'H W 3']:
  """Reads a picture file as sRGB, whatever its mode.

  Raises:
    DataError: the file is missing, no picture, cut short, or too large to be
      one; the message names it.
  """
  try:
    with warnings.catch_warnings():
      # A picture so large is an attack or a mistake, says Pillow.
      warnings.simplefilter('error', Image.DecompressionBombWarning)
      with Image.open(path) as image:
        image.load()
        return to_rgb(ImageOps.exif_transpose(image))
  except FileNotFoundError:
    raise errors.DataError(f'{path} is missing') from None
  except errors.DataError as error:
    raise errors.DataError(f'{path}: {error.message}') from None
  except Exception as error:  # Pillow's readers raise whatever they meet.
    raise errors.DataError(
      f'{path} cannot be read as a picture ({error}): remove or replace it'
    ) from error


def to_rgb(image: Image.Image) -> UInt8[ndarray, 'H W 3']:
  """Returns an image's pixels as sRGB; what is transparent is white.

  Raises:
    DataError: its values have no range that says what is white.
  """
  if image.mode.startswith('I;16'):
    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
  elif image.mode in ('I', 'F'):
    raise errors.DataError(
      f'a picture of mode {image.mode!r} has 32 bits of one colour and no'
      ' range: save it with 8 or 16 bits'
    )
  if 'A' in image.getbands() or image.info.get('transparency') is not None:
    image = image.convert('RGBA')
    background = Image.new('RGBA', image.size, _WHITE)
    image = Image.alpha_composite(background, image)
  return np.array(image.convert('RGB'))

"""Makes short words and sets them in type."""

import functools
import importlib.resources
import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# DejaVu, see fonts/LICENSE.
FONTS = ('DejaVuSans-Bold', 'DejaVuSerif-Bold', 'DejaVuSansMono-Bold')

_CONSONANTS = 'BCDFGHJKLMNPRSTVWXYZ'
_VOWELS = 'AEIOU'
# Words of this form that somebody may take offence at.
_BLOCKED = frozenset(
  (
    *('CACA', 'HOMO', 'KAKA', 'NAZI', 'NEGA', 'NIGA', 'NUDE', 'PEDO', 'PIPI'),
    *('POPO', 'PUTA', 'PUTO', 'RAPE', 'SEXO'),
  )
)
# Four letters, so that each is large: consonant, vowel, consonant, vowel.
WORDS = tuple(
  word
  for a in _CONSONANTS
  for b in _VOWELS
  for c in _CONSONANTS
  for d in _VOWELS
  if (word := a + b + c + d) not in _BLOCKED
)

_HEIGHT_PX = 96
_MARGIN_FRAC = 0.1


def draw_text(text: str, font: str, *, aspect: float) -> np.ndarray:
  """Sets a text so that it fills a label.

  Args:
    text: what is written.
    font: one of `FONTS`.
    aspect: width of the label over its height.

  Returns:
    uint8 [height, width]: 255 is ink.
  """
  height_px = _HEIGHT_PX
  width_px = round(aspect * height_px)
  face = _load_font(font)
  left, top, right, bottom = face.getbbox(text)
  # The letters are drawn as large as they come and then fitted, each way by
  # itself: fonts differ in how wide they run.
  drawn = Image.new('L', (int(right - left), int(bottom - top)))
  ImageDraw.Draw(drawn).text((-left, -top), text, fill=255, font=face)
  margin = round(_MARGIN_FRAC * height_px)
  inner = (width_px - 2 * margin, height_px - 2 * margin)
  label = Image.new('L', (width_px, height_px))
  label.paste(drawn.resize(inner, Image.Resampling.BICUBIC), (margin, margin))
  return np.asarray(label)


@functools.cache
def _load_font(name: str) -> ImageFont.FreeTypeFont:
  folder = importlib.resources.files('vhop_jax.worlds.assets') / 'fonts'
  data = io.BytesIO((folder / f'{name}.ttf').read_bytes())
  return ImageFont.truetype(data, _HEIGHT_PX)

"""Draws strips of pictures with coloured frames and captions as PNG."""

import io
from typing import cast

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vhop_jax.evaluate.strips import (
  DEAD_END,
  GOLD,
  NEUTRAL,
  QUERY,
  WRONG,
  Frame,
  Panel,
  Strip,
)

# Dark enough that white text on them has a contrast of at least 4.5.
KIND_COLOURS = {
  QUERY: '#2f62c9',
  GOLD: '#147a43',
  WRONG: '#c62f3a',
  DEAD_END: '#9a6200',
  NEUTRAL: '#69707d',
}
_INK = '#1c2128'
_FAINT_INK = '#5a6270'
_PAPER = '#ffffff'

_PICTURE_WIDTH_PX = 192
_FRAMES_A_ROW = 6
_BORDER_PX = 4
_DASH_PX = 6
_GAP_PX = 12
_MARGIN_PX = 20
_TAG_PX = 22
_LINE_PX = 17


def enlarge(
  image: np.ndarray, width_px: int = _PICTURE_WIDTH_PX
) -> Image.Image:
  """Enlarges a small picture by a whole factor, so that edges stay even.

  Args:
    image: uint8 [H, W, C].
    width_px: the factor is the one that comes nearest to this width, and at
      least 1.

  Returns:
    The picture, resampled by Lanczos.
  """
  height, width, _ = image.shape
  factor = max(1, round(width_px / width))
  picture = Image.fromarray(np.ascontiguousarray(image))
  if factor == 1:
    return picture
  return picture.resize(
    (width * factor, height * factor), Image.Resampling.LANCZOS
  )


def encode_jpeg(image: np.ndarray) -> bytes:
  """Encodes one enlarged picture, small enough to have many in one page."""
  stream = io.BytesIO()
  enlarge(image).save(stream, 'JPEG', quality=90, subsampling=0, optimize=True)
  return stream.getvalue()


def draw_panel(panel: Panel) -> Image.Image:
  """Draws a panel: title, text, then its strips below each other.

  Args:
    panel: what to draw. Long strips are broken into rows of six pictures.

  Returns:
    An RGB picture, as high as its captions need it.
  """
  frame = panel.strips[0].frames[0]
  cell_px = enlarge(frame.image).width + 2 * _BORDER_PX
  columns = max(min(len(s.frames), _FRAMES_A_ROW) for s in panel.strips)
  # Text has some room also where a panel has only a picture or two.
  columns = max(columns, 4)
  width = 2 * _MARGIN_PX + columns * (cell_px + _GAP_PX) - _GAP_PX
  text_px = width - 2 * _MARGIN_PX
  # Drawn on paper of more than enough height, then cut.
  rows = sum(-(-len(s.frames) // _FRAMES_A_ROW) + 1 for s in panel.strips)
  canvas = Image.new('RGB', (width, 400 + 700 * rows), _PAPER)
  pen = ImageDraw.Draw(canvas)
  y = _MARGIN_PX
  y = _write(pen, (_MARGIN_PX, y), panel.title, 19, text_px, _INK) + 2
  if panel.text:
    y = _write(pen, (_MARGIN_PX, y), panel.text, 15, text_px, _FAINT_INK)
  for strip in panel.strips:
    y = _draw_strip(canvas, strip, y + 10, cell_px, text_px)
  return canvas.crop((0, 0, width, y + _MARGIN_PX))


def _draw_strip(
  canvas: Image.Image, strip: Strip, y: int, cell_px: int, text_px: int
) -> int:
  pen = ImageDraw.Draw(canvas)
  y = _write(pen, (_MARGIN_PX, y), strip.title, 15, text_px, _INK) + 6
  for start in range(0, len(strip.frames), _FRAMES_A_ROW):
    bottoms = []
    for column, frame in enumerate(strip.frames[start:][:_FRAMES_A_ROW]):
      x = _MARGIN_PX + column * (cell_px + _GAP_PX)
      bottoms.append(_draw_frame(canvas, frame, (x, y), cell_px))
    y = max(bottoms) + 8
  return y


def _draw_frame(
  canvas: Image.Image, frame: Frame, corner: tuple[int, int], cell_px: int
) -> int:
  """Draws tag, border, picture and caption; returns where it ends."""
  x, y = corner
  pen = ImageDraw.Draw(canvas)
  picture = enlarge(frame.image)
  bottom = y + _TAG_PX + picture.height + _BORDER_PX
  pen.rounded_rectangle(
    (x, y, x + cell_px - 1, bottom - 1), 4, fill=KIND_COLOURS[frame.kind]
  )
  _write(pen, (x + 6, y + 2), frame.label, 14, cell_px - 12, _PAPER)
  canvas.paste(picture, (x + _BORDER_PX, y + _TAG_PX))
  if frame.is_rejected:
    _draw_dashes(pen, (x, y + _TAG_PX, x + cell_px - 1, bottom - 1))
  bottom = _write(pen, (x, bottom + 4), frame.caption, 13, cell_px, _FAINT_INK)
  return bottom


def _draw_dashes(
  pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int]
) -> None:
  """Interrupts the left, right and lower border of a frame."""
  left, top, right, bottom = box
  for y in range(top, bottom - _DASH_PX, 2 * _DASH_PX):
    for x in (left, right - _BORDER_PX + 1):
      pen.rectangle((x, y, x + _BORDER_PX - 1, y + _DASH_PX - 1), fill=_PAPER)
  for x in range(left + _DASH_PX, right - _DASH_PX, 2 * _DASH_PX):
    pen.rectangle(
      (x, bottom - _BORDER_PX + 1, x + _DASH_PX - 1, bottom), fill=_PAPER
    )


def _write(
  pen: ImageDraw.ImageDraw,
  corner: tuple[int, int],
  text: str,
  size: int,
  width_px: int,
  colour: str,
) -> int:
  """Writes text broken to a width; returns where it ends."""
  font = cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
  line = ''
  x, y = corner
  leading = max(_LINE_PX, round(size * 1.3))
  for word in text.split():
    longer = f'{line} {word}'.strip()
    if line and font.getlength(longer) > width_px:
      pen.text((x, y), line, font=font, fill=colour)
      y += leading
      line = word
    else:
      line = longer
  if line:
    pen.text((x, y), line, font=font, fill=colour)
    y += leading
  return y

import dataclasses
import io

import numpy as np
from PIL import Image, ImageColor
import pytest

from vhop_jax.evaluate import figures
from vhop_jax.evaluate.strips import KINDS, Frame, Panel, Strip


def _frame(kind, value=128, caption=''):
  return Frame(
    np.full((64, 96, 3), value, np.uint8), '00000', kind, '1', caption
  )


def _panel(*frames):
  return Panel('p', 'Title', 'Text', (Strip('Strip', frames),))


def _has_colour(picture, colour):
  pixels = np.asarray(picture).reshape(-1, 3)
  return (pixels == ImageColor.getrgb(colour)).all(axis=1).any()


@pytest.mark.parametrize(
  ('width', 'enlarged'), [(96, 192), (64, 192), (224, 224), (500, 500)]
)
def test_pictures_grow_by_whole_factors(width, enlarged):
  picture = figures.enlarge(np.zeros((10, width, 3), np.uint8))
  assert picture.width == enlarged
  assert picture.height * width == 10 * enlarged


@pytest.mark.parametrize('kind', list(KINDS))
def test_each_kind_has_its_colour(kind):
  picture = figures.draw_panel(_panel(_frame(kind)))
  for other, colour in figures.KIND_COLOURS.items():
    assert _has_colour(picture, colour) == (other == kind)


def test_pictures_stand_unchanged_in_their_frames():
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (64, 96, 3), np.uint8)
  drawn = np.asarray(figures.draw_panel(_panel(Frame(image, '0', 'gold', 'x'))))
  expected = np.asarray(figures.enlarge(image))
  green = ImageColor.getrgb(figures.KIND_COLOURS['gold'])
  rows, columns = np.nonzero((drawn == green).all(axis=2))
  bottom, left = rows.max() + 1, columns.min()
  window = drawn[bottom - 4 - 128 : bottom - 4, left + 4 : left + 4 + 192]
  np.testing.assert_array_equal(window, expected)


def test_frame_of_a_rejected_picture_is_dashed():
  frame = _frame('gold')
  whole = np.asarray(figures.draw_panel(_panel(frame)))
  dashed = np.asarray(
    figures.draw_panel(_panel(dataclasses.replace(frame, is_rejected=True)))
  )
  green = ImageColor.getrgb(figures.KIND_COLOURS['gold'])
  before = (whole == green).all(axis=2)
  after = (dashed == green).all(axis=2)
  assert not (after & ~before).any()
  lost = before & ~after
  # The tag above stays, and so does the picture.
  rows, columns = np.nonzero(lost)
  assert rows.min() >= np.nonzero(before)[0].min() + 22
  assert 200 < lost.sum() < before.sum() / 2
  np.testing.assert_array_equal(whole[~before], dashed[~before])


def test_seven_pictures_take_two_rows_and_long_captions_more_height():
  six = figures.draw_panel(_panel(*[_frame('gold')] * 6))
  seven = figures.draw_panel(_panel(*[_frame('gold')] * 7))
  assert seven.width == six.width
  assert seven.height > six.height + 128
  wordy = figures.draw_panel(
    _panel(*[_frame('gold', caption='many words ' * 40)] * 6)
  )
  assert wordy.height > six.height + 150


def test_jpeg_is_close_to_the_picture():
  image = np.full((64, 96, 3), 90, np.uint8)
  image[:, 48:] = 200
  picture = Image.open(io.BytesIO(figures.encode_jpeg(image)))
  assert picture.size == (192, 128)
  error = np.abs(np.asarray(picture, int) - np.asarray(figures.enlarge(image)))
  assert error.mean() < 3


@pytest.mark.parametrize('colour', figures.KIND_COLOURS.values())
def test_white_text_can_be_read_on_each_colour(colour):
  # WCAG 2: relative luminance, then (1 + 0.05) / (luminance + 0.05).
  channels = np.array(ImageColor.getrgb(colour)) / 255
  linear = np.where(
    channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
  )
  luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
  assert 1.05 / (luminance + 0.05) >= 4.5

"""Compares patches with transformers' and damages pictures."""

import json
import struct

import numpy as np
from PIL import Image, ImageOps
import pytest

from vhop_jax import errors
from vhop_jax.models import image_processor

PROCESSOR = image_processor.ImageProcessor()
SIZES = (
  (224, 224),
  (64, 64),
  (1, 150),
  (190, 1),
  (3, 5),
  (500, 333),
  (47, 49),
  (48, 80),
  (1500, 1400),
  (31, 33),
)


def draw(height, width, channels=3, seed=0):
  """Returns noise on a slope, so that every pixel and side counts."""
  rng = np.random.default_rng(seed)
  slope = np.linspace(0, 200, height * width * channels)
  noise = rng.integers(0, 55, height * width * channels)
  return (slope + noise).astype(np.uint8).reshape(height, width, channels)


def make_files(folder):
  """Writes a picture of each mode; returns their paths."""
  rgb = Image.fromarray(draw(60, 90))
  grey = Image.fromarray(draw(60, 90, 1)[:, :, 0])
  palette = rgb.quantize(32)
  exif = Image.Exif()
  exif[0x0112] = 6  # A quarter turn.
  paths = {}

  def save(name, image, **settings):
    paths[name] = folder / name
    image.save(paths[name], **settings)

  save('grey.png', grey)
  save('rgba.png', Image.fromarray(draw(60, 90, 4)))
  save('grey_alpha.png', Image.fromarray(draw(60, 90, 2)))
  save('palette.png', palette)
  save('transparent_palette.png', palette, transparency=3)
  save('cmyk.jpg', rgb.convert('CMYK'))
  save('turned.jpg', rgb, exif=exif)
  save('strip.png', Image.fromarray(draw(1, 120)))
  save('two.gif', palette, save_all=True, append_images=[palette])
  save('bits.png', rgb.convert('1'))
  return paths


@pytest.fixture(scope='module')
def reference():
  transformers = pytest.importorskip(
    'transformers', reason='needs the extra [parity]'
  )
  return transformers.Qwen2VLImageProcessorPil(
    patch_size=16,
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
    size={'shortest_edge': 4096, 'longest_edge': 1_843_200},
  )


def assert_is_reference(pixels, reference, image):
  patches, grid = PROCESSOR.make_patches(pixels)
  expected = reference(images=[image], return_tensors='np')
  assert list(grid) == expected['image_grid_thw'][0].tolist()
  np.testing.assert_array_equal(patches, expected['pixel_values'])
  assert patches.std() > 0.05


@pytest.mark.parity
@pytest.mark.parametrize('size', SIZES)
def test_patches_are_the_reference(reference, size):
  pixels = draw(*size)
  assert_is_reference(pixels, reference, Image.fromarray(pixels))


@pytest.mark.parity
def test_every_mode_is_the_reference(reference, tmp_path):
  transforms = pytest.importorskip('transformers.image_transforms')
  for path in make_files(tmp_path).values():
    # transformers' loader turns it, and its image processor does the rest.
    with Image.open(path) as image:
      turned = ImageOps.exif_transpose(image)
      rgb = transforms.convert_to_rgb(turned, return_numpy=True)
    pixels = image_processor.read_picture(path)
    np.testing.assert_array_equal(pixels, rgb, err_msg=path.name)
    assert_is_reference(pixels, reference, turned)


@pytest.mark.parametrize('name', ['deep.png', 'deep.tif'])
def test_16_bits_are_cut_to_the_upper_8(tmp_path, name):
  wanted = draw(60, 90, 1)[:, :, 0]
  deep = wanted.astype(np.uint16) * 256 + 255 - wanted
  Image.fromarray(deep).save(tmp_path / name)
  pixels = image_processor.read_picture(tmp_path / name)
  np.testing.assert_array_equal(pixels, np.stack([wanted] * 3, axis=-1))


def test_picture_without_a_range_is_refused_by_name(tmp_path):
  ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
  Image.fromarray(ramp).save(tmp_path / 'ramp.tif')
  with pytest.raises(errors.DataError, match=r"ramp\.tif: .*mode 'F'"):
    image_processor.read_picture(tmp_path / 'ramp.tif')


def test_turned_picture_is_turned(tmp_path):
  paths = make_files(tmp_path)
  assert image_processor.read_picture(paths['turned.jpg']).shape == (90, 60, 3)


def test_transparent_is_white(tmp_path):
  pixels = np.zeros((8, 8, 4), np.uint8)
  pixels[:4, :, 3] = 255
  Image.fromarray(pixels).save(tmp_path / 'half.png')
  seen = image_processor.read_picture(tmp_path / 'half.png')
  assert (seen[:4] == 0).all()
  assert (seen[4:] == 255).all()


def test_sizes_are_multiples_within_the_limits():
  rng = np.random.default_rng(0)
  for height, width in rng.integers(1, 3000, (300, 2)):
    if max(height, width) > 200 * min(height, width):
      continue
    rows, columns = PROCESSOR.find_size(int(height), int(width))
    assert rows % 32 == columns % 32 == 0
    # A strip may exceed them, for no side can be under one token.
    if min(rows, columns) > 32:
      assert 4096 <= rows * columns <= 1_843_200
      assert 0.5 < (rows / columns) / (height / width) < 2


def test_patch_is_a_block_of_one_colour_after_the_other():
  pixels = draw(64, 96)
  patches, grid = PROCESSOR.make_patches(pixels)
  assert grid == (1, 4, 6)
  # The second block of 2 x 2 patches begins at column 32; its third patch is
  # the lower left one.
  part = pixels[16:32, 32:48].astype(np.float32) / 127.5 - 1
  seen = patches[6].reshape(3, 2, 16, 16)
  np.testing.assert_allclose(seen[:, 0], part.transpose(2, 0, 1), atol=1e-6)
  np.testing.assert_array_equal(seen[:, 0], seen[:, 1])


def test_long_strips_are_refused():
  with pytest.raises(errors.DataError, match='201 x 1 px'):
    PROCESSOR.make_patches(draw(1, 201))


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('empty.png', b''),
    ('text.jpg', b'no picture'),
    ('cut.png', None),
    ('missing.png', False),
  ],
)
def test_unreadable_picture_is_named(tmp_path, name, content):
  path = tmp_path / name
  if content is None:
    Image.fromarray(draw(60, 90)).save(path)
    content = path.read_bytes()[:-3000]
  if content is not False:
    path.write_bytes(content)
  with pytest.raises(errors.DataError, match=name):
    image_processor.read_picture(path)


@pytest.mark.parametrize('error', [TypeError, IndexError, struct.error])
def test_whatever_pillow_raises_names_the_file(tmp_path, monkeypatch, error):
  """Damaged TIFFs and EXIF blocks make it raise such things."""
  Image.fromarray(draw(6, 9)).save(tmp_path / 'odd.png')

  def fail(image):
    raise error('odd')

  monkeypatch.setattr(ImageOps, 'exif_transpose', fail)
  with pytest.raises(errors.DataError, match=r'odd\.png cannot be read'):
    image_processor.read_picture(tmp_path / 'odd.png')


def test_giant_picture_is_refused(tmp_path, monkeypatch):
  Image.fromarray(draw(60, 90)).save(tmp_path / 'giant.png')
  monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 4000)
  with pytest.raises(errors.DataError, match=r'giant\.png'):
    image_processor.read_picture(tmp_path / 'giant.png')


def write_config(folder, **settings):
  (folder / image_processor.FILE).write_text(json.dumps(settings))
  return folder


def test_settings_are_read(tmp_path):
  assert image_processor.read_processor(tmp_path) == PROCESSOR
  write_config(
    tmp_path,
    image_processor_type='Qwen2VLImageProcessorFast',
    size={'shortest_edge': 65536, 'longest_edge': 16777216},
    patch_size=16,
    temporal_patch_size=2,
    merge_size=2,
    image_mean=[0.4, 0.5, 0.6],
    image_std=[0.5, 0.5, 0.5],
    resample=3,
    rescale_factor=0.00392156862745098,
    do_resize=True,
    max_pixels=None,
  )
  made = image_processor.read_processor(tmp_path)
  assert (made.min_pixels, made.max_pixels) == (65536, 16777216)
  assert made.mean == (0.4, 0.5, 0.6)


@pytest.mark.parametrize(
  ('settings', 'words'),
  [
    ({'resample': 2}, 'resample=2 is not implemented'),
    ({'do_normalize': False}, 'do_normalize=False'),
    ({'do_convert_rgb': None}, 'do_convert_rgb=None is not implemented'),
    ({'sharpen': 1}, 'sharpen=1 is a setting'),
    ({'size': {'height': 224, 'width': 224}}, 'size has height, width'),
  ],
)
def test_other_settings_are_refused(tmp_path, settings, words):
  with pytest.raises(errors.DataError, match=words):
    image_processor.read_processor(write_config(tmp_path, **settings))


def test_damaged_settings_are_named(tmp_path):
  (tmp_path / image_processor.FILE).write_text('{')
  with pytest.raises(errors.DataError, match='preprocessor_config.*damaged'):
    image_processor.read_processor(tmp_path)

"""Encodes the images of a world once, for all that searches among them."""

from collections.abc import Callable
import dataclasses
import functools
import os
from typing import Any

import jax
import numpy as np
from PIL import Image

from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.typing import Float, Params, UInt8, ndarray
from vhop_jax.worlds import world as world_lib

CHUNK = 256  # Rows of one compiled call; the last chunk is padded to it.
# Images of one: on a CPU 1.6 times as fast as 256, which no cache holds.
_IMAGE_CHUNK = 16


@dataclasses.dataclass(frozen=True)
class Gallery:
  """Holds a world's images as a model sees them.

  Attributes:
    world: the world, without pixels.
    visual: the visual tokens of each image, [N, M, D].
    embeddings: the embedding of each image, [N, D], of length 1.
  """

  world: world_lib.World
  visual: Float[ndarray, 'N M packed']
  embeddings: Float[ndarray, 'N D']


@functools.partial(jax.jit, static_argnames=('module', 'method'))
def _apply(
  module: embedder_lib.Embedder, params: Params, *args: Any, method: str
) -> jax.Array:
  return module.apply({'params': params}, *args, method=method)


def map_chunks(
  function: Callable[..., jax.Array], *arrays: Any, chunk: int = CHUNK
) -> np.ndarray:
  """Calls `function` on slices of equal size and joins the results.

  Args:
    function: takes as many arguments as there are `arrays`.
    *arrays: pytrees of arrays with one leading axis.
    chunk: rows of a slice; the last is filled up with copies of row 0.
  """
  count = len(jax.tree.leaves(arrays)[0])
  whole: np.ndarray | None = None
  for start in range(0, count, chunk):
    rows = np.arange(start, start + chunk)
    rows = np.where(rows < count, rows, 0)
    piece = jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], arrays)
    result = np.asarray(function(*piece))
    if whole is None:
      # On the host float32, which every file format knows.
      whole = np.empty((count, *result.shape[1:]), np.float32)
    whole[start : start + chunk] = result[: count - start]
  assert whole is not None  # There is at least one row.
  return whole


def encode_images(
  model: pretrained_lib.Pretrained, pixels: UInt8[ndarray, 'N H W 3']
) -> Float[ndarray, 'N M packed']:
  """Returns the visual tokens of images of any size."""
  tower = model.settings['tower']
  pixels = resize(
    pixels,
    tower['width_px'],
    tower['height_px'],
    # What each was trained with.
    Image.Resampling.LANCZOS
    if pretrained_lib.is_conv(model.settings)
    else Image.Resampling.BICUBIC,
  )
  return map_chunks(
    lambda x: _apply(model.module, model.params, x, method='encode_images'),
    pixels,
    chunk=min(_IMAGE_CHUNK, find_chunk(model)),
  )


def find_chunk(model: pretrained_lib.Pretrained) -> int:
  """Returns how many rows a model reads at once: fewer if it is large."""
  width = model.module.config.decoder.hidden_size
  return max(8, min(CHUNK, CHUNK * 192 // width))


def embed_images(
  model: pretrained_lib.Pretrained, visual: Float[ndarray, 'N M packed']
) -> Float[ndarray, 'N D']:
  """Returns the embeddings of images from their visual tokens."""
  return embed_queries(model, model.maker.documents(len(visual)), visual)


def embed_queries(
  model: pretrained_lib.Pretrained,
  sequence: sequence_lib.Sequence,
  visual: Float[ndarray, 'B P D'] | None,
) -> Float[ndarray, 'B D']:
  """Returns the embedding of each row of text and visual tokens."""
  return map_chunks(
    lambda *x: _apply(model.module, model.params, *x, method='embed'),
    sequence,
    visual,
    chunk=find_chunk(model),
  )


def resize(
  pixels: UInt8[ndarray, 'N H W 3'],
  width_px: int,
  height_px: int,
  resampling: Image.Resampling = Image.Resampling.LANCZOS,
) -> UInt8[ndarray, 'N h w 3']:
  """Resizes images that are not of the wanted size."""
  if pixels.shape[1:3] == (height_px, width_px):
    return pixels
  size = (width_px, height_px)
  return np.stack(
    [np.asarray(Image.fromarray(p).resize(size, resampling)) for p in pixels]
  )


def make_gallery(
  model: pretrained_lib.Pretrained,
  world: world_lib.World,
  pixels: UInt8[ndarray, 'N H W 3'],
) -> Gallery:
  """Encodes and embeds a world's images."""
  visual = encode_images(model, pixels)
  return Gallery(
    world=world, visual=visual, embeddings=embed_images(model, visual)
  )


def load_gallery(
  model: pretrained_lib.Pretrained, folder: str | os.PathLike[str]
) -> Gallery:
  """Reads a world from disk, then encodes and embeds its images."""
  return make_gallery(
    model, world_lib.load_world(folder), world_lib.read_pixels(folder)
  )

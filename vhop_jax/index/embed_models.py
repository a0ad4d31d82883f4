"""Makes the model of `embed_files` from its name."""

from collections.abc import Sequence
import functools
import pathlib
from typing import Any

import numpy as np

from vhop_jax import errors
from vhop_jax.index import embed_files
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import encoder as encoder_lib
from vhop_jax.models import pretrained
from vhop_jax.typing import Float32, ndarray


def open_model(
  name: str,
  *,
  instruction: str,
  width: int,
  batch_size: int,
  dtype: str,
  tail: str,
  min_pixels: int | None,
  max_pixels: int | None,
) -> embed_files.Model:
  """Loads a model.

  Args:
    name: a Hugging Face folder of Qwen3-VL, 'tiny', or a parameter file.
    instruction: see `Encoder.prepare`; of a folder alone.
    width: see `Encoder.embed`; likewise.
    batch_size: see `Encoder.embed`.
    dtype: see `load_encoder`; of a folder alone.
    tail: likewise.
    min_pixels: likewise; None is its default there.
    max_pixels: likewise.

  Raises:
    UsageError: a setting is out of range, or not of this kind of model.
    DataError: the model is missing or damaged.
  """
  if pathlib.Path(name).is_dir():
    limits: dict[str, Any] = {
      'min_pixels': min_pixels,
      'max_pixels': max_pixels,
    }
    given = {limit: x for limit, x in limits.items() if x is not None}
    encoder = encoder_lib.load_encoder(name, dtype=dtype, tail=tail, **given)
    encoder.check_settings(width=width, batch_size=batch_size)
    return embed_files.Model(
      prepare=functools.partial(encoder.prepare, instruction=instruction),
      embed=functools.partial(
        encoder.embed_rows, width=width, batch_size=batch_size
      ),
      about={
        'fingerprint': encoder.fingerprint,
        'instruction': instruction,
        'width': width,
      },
    )
  for flag, is_given in (
    ('instruction', instruction),
    ('tail', tail),
    ('width', width),
    ('dtype', dtype != 'float32'),
    ('min-pixels', min_pixels is not None),
    ('max-pixels', max_pixels is not None),
  ):
    if is_given:
      raise errors.UsageError(
        f'--{flag} is for Hugging Face folders: leave it out with {name}'
      )
  model = pretrained.load_embedder(name)
  return embed_files.Model(
    prepare=functools.partial(_prepare_tiny, model),
    embed=functools.partial(_embed_tiny, model),
    about={'fingerprint': model.fingerprint, 'width': width},
  )


def _prepare_tiny(
  model: pretrained.Pretrained, item: encoder_lib.Item
) -> encoder_lib.Item:
  """Resizes a picture to the one size that the model reads."""
  if item.pixels is None:
    if not item.text.strip():
      raise errors.DataError('neither text nor picture is there to embed')
    return item
  tower = model.settings['tower']
  pixels = gallery_lib.resize(
    item.pixels[None], tower['width_px'], tower['height_px']
  )
  return encoder_lib.Item(pixels=pixels[0])


def _embed_tiny(
  model: pretrained.Pretrained, items: Sequence[encoder_lib.Item]
) -> Float32[ndarray, 'items width']:
  """Embeds texts, or pictures that `_prepare_tiny` resized."""
  pixels = [item.pixels for item in items if item.pixels is not None]
  if not pixels:
    return gallery_lib.embed_queries(
      model, model.maker.texts([item.text for item in items]), None
    )
  visual = gallery_lib.encode_images(model, np.stack(pixels))
  return gallery_lib.embed_images(model, visual)

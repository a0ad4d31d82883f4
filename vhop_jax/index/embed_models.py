"""Makes the function of `embed_files` from the name of a model."""

from collections.abc import Sequence
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
) -> tuple[embed_files.Embed, dict[str, Any]]:
  """Loads a model and says what of it changes the embeddings.

  Args:
    name: a Hugging Face folder of Qwen3-VL, 'tiny', or a parameter file.
    instruction: see `Encoder.embed`; of a folder alone.
    width: likewise.
    batch_size: likewise.
    dtype: see `load_encoder`; of a folder alone.
    tail: likewise.

  Returns:
    The function that embeds, and what belongs beside the result.

  Raises:
    UsageError: a setting is out of range, or not of this kind of model.
    DataError: the model is missing or damaged.
  """
  about: dict[str, Any] = {'width': width}
  if pathlib.Path(name).is_dir():
    encoder = encoder_lib.load_encoder(name, dtype=dtype, tail=tail)
    settings: dict[str, Any] = {'width': width, 'batch_size': batch_size}
    if instruction:
      settings['instruction'] = instruction
    about |= {'fingerprint': encoder.fingerprint, 'instruction': instruction}

    def embed(
      items: Sequence[encoder_lib.Item],
    ) -> Float32[ndarray, 'items width']:
      return encoder.embed(items, **settings)

    return embed, about
  for flag, value in (
    ('instruction', instruction),
    ('tail', tail),
    ('width', width),
  ):
    if value:
      raise errors.UsageError(
        f'--{flag} is for Hugging Face folders: leave it out with {name}'
      )
  model = pretrained.load_embedder(name)
  about['fingerprint'] = model.fingerprint

  def embed_tiny(
    items: Sequence[encoder_lib.Item],
  ) -> Float32[ndarray, 'items width']:
    if all(item.pixels is None for item in items):
      return gallery_lib.embed_queries(
        model, model.maker.texts([item.text for item in items]), None
      )
    tower = model.settings['tower']
    pixels = [
      gallery_lib.resize(
        item.pixels[None], tower['width_px'], tower['height_px']
      )
      for item in items
      if item.pixels is not None
    ]
    visual = gallery_lib.encode_images(model, np.concatenate(pixels))
    return gallery_lib.embed_images(model, visual)

  return embed_tiny, about

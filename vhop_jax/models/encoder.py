"""Embeds texts, pictures of any size, or both, by a Qwen3-VL folder.

The recipe of Qwen3-VL-Embedding: an instruction as the system message, the
content as the user's, padding at the right, the last token's hidden state,
normalised, cut to a Matryoshka width and normalised again. Rows are padded to
a few sizes, so that only a few programs are compiled.
"""

from collections.abc import Sequence as SequenceOf
import dataclasses
import functools
import os
from typing import Any

import flax
import jax
import numpy as np

from vhop_jax import errors
from vhop_jax.models import convert, image_processor, pretrained
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Float, Float32, Params, UInt8, ndarray

MAX_TOKENS = 8192
# Rows are padded to a power of two times this, or to one and a half.
_TOKENS_STEP, _PATCHES_STEP = 32, 64
# Of the rows read at once, unless one is longer by itself: attention needs
# memory for the square of a row's length.
_MAX_BATCH_LENGTH = 8192


@dataclasses.dataclass(frozen=True)
class Item:
  """Is something to embed.

  Attributes:
    text: '' for a picture alone.
    pixels: sRGB, of any size; None for a text alone.
  """

  text: str = ''
  pixels: UInt8[ndarray, 'H W 3'] | None = None


@dataclasses.dataclass(frozen=True)
class Row:
  """Is an item that the model can read, made by `Encoder.prepare`.

  Attributes:
    sequence: its tokens, without padding.
    pixels: its picture, resized but not cut into patches, which take eight
      times the memory; None for a text alone.
  """

  sequence: sequence_lib.Sequence
  pixels: UInt8[ndarray, 'H W 3'] | None


@flax.struct.dataclass
class Rows:
  """Holds items padded to one size, as the model reads them.

  Attributes:
    sequence: of the items.
    patches: of their pictures, None if there is none.
    layout: of the patches.
  """

  sequence: sequence_lib.Sequence
  patches: Float[Any, 'N patches patch_dim'] | None
  layout: vision_lib.PatchLayout | None


@dataclasses.dataclass(frozen=True)
class Encoder:
  """Holds an embedding model for items of any size.

  Attributes:
    module: the Linen module.
    params: its parameters.
    maker: lays out its sequences.
    processor: cuts pictures into patches.
    max_tokens: longer sequences are refused.
    fingerprint: of all that changes an embedding.
  """

  module: embedder_lib.Embedder
  params: Params
  maker: sequence_lib.SequenceMaker
  processor: image_processor.ImageProcessor
  max_tokens: int
  fingerprint: str

  @property
  def width(self) -> int:
    """Gives D."""
    return self.module.config.decoder.hidden_size

  def embed(
    self,
    items: SequenceOf[Item],
    *,
    instruction: str = sequence_lib.DEFAULT_INSTRUCTION,
    width: int = 0,
    batch_size: int = 8,
  ) -> Float32[ndarray, 'N D']:
    """Embeds items; how they are batched changes no result.

    Args:
      items: in any order of sizes; those of one size are read together.
      instruction: what the embeddings are for.
      width: of the result; 0 is all of it.
      batch_size: items that are read at once.

    Returns:
      The embeddings, of length 1.

    Raises:
      UsageError: a setting is out of its range.
      DataError: an item is empty, too long, or too narrow a strip.
    """
    self.check_settings(width=width, batch_size=batch_size)
    rows = []
    for number, item in enumerate(items):
      try:
        rows.append(self.prepare(item, instruction=instruction))
      except errors.DataError as error:
        raise errors.DataError(f'item {number}: {error.message}') from None
    return self.embed_rows(rows, width=width, batch_size=batch_size)

  def prepare(
    self, item: Item, *, instruction: str = sequence_lib.DEFAULT_INSTRUCTION
  ) -> Row:
    """Lays an item out, on the host.

    Args:
      item: a text, a picture, or both.
      instruction: what the embedding is for; a blank one is the default.

    Raises:
      DataError: the item is empty, too long, or too narrow a strip.
    """
    pixels = grid = None
    if item.pixels is not None:
      pixels = self.processor.resize(item.pixels)
      factor = self.processor.factor
      grid = (pixels.shape[0] // factor, pixels.shape[1] // factor)
    elif not item.text.strip():
      # The reference embeds the word NULL instead, and also for a picture that
      # it cannot read.
      raise errors.DataError('neither text nor picture is there to embed')
    sequence = self.maker.item(item.text, grid, instruction)
    count = sequence.tokens.shape[1]
    if count > self.max_tokens:
      raise errors.DataError(
        f'{count} tokens, {grid[0] * grid[1] if grid else 0} of them of a'
        f' picture, are more than {self.max_tokens}: shorten the text or lower'
        ' max_pixels'
      )
    return Row(sequence, pixels)

  def embed_rows(
    self, rows: SequenceOf[Row], *, width: int = 0, batch_size: int = 8
  ) -> Float32[ndarray, 'N D']:
    """Embeds what `prepare` made; see `embed`.

    Raises:
      UsageError: a setting is out of its range.
    """
    self.check_settings(width=width, batch_size=batch_size)
    result = np.zeros((len(rows), width or self.width), np.float32)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, row in enumerate(rows):
      groups.setdefault(self._find_sizes(row), []).append(number)
    for (patches, tokens), members in sorted(groups.items()):
      most = min(batch_size, max(1, _MAX_BATCH_LENGTH // max(patches, tokens)))
      for start in range(0, len(members), most):
        numbers = members[start : start + most]
        # A short batch is filled up by its first item, to a power of two: a
        # few more programs, and no eight rows for a single item.
        size = min(most, 1 << (len(numbers) - 1).bit_length())
        filled = numbers + numbers[:1] * (size - len(numbers))
        padded = self.stack([rows[i] for i in filled], patches, tokens)
        embedded = np.asarray(_embed(self.module, self.params, padded))
        result[numbers] = _cut(embedded[: len(numbers)], width)
    return result

  def check_settings(self, *, width: int, batch_size: int) -> None:
    """Refuses settings of `embed` that are out of their range.

    Raises:
      UsageError: one is.
    """
    if not 0 <= width <= self.width:
      raise errors.UsageError(
        f'width={width}: embeddings of this model have {self.width} numbers'
      )
    if batch_size < 1:
      raise errors.UsageError(f'batch_size={batch_size} must be positive')

  def _find_sizes(self, row: Row) -> tuple[int, int]:
    """Returns the patches (0 without a picture) and tokens it is padded to."""
    tokens = row.sequence.tokens.shape[1]
    if row.pixels is None:
      return 0, _find_bucket(tokens, _TOKENS_STEP, self.max_tokens)
    side, merge = self.processor.patch_size, self.processor.merge_size
    count = row.pixels.shape[0] * row.pixels.shape[1] // side**2
    patches = _find_bucket(count, _PATCHES_STEP, self.processor.max_patches)
    # The words alone: pictures with the same instruction then differ in their
    # patches only.
    words = _find_bucket(
      tokens - count // merge**2, _TOKENS_STEP, self.max_tokens
    )
    return patches, patches // merge**2 + words

  def stack(self, rows: SequenceOf[Row], patches: int, tokens: int) -> Rows:
    """Joins rows, each padded.

    Args:
      rows: of `prepare`; with `patches` some may still be without a picture.
      patches: of each row; 0 if none has a picture.
      tokens: of each row.
    """
    pad = self.maker.pad_id
    sequence = jax.tree.map(
      lambda *parts: np.concatenate(parts),
      *[sequence_lib.pad(row.sequence, tokens, pad) for row in rows],
    )
    if not patches:
      return Rows(sequence, None, None)
    tower = self.module.config.tower
    assert isinstance(tower, vision_lib.VisionConfig)
    pixels = np.zeros((len(rows), patches, tower.patch_dim), np.float32)
    layouts = []
    for i, row in enumerate(rows):
      grids = np.zeros((0, 3), int)
      if row.pixels is not None:
        cut, grid = self.processor.cut_patches(row.pixels)
        pixels[i, : len(cut)] = cut
        grids = np.array([grid])
      layouts.append(
        vision_lib.make_patch_layout(
          grids,
          grid_side=tower.grid_side,
          merge_size=tower.merge_size,
          length=patches,
        )
      )
    return Rows(
      sequence, pixels, jax.tree.map(lambda *parts: np.stack(parts), *layouts)
    )


def apply_rows(
  module: embedder_lib.Embedder,
  params: Params,
  rows: Rows,
  rngs: dict[str, jax.Array] | None = None,
) -> Float[jax.Array, 'N D']:
  """Returns the embedding of each row.

  Args:
    module: the Linen module.
    params: its parameters.
    rows: what it reads.
    rngs: 'dropout' for adapters in training, or None.
  """

  def run(module: embedder_lib.Embedder) -> Any:
    visual = None
    if rows.patches is not None:
      assert rows.layout is not None
      visual = module.encode_patches(rows.patches, rows.layout)
    return module.embed(rows.sequence, visual)

  embedded: jax.Array = module.apply({'params': params}, method=run, rngs=rngs)
  return embedded


_embed = functools.partial(jax.jit, static_argnums=0)(apply_rows)


def _find_bucket(count: int, step: int, most: int) -> int:
  """Returns the smallest of step x (1, 2, 3, 4, 6, 8, ...) that is enough.

  Args:
    count: what must fit.
    step: the smallest size.
    most: a size that is taken rather than a larger one, if it is enough.
  """
  size = step
  while size < count:
    if 3 * size // 2 >= count and size > step:
      size = 3 * size // 2
      break
    size *= 2
  return most if count <= most < size else size


def _cut(embedded: np.ndarray, width: int) -> np.ndarray:
  """Returns the first numbers of embeddings, normalised again."""
  if not width:
    return embedded
  part = embedded[:, :width]
  return part / np.linalg.norm(part, axis=1, keepdims=True)


def load_encoder(
  folder: str | os.PathLike[str],
  *,
  dtype: str = 'float32',
  tail: str = '',
  min_pixels: int = image_processor.MIN_PIXELS,
  max_pixels: int = image_processor.MAX_PIXELS,
  max_tokens: int = MAX_TOKENS,
  remat: str = 'none',
  attention: str = 'matmul',
  place: pretrained.Place | None = None,
) -> Encoder:
  """Loads a Hugging Face folder of Qwen3-VL for items of any size.

  Args:
    folder: with weights, config.json and tokenizer.json; its
      preprocessor_config.json says how pictures are cut.
    dtype: of parameters and computation, 'float32' or 'bfloat16'.
    tail: a key of `sequence.TAILS`; '' is the reference's: the prompt, and
      what the folder's tokenizer ends every text with.
    min_pixels: see `ImageProcessor`. The default is the reference's, which does
      not ask the folder; 0 takes the folder's.
    max_pixels: likewise.
    max_tokens: longer sequences are refused.
    remat: see `decoder.DecoderConfig`.
    attention: likewise.
    place: see `pretrained.load_folder`.

  Raises:
    UsageError: a setting is none of its choices.
    DataError: a file is missing, damaged, or asks for what is not implemented.
  """
  processor = image_processor.read_processor(folder)
  processor = dataclasses.replace(
    processor,
    min_pixels=min_pixels or processor.min_pixels,
    max_pixels=max_pixels or processor.max_pixels,
  )
  _check_patches(folder, processor)
  # The routing pipeline's sizes of images; here every picture has its own.
  model = pretrained.make_folder_settings(
    folder,
    width_px=processor.factor,
    height_px=processor.factor,
    dtype=dtype,
    remat=remat,
    attention=attention,
  )
  module = pretrained.make_module(model)
  maker = pretrained.make_maker(model, tail=tail)
  settings = {
    'template': dataclasses.asdict(maker.template),
    'processor': dataclasses.asdict(processor),
    'dtype': dtype,
    'pooling': 'last token',
  }
  return Encoder(
    module=module,
    params=pretrained.load_folder_params(model, place),
    maker=maker,
    processor=processor,
    max_tokens=max_tokens,
    fingerprint=convert.compute_fingerprint(folder, settings),
  )


def _check_patches(
  folder: str | os.PathLike[str], processor: image_processor.ImageProcessor
) -> None:
  """Refuses patches that the vision tower does not read."""
  vision = convert.read_config(folder).vision
  for name in ('patch_size', 'temporal_patch_size', 'merge_size'):
    ours, theirs = getattr(processor, name), getattr(vision, name)
    if ours != theirs:
      raise errors.DataError(
        f'{folder}: {name} is {ours} in {image_processor.FILE} and {theirs} in'
        ' config.json: fetch both anew'
      )

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

import jax
import numpy as np

from vhop_jax import errors
from vhop_jax.models import convert, image_processor, pretrained
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Float32, Params, UInt8, ndarray

MAX_TOKENS = 8192
# Rows are padded to a power of two times this, or to one and a half.
_TOKENS_STEP, _PATCHES_STEP = 32, 64


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
class _Row:
  """Is an item ready for the model, on the host."""

  sequence: sequence_lib.Sequence
  patches: np.ndarray | None
  grid: tuple[int, int, int] | None

  def find_sizes(self) -> tuple[int, int]:
    """Returns the patches (0 without a picture) and tokens it is padded to."""
    tokens = _find_bucket(self.sequence.tokens.shape[1], _TOKENS_STEP)
    if self.patches is None:
      return 0, tokens
    return _find_bucket(len(self.patches), _PATCHES_STEP), tokens


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
    if not 0 <= width <= self.width:
      raise errors.UsageError(
        f'width={width}: embeddings of this model have {self.width} numbers'
      )
    if batch_size < 1:
      raise errors.UsageError(f'batch_size={batch_size} must be positive')
    rows = [self._prepare(item, instruction) for item in items]
    result = np.zeros((len(rows), width or self.width), np.float32)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, row in enumerate(rows):
      groups.setdefault(row.find_sizes(), []).append(number)
    for (patches, tokens), members in sorted(groups.items()):
      for start in range(0, len(members), batch_size):
        numbers = members[start : start + batch_size]
        # A short batch is filled up by its first item.
        filled = numbers + numbers[:1] * (batch_size - len(numbers))
        embedded = self._run([rows[i] for i in filled], patches, tokens)
        result[numbers] = _cut(embedded[: len(numbers)], width)
    return result

  def _prepare(self, item: Item, instruction: str) -> _Row:
    patches = grid = visual_grid = None
    if item.pixels is not None:
      patches, grid = self.processor.make_patches(item.pixels)
      merge = self.processor.merge_size
      visual_grid = (grid[1] // merge, grid[2] // merge)
    elif not item.text:
      raise errors.DataError('an item has neither text nor picture')
    sequence = self.maker.item(item.text, visual_grid, instruction)
    count = sequence.tokens.shape[1]
    if count > self.max_tokens:
      raise errors.DataError(
        f'an item has {count} tokens, more than {self.max_tokens}: shorten the'
        ' text'
      )
    return _Row(sequence, patches, grid)

  def _run(
    self, rows: SequenceOf[_Row], patches: int, tokens: int
  ) -> np.ndarray:
    pad = self.maker.pad_id
    sequence = jax.tree.map(
      lambda *parts: np.concatenate(parts),
      *[_pad_sequence(row.sequence, tokens, pad) for row in rows],
    )
    pixels = layout = None
    if patches:
      tower = self.module.config.tower
      assert isinstance(tower, vision_lib.VisionConfig)
      pixels = np.zeros((len(rows), patches, tower.patch_dim), np.float32)
      layouts = []
      for i, row in enumerate(rows):
        assert row.patches is not None
        pixels[i, : len(row.patches)] = row.patches
        layouts.append(
          vision_lib.make_patch_layout(
            np.array([row.grid]),
            grid_side=tower.grid_side,
            merge_size=tower.merge_size,
            length=patches,
          )
        )
      layout = jax.tree.map(lambda *parts: np.stack(parts), *layouts)
    return np.asarray(
      _embed(self.module, self.params, sequence, pixels, layout)
    )


@functools.partial(jax.jit, static_argnames='module')
def _embed(
  module: embedder_lib.Embedder,
  params: Params,
  sequence: sequence_lib.Sequence,
  patches: jax.Array | None,
  layout: vision_lib.PatchLayout | None,
) -> jax.Array:
  def run(module: embedder_lib.Embedder) -> Any:
    visual = None
    if patches is not None:
      assert layout is not None
      visual = module.encode_patches(patches, layout)
    return module.embed(sequence, visual)

  embedded: jax.Array = module.apply({'params': params}, method=run)
  return embedded


def _find_bucket(count: int, step: int) -> int:
  """Returns the smallest of step x (1, 2, 3, 4, 6, 8, ...) that is enough."""
  size = step
  while size < count:
    if 3 * size // 2 >= count and size > step:
      return 3 * size // 2
    size *= 2
  return size


def _pad_sequence(
  sequence: sequence_lib.Sequence, length: int, pad_id: int
) -> sequence_lib.Sequence:
  def pad(x: np.ndarray, value: int) -> np.ndarray:
    widths = [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])]
    return np.pad(x, widths, constant_values=value)

  return sequence_lib.Sequence(
    tokens=pad(sequence.tokens, pad_id),
    positions=pad(sequence.positions, 0),
    mask=pad(sequence.mask, False),
    visual_index=pad(sequence.visual_index, sequence_lib.TEXT),
  )


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
  max_tokens: int = MAX_TOKENS,
) -> Encoder:
  """Loads a Hugging Face folder of Qwen3-VL for items of any size.

  Args:
    folder: with weights, config.json and tokenizer.json; the pixel limits are
      those of its preprocessor_config.json.
    dtype: of parameters and computation, 'float32' or 'bfloat16'.
    tail: a key of `sequence.TAILS`; '' is the template's.
    max_tokens: longer sequences are refused.

  Raises:
    UsageError: a setting is none of its choices.
    DataError: a file is missing, damaged, or asks for what is not implemented.
  """
  processor = image_processor.read_processor(folder)
  # The routing pipeline's sizes of images; here every picture has its own.
  model = pretrained.make_folder_settings(
    folder, width_px=processor.factor, height_px=processor.factor, dtype=dtype
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
    params=pretrained.load_folder_params(model),
    maker=maker,
    processor=processor,
    max_tokens=max_tokens,
    fingerprint=convert.compute_fingerprint(folder, settings),
  )

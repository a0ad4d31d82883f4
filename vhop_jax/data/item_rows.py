"""Lays items out at one size, so that one program trains on all of them.

There is a class for each kind of model. `prepare` makes a row of one item,
`stack` joins rows as a dict of arrays, and `embed` reads that on the device.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Protocol

import jax
import numpy as np

from vhop_jax import errors
from vhop_jax.data import embedding_pairs
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import encoder as encoder_lib
from vhop_jax.models import pretrained as pretrained_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import vision_qwen3_vl as vision_lib
from vhop_jax.typing import Array, Float, Params, ndarray

_LAYOUT = tuple(
  field.name for field in dataclasses.fields(vision_lib.PatchLayout)
)
_SEQUENCE = 'sequence'  # What its fields are called by in the arrays.


class Rows(Protocol):
  """Is what the classes below have in common."""

  def prepare(self, content: embedding_pairs.Content) -> Any:
    """Reads an item and lays it out."""
    ...

  def stack(self, rows: Sequence[Any]) -> dict[str, ndarray]:
    """Joins rows."""
    ...

  def embed(
    self,
    module: embedder_lib.Embedder,
    params: Params,
    arrays: Mapping[str, Any],
    rng: Array | None,
  ) -> Float[Array, 'N D']:
    """Returns the embeddings of rows; the key is for dropout."""
    ...


@dataclasses.dataclass(frozen=True)
class FolderRows:
  """Lays out items for a Hugging Face folder, pictures at their own sizes.

  Attributes:
    encoder: the model; its limits of pixels and tokens are those of a row.
    has_pictures: whether any item has one.
  """

  encoder: encoder_lib.Encoder
  has_pictures: bool

  @property
  def max_patches(self) -> int:
    """Gives the patches that a row is padded to."""
    return self.encoder.processor.max_patches if self.has_pictures else 0

  def prepare(self, content: embedding_pairs.Content) -> encoder_lib.Row:
    """Reads an item and lays it out.

    Raises:
      DataError: it cannot be read, or is too large for a row.
    """
    row = self.encoder.prepare(content.read(), instruction=content.instruction)
    if row.pixels is not None:
      side = self.encoder.processor.patch_size
      count = row.pixels.shape[0] * row.pixels.shape[1] // side**2
      if count > self.max_patches:
        raise errors.DataError(
          f'{content.path} has {count} patches, more than the'
          f' {self.max_patches} of a row: raise data.max_pixels'
        )
    return row

  def stack(self, rows: Sequence[encoder_lib.Row]) -> dict[str, ndarray]:
    """Joins rows."""
    joined = self.encoder.stack(rows, self.max_patches, self.encoder.max_tokens)
    arrays = sequence_lib.to_batch(_SEQUENCE, joined.sequence)
    if joined.layout is not None:
      assert joined.patches is not None
      arrays['patches'] = joined.patches
      arrays |= {name: getattr(joined.layout, name) for name in _LAYOUT}
    return arrays

  def embed(
    self,
    module: embedder_lib.Embedder,
    params: Params,
    arrays: Mapping[str, Array],
    rng: Array | None,
  ) -> Float[Array, 'N D']:
    """Returns the embeddings of rows; the key is for dropout."""
    patches = layout = None
    if self.has_pictures:
      patches = arrays['patches']
      layout = vision_lib.PatchLayout(
        **{name: arrays[name] for name in _LAYOUT}
      )
    return encoder_lib.apply_rows(
      module,
      params,
      encoder_lib.Rows(
        sequence_lib.from_batch(_SEQUENCE, arrays), patches, layout
      ),
      _make_rngs(rng),
    )


@dataclasses.dataclass(frozen=True)
class TinyRows:
  """Lays out items for a model of the kind `tiny`, pictures at its one size.

  Attributes:
    model: the model.
    max_tokens: of a row.
    has_pictures: whether any item has one.
  """

  model: pretrained_lib.Pretrained
  max_tokens: int
  has_pictures: bool

  def prepare(
    self, content: embedding_pairs.Content
  ) -> tuple[sequence_lib.Sequence, ndarray]:
    """Reads an item and lays it out.

    Raises:
      DataError: it cannot be read, is too large for a row, or has an
        instruction beside a text.
    """
    if content.instruction:
      raise errors.DataError(
        f'instruction={content.instruction!r} is for Hugging Face folders:'
        ' leave it out, or write it as the query'
      )
    item, maker = content.read(), self.model.maker
    tower = self.model.settings['tower']
    size = (tower['width_px'], tower['height_px'])
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    if item.pixels is None:
      sequence = maker.texts([item.text])
    else:
      pixels = gallery_lib.resize(item.pixels[None], *size)[0]
      sequence = maker.queries([item.text]) if item.text else maker.documents(1)
    count = sequence.tokens.shape[1]
    if count > self.max_tokens:
      raise errors.DataError(
        f'{content.text[:40]!r} has {count} tokens, more than'
        f' {self.max_tokens}: raise data.max_tokens'
      )
    return sequence_lib.pad(sequence, self.max_tokens, maker.pad_id), pixels

  def stack(
    self, rows: Sequence[tuple[sequence_lib.Sequence, ndarray]]
  ) -> dict[str, ndarray]:
    """Joins rows."""
    sequence = jax.tree.map(
      lambda *parts: np.concatenate(parts), *[sequence for sequence, _ in rows]
    )
    arrays = sequence_lib.to_batch(_SEQUENCE, sequence)
    if self.has_pictures:
      arrays['pixels'] = np.stack([pixels for _, pixels in rows])
    return arrays

  def embed(
    self,
    module: embedder_lib.Embedder,
    params: Params,
    arrays: Mapping[str, Array],
    rng: Array | None,
  ) -> Float[Array, 'N D']:
    """Returns the embeddings of rows; the key is for dropout."""

    def run(module: embedder_lib.Embedder) -> Float[Array, 'N D']:
      visual = None
      if self.has_pictures:
        visual = module.encode_images(arrays['pixels'])
      return module.embed(sequence_lib.from_batch(_SEQUENCE, arrays), visual)

    embedded: Array = module.apply(
      {'params': params}, method=run, rngs=_make_rngs(rng)
    )
    return embedded


def _make_rngs(rng: Array | None) -> dict[str, Array] | None:
  return None if rng is None else {'dropout': rng}

"""The vision tower of Qwen3-VL: patches of many images to visual tokens.

The patches of all images are packed along one axis, in the order in which
the reference's image processor writes them: image by image, and within an
image 2x2 block by 2x2 block. What depends on the images' sizes is computed on
the host by `make_patch_layout`, so that the tower itself has static shapes: a
step compiles once for each number of patches, whatever the sizes.

Axes: `patches`, `merged` (patches / 4, one visual token each), `patch_dim`
(3 colours x 2 frames x 16 x 16), `taps` (DeepStack), others as in `decoder`.

Parameters, float32, with their logical axes; every kernel but the position
table has a `bias` over its output axes:

    patch/kernel                      [patch_dim, embed]   (None, embed)
    position                          [grid_side ** 2, embed] (None, embed)
    layers/{attention,mlp}_norm/{scale,bias}  [layers, embed]
    layers/{query,key,value}/kernel   [layers, embed, heads, head_dim]
    layers/out/kernel                 [layers, heads, head_dim, embed]
    layers/up/kernel                  [layers, embed, mlp]
    layers/down/kernel                [layers, mlp, embed]
    merger/norm/{scale,bias}          [embed]
    merger/up/kernel                  [4 * embed, mlp]     (embed, mlp)
    merger/down/kernel                [mlp, out]           (mlp, embed)
    deepstack/...                     as merger, stacked: [taps, ...], named
                                      `layers`; norm over 4 * embed
"""

import dataclasses

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vhop_jax import errors
from vhop_jax.models import decoder as decoder_lib
from vhop_jax.typing import Array, Float, Int, Int32, UInt8, ndarray, typed

Axes = tuple[decoder_lib.Axis, ...]

PADDING_SEGMENT = -1
NORM_EPSILON = 1e-6
ROPE_THETA = 1e4


@dataclasses.dataclass(frozen=True)
class VisionConfig:
  """Sizes of the vision tower.

  Attributes:
    hidden_size: width of the residual stream.
    num_layers: blocks.
    num_heads: attention heads; divides `hidden_size`.
    mlp_size: inner width of the blocks' MLPs.
    out_size: width of a visual token, the decoder's hidden size.
    deepstack_layers: ascending indices of the blocks after which a DeepStack
      feature is taken.
    patch_size: pixels per patch, along each side.
    temporal_patch_size: frames per patch (an image is repeated).
    merge_size: patches per visual token, along each side.
    grid_side: learned positions along each side of the table.
    remat: one of `decoder.REMATS`.
    scan_unroll: blocks per iteration of the scan over blocks.
    attention: one of `decoder.ATTENTIONS`.
  """

  hidden_size: int
  num_layers: int
  num_heads: int
  mlp_size: int
  out_size: int
  deepstack_layers: tuple[int, ...]
  patch_size: int = 16
  temporal_patch_size: int = 2
  merge_size: int = 2
  grid_side: int = 48
  remat: str = 'none'
  scan_unroll: int = 1
  attention: str = 'matmul'

  def __post_init__(self) -> None:
    if self.hidden_size % self.num_heads or self.head_dim % 4:
      raise errors.UsageError(
        f'vision hidden_size={self.hidden_size} over '
        f'num_heads={self.num_heads} must give a multiple of 4 for each head'
      )
    taps = self.deepstack_layers
    if list(taps) != sorted(set(taps)) or not all(
      0 <= tap < self.num_layers for tap in taps
    ):
      raise errors.UsageError(
        f'deepstack_layers={tuple(taps)} must ascend within the '
        f'{self.num_layers} blocks of the vision tower'
      )
    errors.check_choice('vision remat', self.remat, tuple(decoder_lib.REMATS))
    errors.check_choice(
      'vision attention', self.attention, decoder_lib.ATTENTIONS
    )

  @property
  def head_dim(self) -> int:
    """Gives the width of one head."""
    return self.hidden_size // self.num_heads

  @property
  def patch_dim(self) -> int:
    """Gives the number of values of one flattened patch."""
    return 3 * self.temporal_patch_size * self.patch_size**2


@flax.struct.dataclass
class PatchLayout:
  """Says where each packed patch stands; made by `make_patch_layout`.

  Attributes:
    position_index: four rows of the table of learned positions.
    position_weight: their bilinear weights.
    rotary: row and column of the patch in its image.
    segment: number of the image (and frame); patches attend within their
      segment. `PADDING_SEGMENT` at padding.
  """

  position_index: Int32[Array | ndarray, '*rows patches 4']
  position_weight: Float[Array | ndarray, '*rows patches 4']
  rotary: Int32[Array | ndarray, '*rows patches 2']
  segment: Int32[Array | ndarray, '*rows patches']


@typed
def make_patch_layout(
  grid_thw: Int[ndarray, 'images 3'],
  *,
  grid_side: int = 48,
  merge_size: int = 2,
  length: int | None = None,
) -> PatchLayout:
  """Makes the layout of packed images, as NumPy arrays.

  Args:
    grid_thw: patches of each image along time, height and width; height and
      width are multiples of `merge_size`.
    grid_side: side of the table of learned positions.
    merge_size: patches per visual token, along each side.
    length: pads to this many patches; as many as there are if None.

  Returns:
    The layout.

  Raises:
    DataError: if a grid cannot be merged, or `length` is too small.
  """
  index, weight, rotary, segment = [], [], [], []
  frames = 0
  for image, (t, h, w) in enumerate(grid_thw.tolist()):
    if min(t, h, w) < 1 or h % merge_size or w % merge_size:
      raise errors.DataError(
        f'image {image} has {h} x {w} patches: both sides must be multiples '
        f'of {merge_size}'
      )
    # Row and column of each patch, in the order of merged blocks.
    grid = np.indices((h, w), np.int32).reshape(
      2, h // merge_size, merge_size, w // merge_size, merge_size
    )
    row, column = grid.transpose(0, 1, 3, 2, 4).reshape(2, -1)
    row_taps, row_weights = _compute_axis_taps(row, h, grid_side)
    column_taps, column_weights = _compute_axis_taps(column, w, grid_side)
    taps = row_taps[:, :, None] * grid_side + column_taps[:, None, :]
    weights = row_weights[:, :, None] * column_weights[:, None, :]
    index.append(np.tile(taps.reshape(-1, 4), (t, 1)))
    weight.append(np.tile(weights.reshape(-1, 4), (t, 1)))
    rotary.append(np.tile(np.stack([row, column], -1), (t, 1)))
    segment.append(np.repeat(frames + np.arange(t, dtype=np.int32), h * w))
    frames += t
  count = sum(len(part) for part in segment)
  length = count if length is None else length
  if length < count or length % merge_size**2:
    raise errors.DataError(
      f'the images have {count} patches, which do not fit a length of '
      f'{length} (a multiple of {merge_size**2})'
    )

  def pad(
    parts: list[ndarray], shape: tuple[int, ...], dtype: type, value: int = 0
  ) -> ndarray:
    rest: ndarray = np.full((length - count, *shape), value, dtype)
    return np.concatenate([*parts, rest]).astype(dtype)

  return PatchLayout(
    position_index=pad(index, (4,), np.int32),
    position_weight=pad(weight, (4,), np.float32),
    rotary=pad(rotary, (2,), np.int32),
    segment=pad(segment, (), np.int32, PADDING_SEGMENT),
  )


@typed
def cut_patches(
  pixels: UInt8[Array, 'N H W 3'], config: VisionConfig
) -> Float[Array, 'N patches patch_dim']:
  """Cuts images of one size into patches, on the device.

  What `image_processor.ImageProcessor.make_patches` does to each after
  resizing, with a mean and a deviation of 0.5.

  Args:
    pixels: both sides multiples of patch_size x merge_size.
    config: sizes.
  """
  count, height, width = pixels.shape[:3]
  side, merge = config.patch_size, config.merge_size
  values = pixels.astype(jnp.float32) / 127.5 - 1.0
  blocks = values.reshape(
    count,
    height // (side * merge),
    merge,
    side,
    width // (side * merge),
    merge,
    side,
    3,
  ).transpose(0, 1, 4, 2, 5, 7, 3, 6)
  patches = jnp.repeat(
    blocks[:, :, :, :, :, :, None], config.temporal_patch_size, axis=6
  )
  return patches.reshape(count, -1, config.patch_dim)


def _compute_axis_taps(
  place: ndarray, size: int, grid_side: int
) -> tuple[ndarray, ndarray]:
  """Computes two table rows and weights [n, 2] by align_corners=True."""
  # The reference's operations in its order and in float32, so that both
  # floor the same number.
  source = place.astype(np.float32) * np.float32(grid_side - 1)
  source /= np.float32(max(size - 1, 1))
  low = np.clip(np.floor(source), 0, grid_side - 1)
  high = np.minimum(low + 1, grid_side - 1)
  fraction = source - low
  taps = np.stack([low, high], -1).astype(np.int32)
  return taps, np.stack([1 - fraction, fraction], -1)


class LayerNorm(nn.Module):
  """Layer normalisation of the last axis, in float32, scale and bias."""

  @nn.compact
  def __call__(self, x: Float[Array, '*axes D']) -> Float[Array, '*axes D']:
    """Normalises x."""
    shape = (1,) * (x.ndim - 1) + (-1,)
    init = nn.initializers
    scale, bias = (
      self.param(
        name,
        decoder_lib.partition(initializer, ('embed',)),
        (x.shape[-1],),
        jnp.float32,
      ).reshape(shape)
      for name, initializer in (('scale', init.ones), ('bias', init.zeros))
    )
    y = x.astype(jnp.float32)
    y -= jnp.mean(y, axis=-1, keepdims=True)
    variance = jnp.mean(y * y, axis=-1, keepdims=True)
    y *= jax.lax.rsqrt(variance + NORM_EPSILON)
    return (y * scale + bias).astype(x.dtype)


class VisionBlock(nn.Module):
  """One block, in the form that `nn.scan` wants."""

  config: VisionConfig
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(
    self,
    carry: tuple[Array, Array],
    place: Array,
    rope: decoder_lib.Rope,
    allowed: Array,
  ) -> tuple[tuple[Array, Array], None]:
    """Runs the block.

    Args:
      carry: (hidden [rows, patches, D], tapped [taps + 1, rows, patches, D]).
      place: where in `tapped` this block's output goes; the last place is for
        the blocks that are not tapped.
      rope: cosines and sines, see `decoder.apply_rope`.
      allowed: bool [rows, patches, patches].

    Returns:
      The new carry and None.
    """
    config = self.config
    x, tapped = carry
    embed = ((config.hidden_size, 'embed'),)
    heads = ((config.num_heads, 'heads'), (config.head_dim, 'head_dim'))
    mlp = ((config.mlp_size, 'mlp'),)

    def linear(name: str, inputs: Axes, outputs: Axes) -> decoder_lib.Linear:
      return decoder_lib.Linear(inputs, outputs, self.dtype, True, name=name)

    y = LayerNorm(name='attention_norm')(x)
    q = decoder_lib.apply_rope(linear('query', embed, heads)(y), *rope)
    k = decoder_lib.apply_rope(linear('key', embed, heads)(y), *rope)
    v = linear('value', embed, heads)(y)
    attended = decoder_lib.attend(
      q, k, v, allowed, implementation=config.attention
    )
    x += linear('out', heads, embed)(attended)

    y = LayerNorm(name='mlp_norm')(x)
    y = nn.gelu(linear('up', embed, mlp)(y), approximate=True)
    x += linear('down', mlp, embed)(y)
    tapped = jax.lax.dynamic_update_index_in_dim(tapped, x, place, axis=0)
    return (x, tapped), None


class PatchMerger(nn.Module):
  """Turns each block of merge_size x merge_size patches into one token.

  Attributes:
    config: sizes.
    norm_merged: normalises the merged vector (DeepStack) instead of each
      patch's (the main merger).
    dtype: of the computation.
  """

  config: VisionConfig
  norm_merged: bool
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(
    self, x: Float[Array, 'rows patches D']
  ) -> Float[Array, 'rows merged out']:
    """Merges x."""
    config = self.config
    width = config.hidden_size * config.merge_size**2
    norm = LayerNorm(name='norm')
    if not self.norm_merged:
      x = norm(x)
    x = x.reshape(x.shape[0], -1, width)
    if self.norm_merged:
      x = norm(x)
    inner = ((width, 'mlp'),)

    def linear(name: str, inputs: Axes, outputs: Axes) -> decoder_lib.Linear:
      return decoder_lib.Linear(inputs, outputs, self.dtype, True, name=name)

    x = nn.gelu(linear('up', ((width, 'embed'),), inner)(x), approximate=False)
    return linear('down', inner, ((config.out_size, 'embed'),))(x)


class VisionTower(nn.Module):
  """Turns packed patches into visual tokens and DeepStack features.

  Patches may have leading axes (`rows`), each a pack of its own. Attention
  costs the square of the patches in a row, so put many images of one size in
  a row each, and images of different sizes in one row.
  """

  config: VisionConfig
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  @typed
  def __call__(
    self,
    patches: Float[Array, '*rows patches patch_dim'],
    layout: PatchLayout,
  ) -> tuple[
    Float[Array, '*rows merged out'], Float[Array, 'taps *rows merged out']
  ]:
    """Runs the tower.

    Args:
      patches: normalised pixels, each patch flattened as (colour, frame, row,
        column), in the order of merged blocks.
      layout: where they stand.

    Returns:
      The visual tokens, and the features for the first decoder layers.
    """
    config = self.config
    rows = patches.shape[:-2]
    patches, layout = jax.tree.map(
      lambda x: jnp.asarray(x).reshape(-1, *x.shape[len(rows) :]),
      (patches, layout),
    )
    table = self.param(
      'position',
      decoder_lib.partition(nn.initializers.normal(0.02), (None, 'embed')),
      (config.grid_side**2, config.hidden_size),
      jnp.float32,
    )
    x = decoder_lib.Linear(
      ((config.patch_dim, None),),
      ((config.hidden_size, 'embed'),),
      self.dtype,
      True,
      name='patch',
    )(patches)
    corners = jnp.take(table, layout.position_index, axis=0)
    position = jnp.sum(corners * layout.position_weight[..., None], axis=-2)
    x += position.astype(self.dtype)

    rope = _compute_vision_rope(config.head_dim, jnp.asarray(layout.rotary))
    allowed = layout.segment[:, :, None] == layout.segment[:, None, :]
    taps = len(config.deepstack_layers)
    place = np.full(config.num_layers, taps, np.int32)
    place[list(config.deepstack_layers)] = np.arange(taps)
    block = decoder_lib.rematerialize(VisionBlock, config.remat)
    layers = nn.scan(
      block,
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(0, nn.broadcast, nn.broadcast),
      length=config.num_layers,
      unroll=config.scan_unroll,
      metadata_params={nn.PARTITION_NAME: 'layers'},
    )(config, self.dtype, name='layers')
    tapped = jnp.zeros((taps + 1, *x.shape), x.dtype)
    (x, tapped), _ = layers((x, tapped), jnp.asarray(place), rope, allowed)

    tokens = PatchMerger(config, False, self.dtype, name='merger')(x)
    if taps:
      deepstack = nn.vmap(
        PatchMerger,
        variable_axes={'params': 0},
        split_rngs={'params': True},
        metadata_params={nn.PARTITION_NAME: 'layers'},
      )(config, True, self.dtype, name='deepstack')(tapped[:taps])
    else:
      deepstack = jnp.zeros((0, *tokens.shape), tokens.dtype)
    return (
      tokens.reshape(*rows, *tokens.shape[1:]),
      deepstack.reshape(taps, *rows, *tokens.shape[1:]),
    )


def _compute_vision_rope(head_dim: int, rotary: Array) -> decoder_lib.Rope:
  """Computes cos and sin [rows, patches, head_dim / 2]: rows, then columns."""
  half = head_dim // 2
  exponent = np.arange(0, half, 2, dtype=np.float32) / half
  frequency = (1.0 / ROPE_THETA**exponent).astype(np.float32)
  angle = rotary.astype(jnp.float32)[..., None] * frequency[None, None, None]
  angle = angle.reshape(*rotary.shape[:2], half)
  return jnp.cos(angle), jnp.sin(angle)

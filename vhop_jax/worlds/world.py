"""Holds a world in memory and reads it back from disk.

A world folder has two TFDS data sets in ArrayRecord files and `world.json`,
which is written last: a folder without it is not a world. The header carries
two fingerprints, one over scenes and queries and one over pixels, and whatever
is read here is checked against them.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from vhop_jax import errors
from vhop_jax.worlds import level as level_lib
from vhop_jax.worlds import link_graph, wordings
from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import prints as prints_lib

HEADER_FILE = 'world.json'
FORMAT_VERSION = 1
MIN_ID_DIGITS = 5
_HEADER_KEYS = ('spec', 'sizes', 'dropped', 'fingerprint')


@dataclasses.dataclass(frozen=True)
class Spec:
  """Fixes a world: the same spec and seed give the same scenes, byte by byte.

  Attributes:
    level: Difficulty, 1 to 7.
    families: How many start objects, each with two chains.
    seed: Seed of everything that is drawn.
    resolution: Image width in pixels.
    hops: Links from the query image to the answer.
    prompt: 'precise' or 'vague'.
    pack: Name of the asset pack.
    name: A label for people; it changes nothing that is drawn.
    with_chains: Whether the gold chains are stored; this too changes nothing
      that is drawn.
    prints: Which logos (L6) or words (L7) may be printed: 'all', or 'train' or
      'test' for two halves that share none.
    wording: 'standard' or 'rephrased': sentences that no model is trained on.
    relations: How two objects of an image stand to each other: 'sides' (left
      and right of), 'depth' (in front of, behind) or 'height' (on top, below).
    foreground: Whether a small object that is in no other image stands in
      front in every image.
    clutter: How many further such objects stand around in every image.
    variation: 'standard', or 'strong' for more light and camera changes and
      textured grounds and walls throughout.
  """

  level: int
  families: int
  seed: int
  resolution: int = 96
  hops: int = 3
  prompt: str = 'precise'
  pack: str = 'procedural'
  name: str = ''
  with_chains: bool = True
  prints: str = 'all'
  wording: str = 'standard'
  relations: str = 'sides'
  foreground: bool = False
  clutter: int = 0
  variation: str = 'standard'

  def __post_init__(self) -> None:
    """Refuses what cannot be built.

    Raises:
      UsageError: a value is out of range; the message names it.
    """
    object.__setattr__(self, 'level', level_lib.parse_level(self.level))
    if self.families < 1:
      raise errors.UsageError(
        f'families={self.families}: a world needs at least one family'
      )
    if self.seed < 0:
      raise errors.UsageError(f'seed={self.seed}: use a seed of 0 or more')
    if not level_lib.MIN_HOPS <= self.hops <= level_lib.MAX_HOPS:
      raise errors.UsageError(
        f'hops={self.hops}: choose {level_lib.MIN_HOPS} to {level_lib.MAX_HOPS}'
      )
    if self.prompt not in level_lib.PROMPTS:
      raise errors.UsageError(
        f'prompt={self.prompt!r}: choose {" or ".join(level_lib.PROMPTS)}'
      )
    errors.check_choice('wording', self.wording, tuple(wordings.WORDINGS['']))
    if not 24 <= self.resolution <= 2048:
      raise errors.UsageError(
        f'resolution={self.resolution}: choose 24 to 2048 pixels'
      )
    self._check_prints()
    if self.relations not in level_lib.PAIRS:
      raise errors.UsageError(
        f'relations={self.relations!r}: choose one of'
        f' {", ".join(level_lib.PAIRS)}'
      )
    if not 0 <= self.clutter <= level_lib.MAX_CLUTTER:
      raise errors.UsageError(
        f'clutter={self.clutter}: choose 0 to {level_lib.MAX_CLUTTER} objects'
      )
    if self.variation not in level_lib.VARIATIONS:
      raise errors.UsageError(
        f'variation={self.variation!r}: choose'
        f' {" or ".join(level_lib.VARIATIONS)}'
      )
    if not self.name:
      object.__setattr__(self, 'name', self.key)

  def _check_prints(self) -> None:
    """Refuses prints that do not exist or are too few."""
    if self.prints not in prints_lib.PRINT_SETS:
      raise errors.UsageError(
        f'prints={self.prints!r}: choose {", ".join(prints_lib.PRINT_SETS)}'
      )
    if not level_lib.find_print(self.level):
      if self.prints != 'all':
        raise errors.UsageError(
          f'prints={self.prints!r}: nothing is printed below'
          f' L{level_lib.LOGO_LEVEL}; leave it out'
        )
      return
    least = level_lib.MIN_RESOLUTIONS[level_lib.find_print(self.level)]
    if self.resolution < least:
      raise errors.UsageError(
        f'resolution={self.resolution}: L{self.level} needs {least} pixels or'
        ' more, or nobody could read what is printed'
      )
    count = len(prints_lib.list_prints(self.level, self.prints))
    most = count // level_lib.count_prints(self.hops)
    if self.families > most:
      raise errors.UsageError(
        f'families={self.families}: there are {count} different prints, enough'
        f' for {most} families of {self.hops} hops; build several worlds'
      )

  @property
  def key(self) -> str:
    """Names all that decides what is drawn; family count and size do not."""
    key = (
      f'L{self.level}-{self.prompt}-{self.hops}hop-{self.pack}-seed{self.seed}'
    )
    # Worlds of before these were added keep their keys.
    for value, default, label in (
      (self.prints, 'all', f'prints={self.prints}'),
      (self.wording, 'standard', self.wording),
      (self.relations, 'sides', self.relations),
      (self.foreground, False, 'foreground'),
      (self.clutter, 0, f'clutter{self.clutter}'),
      (self.variation, 'standard', self.variation),
    ):
      if value != default:
        key += f'-{label}'
    return key

  def to_json(self) -> dict[str, Any]:
    """Returns the spec as a JSON-compatible dict."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> 'Spec':
    """Makes a spec from what `to_json` returned.

    A field that was added after a world was built has its default.
    """
    return cls(**values)


@dataclasses.dataclass(frozen=True)
class ImageRecord:
  """Holds one image of the gallery, without its pixels.

  Attributes:
    id: Its position in the shuffled gallery, zero-padded.
    family: Number of the family it was made for.
    objects: The linked objects (one or two); of two the first is the left one,
      the one in front or the one on top, as the world's relations are.
    scene: The scene's JSON dict, from which the pixels were rendered.
  """

  id: str
  family: int
  objects: tuple[objects_lib.Object, ...]
  scene: dict[str, Any]

  @property
  def extras(self) -> tuple[objects_lib.Object, ...]:
    """Returns the objects in the picture that no link is about.

    Stands, on which objects stand, are no objects of a world.
    """
    return tuple(
      objects_lib.Object.from_json(extra['placement']['object'])
      for extra in self.scene.get('extras', ())
      if extra['role'] != 'support'
    )

  def to_row(self) -> dict[str, Any]:
    """Returns the record as stored, nested values as canonical JSON."""
    return {
      'id': self.id,
      'family': self.family,
      'objects': dump_json([o.to_json() for o in self.objects]),
      'scene': dump_json(self.scene),
    }

  @classmethod
  def from_row(cls, row: Mapping[str, Any]) -> 'ImageRecord':
    """Makes a record from what `to_row` returned."""
    return cls(
      id=row['id'],
      family=int(row['family']),
      objects=tuple(
        objects_lib.Object.from_json(o) for o in json.loads(row['objects'])
      ),
      scene=json.loads(row['scene']),
    )


@dataclasses.dataclass(frozen=True)
class Hop:
  """Holds what one hop asks for.

  Attributes:
    relation: Where the carried object stands with respect to the other, one
      of `level.RELATIONS`.
    colour: The other object's colour.
  """

  relation: str
  colour: str


@dataclasses.dataclass(frozen=True)
class Query:
  """Holds one question and all its right answers.

  Attributes:
    id: `<family>_<relation of the first hop>`.
    family: Number of its family.
    image: Id of the query image, which shows the start object alone.
    instruction: What the user asks for, the whole route at once.
    hops: The route the query was made from; a vague prompt tells none of it.
    chains: Every valid chain of image ids, each without the query image; none
      where the spec says so.
    answers: The distinct last images of all valid chains.
  """

  id: str
  family: int
  image: str
  instruction: str
  hops: tuple[Hop, ...]
  chains: tuple[tuple[str, ...], ...]
  answers: tuple[str, ...]

  def to_row(self) -> dict[str, Any]:
    """Returns the query as stored, nested values as canonical JSON."""
    return {
      'id': self.id,
      'family': self.family,
      'image': self.image,
      'instruction': self.instruction,
      'hops': dump_json([dataclasses.asdict(hop) for hop in self.hops]),
      'chains': dump_json(self.chains),
      'answers': dump_json(self.answers),
    }

  @classmethod
  def from_row(cls, row: Mapping[str, Any]) -> 'Query':
    """Makes a query from what `to_row` returned."""
    return cls(
      id=row['id'],
      family=int(row['family']),
      image=row['image'],
      instruction=row['instruction'],
      hops=tuple(Hop(**hop) for hop in json.loads(row['hops'])),
      chains=tuple(tuple(chain) for chain in json.loads(row['chains'])),
      answers=tuple(json.loads(row['answers'])),
    )


@dataclasses.dataclass(frozen=True)
class World:
  """Holds a world without its pixels.

  Attributes:
    spec: What it was made from.
    images: The gallery in the order of the ids, query images included.
    queries: The questions.
  """

  spec: Spec
  images: tuple[ImageRecord, ...]
  queries: tuple[Query, ...]

  @functools.cached_property
  def _positions(self) -> dict[str, int]:
    return {image.id: i for i, image in enumerate(self.images)}

  def index(self, image_id: str) -> int:
    """Returns an image's position in `images`."""
    return self._positions[image_id]

  def link_graph(self) -> link_graph.LinkGraph:
    """Returns which image may follow which."""
    return link_graph.LinkGraph(
      self.images, level=self.spec.level, relations=self.spec.relations
    )


def dump_json(values: Any) -> str:
  """Returns the one JSON text of a value that fingerprints are made of."""
  return json.dumps(values, sort_keys=True, separators=(',', ':'))


def format_id(position: int, count: int) -> str:
  """Returns the id of the image at a position in a gallery of `count`."""
  return str(position).zfill(max(MIN_ID_DIGITS, len(str(count - 1))))


def compute_content_fingerprint(
  images: Iterable[ImageRecord], queries: Iterable[Query]
) -> str:
  """Returns the SHA-256 over all scenes and queries, in their order."""
  digest = hashlib.sha256()
  for row in itertools.chain(
    (image.to_row() for image in images), (query.to_row() for query in queries)
  ):
    digest.update(dump_json(row).encode())
    digest.update(b'\n')
  return digest.hexdigest()


def read_header(folder: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads `world.json`.

  Raises:
    DataError: there is no whole world in the folder, or not of this version.
  """
  path = pathlib.Path(folder) / HEADER_FILE
  try:
    header = json.loads(path.read_text())
    version = header['format_version']
    missing = [key for key in _HEADER_KEYS if key not in header]
  except (FileNotFoundError, NotADirectoryError):
    raise errors.DataError(
      f'no world in {folder}: it has no {HEADER_FILE}; make one with'
      f' `vhop worlds build --out={folder}`'
    ) from None
  except (ValueError, KeyError, TypeError, OSError) as error:
    raise errors.DataError(
      f'{path} is not readable ({error!r}); build the world again with'
      ' --overwrite'
    ) from None
  if version != FORMAT_VERSION or missing:
    reason = f'lacks {missing}' if missing else f'has format {version}'
    raise errors.DataError(
      f'{path} {reason}, this version reads format {FORMAT_VERSION}; build'
      ' the world again with --overwrite'
    )
  return header


def read_spec(header: Mapping[str, Any]) -> Spec:
  """Returns the spec stored in a header.

  Raises:
    DataError: the header's spec is none that can be built.
  """
  try:
    return Spec.from_json(header['spec'])
  except (KeyError, TypeError, errors.UsageError) as error:
    raise errors.DataError(
      f'{HEADER_FILE} has a broken spec ({error}); build the world again with'
      ' --overwrite'
    ) from None


def load_world(folder: str | os.PathLike[str], *, check: bool = True) -> World:
  """Reads a world without its pixels.

  Args:
    folder: the world.
    check: whether to compare with the fingerprint; only the verifier, which
      reports the difference itself, says no.

  Raises:
    DataError: there is no world, it is damaged, or the fingerprint differs.
  """
  from vhop_jax.worlds import records  # Loads TFDS.

  header = read_header(folder)
  sizes = header['sizes']
  images = tuple(
    ImageRecord.from_row(row)
    for row in records.read_rows(folder, records.IMAGES_SPLIT, sizes['images'])
  )
  queries = tuple(
    Query.from_row(row)
    for row in records.read_rows(
      folder, records.QUERIES_SPLIT, sizes['queries']
    )
  )
  if check:
    found = compute_content_fingerprint(images, queries)
    _check_fingerprint(folder, 'content', header, found)
  return World(read_spec(header), images, queries)


def read_pixels(
  folder: str | os.PathLike[str], *, check: bool = True
) -> np.ndarray:
  """Reads and decodes all images of a world.

  Args:
    folder: the world.
    check: whether to compare with the fingerprint.

  Returns:
    uint8 pixels [N, H, W, 3] in the order of `World.images`.

  Raises:
    DataError: there is no world, it is damaged, or the fingerprint differs.
  """
  from vhop_jax.worlds import records  # Loads TFDS.

  header = read_header(folder)
  sizes = header['sizes']
  count, height_px, width_px = (
    sizes['images'],
    sizes['height_px'],
    sizes['width_px'],
  )
  pixels = np.empty((count, height_px, width_px, 3), np.uint8)

  def decode(item: tuple[int, dict[str, Any]]) -> None:
    i, row = item
    pixels[i] = decode_png(row['image'])

  with futures.ThreadPoolExecutor() as pool:
    try:
      rows = enumerate(records.read_rows(folder, records.IMAGES_SPLIT, count))
      for _ in pool.map(decode, rows):
        pass
    except (OSError, ValueError) as error:
      raise _make_picture_error(folder, error) from None
  if check:
    found = compute_pixel_fingerprint(compute_digests(pixels))
    _check_fingerprint(folder, 'pixels', header, found)
  return pixels


def iterate_pixels(folder: str | os.PathLike[str]) -> Iterator[np.ndarray]:
  """Reads the images of a world one by one, so that any number fits in memory.

  Yields:
    uint8 pixels [H, W, 3] of each image, in the order of `World.images`.

  Raises:
    DataError: there is no world, it is damaged, or, after the last image, the
      fingerprint differs.
  """
  from vhop_jax.worlds import records  # Loads TFDS.

  header = read_header(folder)
  digests: list[bytes] = []
  for row in records.read_rows(
    folder, records.IMAGES_SPLIT, header['sizes']['images']
  ):
    try:
      picture = decode_png(row['image'])
    except (OSError, ValueError) as error:
      raise _make_picture_error(folder, error) from None
    digests += compute_digests([picture])
    yield picture
  found = compute_pixel_fingerprint(digests)
  _check_fingerprint(folder, 'pixels', header, found)


def compute_pixel_fingerprint(digests: Iterable[bytes]) -> str:
  """Returns the SHA-256 over each picture's own, in the order of the ids."""
  return hashlib.sha256(b''.join(digests)).hexdigest()


def compute_digests(pixels: Iterable[np.ndarray]) -> list[bytes]:
  """Returns the SHA-256 of each picture's pixels."""
  return [
    hashlib.sha256(np.ascontiguousarray(picture).data).digest()
    for picture in pixels
  ]


def encode_png(pixels: np.ndarray) -> bytes:
  """Returns uint8 pixels [H, W, 3] as a PNG file."""
  buffer = io.BytesIO()
  # Level 1 is four times as fast as the default and 10 % larger.
  Image.fromarray(pixels).save(buffer, 'png', compress_level=1)
  return buffer.getvalue()


def decode_png(data: bytes) -> np.ndarray:
  """Returns the uint8 pixels [H, W, 3] of a PNG file."""
  with Image.open(io.BytesIO(data)) as image:
    return np.asarray(image.convert('RGB'))


def _make_picture_error(
  folder: str | os.PathLike[str], error: Exception
) -> errors.DataError:
  """Says that a picture of a world is damaged."""
  return errors.DataError(
    f'an image in {folder} cannot be decoded ({error}); build the world again'
    ' with --overwrite'
  )


def _check_fingerprint(
  folder: str | os.PathLike[str],
  kind: str,
  header: Mapping[str, Any],
  found: str,
) -> None:
  """Raises a DataError unless the found fingerprint is the header's."""
  promised = header['fingerprint'][kind]
  if promised != found:
    raise errors.DataError(
      f'the {kind} fingerprint of {folder} does not match: {HEADER_FILE} says'
      f' {promised[:12]}, the files give {found[:12]}; build the world again'
      ' with --overwrite'
    )

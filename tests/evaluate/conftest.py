"""Makes a small world by hand whose every link can be read off."""

from collections.abc import Callable
import dataclasses
import types

import numpy as np
from PIL import Image, ImageDraw
import pytest

from vhop_jax.worlds.objects import COLOURS, Object
from vhop_jax.worlds.world import Hop, ImageRecord, Query, Spec, World

# Per family: name -> (type, colour).
_OBJECTS = {
  's': ('kettle', 'red'),
  'a1': ('ball', 'blue'),
  'a2': ('tea_cup', 'green'),
  'a3': ('hat', 'pink'),
  'b1': ('lamp', 'blue'),
  'b2': ('box', 'green'),
  'b3': ('bell', 'pink'),
  'd': ('sofa', 'blue'),
  'e': ('vase', 'black'),
  'k2': ('kettle', 'red'),
  'x': ('tree', 'yellow'),
}
# The ten images of a family, left to right. Their ids end in the position.
_IMAGES = (
  ('s',),  # 0: query image
  ('s', 'a1'),  # 1: A1, s leftof a1
  ('a2', 'a1'),  # 2: A2, a1 rightof a2
  ('a2', 'a3'),  # 3: A3, a2 leftof a3
  ('b1', 's'),  # 4: B1, s rightof b1
  ('b1', 'b2'),  # 5: B2, b1 leftof b2
  ('b3', 'b2'),  # 6: B3, b2 rightof b3
  ('s', 'd'),  # 7: dead end of A, wrong relation for B
  ('s', 'e'),  # 8: wrong colour for A, wrong in both for B
  ('k2', 'x'),  # 9: another red kettle
)
_ROUTES = {
  'leftof': (
    (Hop('leftof', 'blue'), Hop('rightof', 'green'), Hop('leftof', 'pink')),
    (1, 2, 3),
  ),
  'rightof': (
    (Hop('rightof', 'blue'), Hop('leftof', 'green'), Hop('rightof', 'pink')),
    (4, 5, 6),
  ),
}


def _make_world(
  name: str = 'w1',
  *,
  families: int = 1,
  level: int = 4,
  prompt: str = 'precise',
) -> World:
  spec = Spec(level=level, families=families, seed=0, prompt=prompt, name=name)
  images = []
  queries = []
  for family in range(families):
    objects = {
      key: Object(f'{family}{key}', kind, colour, 'white', 'plain', (0.5,))
      for key, (kind, colour) in _OBJECTS.items()
    }
    ids = [f'{10 * family + i:05d}' for i in range(10)]
    images += [
      ImageRecord(i, family, tuple(objects[key] for key in keys), {})
      for i, keys in zip(ids, _IMAGES, strict=True)
    ]
    routes = {
      relation: (hops, tuple(ids[i] for i in chain))
      for relation, (hops, chain) in _ROUTES.items()
    }
    for relation, (hops, chain) in routes.items():
      chains = (chain,)
      if prompt == 'vague':
        chains = tuple(other for _, other in routes.values())
      queries.append(
        Query(
          id=f'{family}_{relation}',
          family=family,
          image=ids[0],
          instruction=f'Follow the kettle <{relation}> & go on.',
          hops=hops,
          chains=chains,
          answers=tuple(c[-1] for c in chains),
        )
      )
  return World(spec, tuple(images), tuple(queries))


def _draw_pixels(world: World) -> np.ndarray:
  pixels = []
  for number, record in enumerate(world.images):
    shade = 190 + number % 5 * 12
    picture = Image.new('RGB', (96, 64), (shade, shade, 215))
    pen = ImageDraw.Draw(picture)
    width = 96 // len(record.objects)
    for i, thing in enumerate(record.objects):
      colour = tuple(round(255 * c) for c in COLOURS[thing.colour])
      box = (i * width + 8, 16, (i + 1) * width - 8, 56)
      if sum(map(ord, thing.type)) % 2:
        pen.ellipse(box, fill=colour)
      else:
        pen.rectangle(box, fill=colour)
    pixels.append(np.asarray(picture))
  return np.stack(pixels)


@pytest.fixture
def make_world() -> Callable[..., World]:
  return _make_world


@pytest.fixture
def draw_pixels() -> Callable[[World], np.ndarray]:
  return _draw_pixels


@pytest.fixture
def without_query() -> Callable[[World, str], World]:
  def drop(world: World, query_id: str) -> World:
    kept = tuple(q for q in world.queries if q.id != query_id)
    return dataclasses.replace(world, queries=kept)

  return drop


@pytest.fixture
def model(maker) -> types.SimpleNamespace:
  """Returns what the measures need of a model whose embeddings are faked."""
  return types.SimpleNamespace(maker=maker)

"""Embeds by reading instructions and link graph instead of looking."""

import numpy as np

from tests import reading
from vhop_jax.index import gallery as gallery_lib


def make_gallery(world):
  """Returns a gallery: image i has the visual tokens i and embedding e_i."""
  count = len(world.images)
  visual = np.zeros((count, 2, 1), np.float32)
  visual += np.arange(count)[:, None, None]
  return gallery_lib.Gallery(world, visual, np.eye(count, dtype=np.float32))


def make_embed_queries(world):
  """Returns a stand-in for `gallery.embed_queries`.

  The embedding of a query has 1 at every image that fits.
  """
  pictures = [image.objects for image in world.images]

  def embed_queries(model, sequence, visual):
    result = np.zeros((len(sequence.tokens), len(world.images)), np.float32)
    for row, tokens in enumerate(sequence.tokens):
      source = int(visual[row, 0, 0])
      side, relation, colour = reading.parse_single_hop(
        reading.read_text(model.maker, tokens)
      )
      carried = pictures[source][-1 if side == 'right' else 0]
      fitting = reading.find_fitting(
        pictures, carried.uid, {source}, relation=relation, colour=colour
      )
      result[row, list(fitting)] = 1
    return result

  return embed_queries

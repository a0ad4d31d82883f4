"""Embeds by reading instructions and link graph instead of looking."""

import types

import numpy as np

from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib
from vhop_jax.worlds import objects as objects_lib


def make_model():
  """Returns what the measures need of a model whose embeddings are faked."""
  maker = sequence_lib.SequenceMaker(
    tokenizer_lib.load_tokenizer(), template='tiny', grid=(1, 2)
  )
  return types.SimpleNamespace(maker=maker)


def make_gallery(world):
  """Returns a gallery: image i has the visual tokens i and embedding e_i."""
  count = len(world.images)
  visual = np.zeros((count, 2, 1), np.float32)
  visual += np.arange(count)[:, None, None]
  return gallery_lib.Gallery(world, visual, np.eye(count, dtype=np.float32))


def read_text(maker, tokens):
  """Returns an instruction without the template's tokens."""
  names = {i: word for word, i in maker.tokenizer.get_vocab().items()}
  words = [names[int(i)] for i in tokens]
  return ' '.join(words[: words.index('<|im_end|>')])


def find_fitting(world, source, text):
  """Lists the images that a single-hop instruction asks for."""
  shown = world.images[source].objects
  carried = shown[-1 if 'object on the right' in text else 0]
  text = text.replace('object on the right', '')
  text = text.replace('object on the left', '')
  sides = [side for side in ('left', 'right') if f'{side} of' in text]
  colours = [word for word in text.split() if word in objects_lib.COLOURS]
  fitting = []
  for i, image in enumerate(world.images):
    if i == source or len(image.objects) != 2 or carried not in image.objects:
      continue
    place = image.objects.index(carried)
    other = image.objects[1 - place]
    if not sides or sides[0] == ('left', 'right')[place]:
      if not colours or colours[0] == other.colour:
        fitting.append(i)
  return fitting


def make_embed_queries(world):
  """Returns a stand-in for `gallery.embed_queries`.

  The embedding of a query has 1 at every image that fits.
  """

  def embed_queries(model, sequence, visual):
    result = np.zeros((len(sequence.tokens), len(world.images)), np.float32)
    for row, tokens in enumerate(sequence.tokens):
      source = int(visual[row, 0, 0])
      text = read_text(model.maker, tokens)
      result[row, find_fitting(world, source, text)] = 1
    return result

  return embed_queries

"""Reads texts back and finds by looking at every picture what they ask for."""

from vhop_jax.worlds import objects as objects_lib

_SIDES = ('left', 'right')
_RELATIONS = ('leftof', 'rightof')


def read_words(maker, tokens):
  """Returns the word of each token."""
  names = {i: word for word, i in maker.tokenizer.get_vocab().items()}
  return [names[int(i)] for i in tokens]


def read_text(maker, tokens):
  """Returns the words of a text, without the template's tokens."""
  words = read_words(maker, tokens)
  return words[: words.index('<|im_end|>')]


def parse_single_hop(words):
  """Returns side, relation and colour of a single-hop instruction."""
  text = ' '.join(words)
  side = None
  for name in _SIDES:
    if f'the object on the {name}' in text:
      side = name
      text = text.replace(f'the object on the {name}', '')
  relations = [f'{name}of' for name in _SIDES if f'{name} of' in text]
  colours = [word for word in text.split() if word in objects_lib.COLOURS]
  assert len(relations) < 2
  assert len(colours) < 2
  return side, (relations or [None])[0], (colours or [None])[0]


def find_fitting(pictures, carried, excluded, *, relation, colour):
  """Finds what satisfies a hop.

  Args:
    pictures: the objects of each, left to right.
    carried: uid of the object to see again.
    excluded: numbers of pictures that do not count.
    relation: 'leftof', 'rightof', or None where it is not asked.
    colour: of the other object, or None where it is not asked.

  Returns:
    The uid of the other object by number of the picture.
  """
  found = {}
  for i, objects in enumerate(pictures):
    uids = [o.uid for o in objects]
    if i in excluded or len(uids) != 2 or carried not in uids:
      continue
    place = uids.index(carried)
    other = objects[1 - place]
    if relation in (None, _RELATIONS[place]) and colour in (None, other.colour):
      found[i] = other.uid
  return found

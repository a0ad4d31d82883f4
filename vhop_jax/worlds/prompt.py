"""Words the instructions of queries, of single hops, and captions.

The vocabulary is small on purpose: the tiny model learns every word from
scratch. Whole routes are worded by the tables in `wordings`, all else by those
below, so that `all_words` can list what may ever be said.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from vhop_jax.worlds import objects as objects_lib
from vhop_jax.worlds import wordings

if TYPE_CHECKING:
  from vhop_jax.worlds import world as world_lib

# A relation's words; the verifier reads them back.
RELATION_WORDS = {
  'leftof': 'left of',
  'rightof': 'right of',
  'infrontof': 'in front of',
  'behind': 'behind',
  'ontop': 'on top of',
  'below': 'below',
}
# Where in a picture an object stands that is in a relation to the other one.
PLACES = {
  'leftof': 'left',
  'rightof': 'right',
  'infrontof': 'front',
  'behind': 'back',
  'ontop': 'top',
  'below': 'bottom',
}
PATTERN_WORDS = {
  pattern: '' if pattern == 'plain' else pattern.replace('_', '-')
  for pattern in objects_lib.PATTERNS
}
NUMBERS = ('one', 'two', 'three', 'four', 'five')
ORDINALS = ('second', 'third', 'fourth', 'fifth', 'sixth')


_THIS = 'this object'
_SIDES = {
  None: _THIS,
  'left': 'the object on the left',
  'right': 'the object on the right',
  'front': 'the object in front',
  'back': 'the object behind',
  'top': 'the object on top',
  'bottom': 'the object below',
}

CAPTIONS = (
  '{left} left of {right}',
  '{right} right of {left}',
  'a photo of {left} left of {right}',
  'a photo of {right} to the right of {left}',
)
CAPTIONS_ALONE = ('{left}', 'a photo of {left}')
_UNSPECIFIC = ('beside', 'another object')


def route(
  rng: np.random.Generator,
  hops: 'Sequence[world_lib.Hop]',
  kind: str,
  wording: str = 'standard',
  mark: str = '',
) -> str:
  """Words a route.

  Args:
    rng: chooses the wording.
    hops: one to five hops.
    kind: 'precise', with the relation and the colour of each hop, or 'vague',
      without any.
    wording: 'standard' or 'rephrased'.
    mark: what makes the links, a key of `wordings.WORDINGS`.
  """
  choices = wordings.WORDINGS[mark][wording][kind]
  chosen = choices[rng.integers(len(choices))]
  if kind == 'vague':
    return say_vague(chosen, len(hops))
  return say_precise(chosen, hops)


def compose(rng: np.random.Generator, hops: 'Sequence[world_lib.Hop]') -> str:
  """Words a precise route in sentences put together from parts.

  They are no longer than the longest standard wording.

  Args:
    rng: chooses the parts.
    hops: one to five hops.
  """
  longest = max(
    len(split_words(say_precise(one, hops))) for one in wordings.PRECISE
  )
  while True:
    text = say_precise(wordings.compose(rng), hops)
    if len(split_words(text)) <= longest:
      return text


def say_precise(
  wording: wordings.Wording, hops: 'Sequence[world_lib.Hop]'
) -> str:
  """Words a route in one of the precise wordings.

  Args:
    wording: how.
    hops: one to five hops.
  """
  clauses = []
  for i, hop in enumerate(hops):
    clauses.append(
      _fill(
        _choose_clause(wording, i, len(hops)),
        subject=_THIS,
        relation=RELATION_WORDS[hop.relation],
        other=with_article(f'{hop.colour} object'),
        before=_name_carried(hops, i),
      )
    )
  return ''.join(clauses) + (wording.end if len(hops) > 1 else '')


def say_vague(wording: wordings.Wording, hop_count: int) -> str:
  """Words a route in one of the vague wordings.

  Args:
    wording: how.
    hop_count: one to five.
  """
  clauses = [
    _choose_clause(wording, i, hop_count).format(
      subject=_THIS, number=NUMBERS[hop_count - 1], ordinal=ORDINALS[i]
    )
    for i in range(hop_count)
  ]
  return ''.join(clauses) + (wording.end if hop_count > 1 else '')


def single_hop(
  rng: np.random.Generator,
  *,
  side: str | None = None,
  relation: str | None = None,
  colour: str | None = None,
  mark: str = '',
) -> str:
  """Words one hop in the constructions that whole routes use.

  Args:
    rng: chooses the wording.
    side: which object of the picture is meant, a value of `PLACES`, or None
      where it shows one object only.
    relation: a key of `RELATION_WORDS`, or None to leave it open.
    colour: the other object's colour, or None to leave it open.
    mark: what makes the link, a key of `wordings.WORDINGS`.
  """
  kind = 'vague' if relation is None and colour is None else 'precise'
  choices = wordings.WORDINGS[mark]['standard'][kind]
  wording = choices[rng.integers(len(choices))]
  beside, another = _UNSPECIFIC
  return _fill(
    wording.single,
    subject=_SIDES[side],
    relation=RELATION_WORDS[relation] if relation else beside,
    other=with_article(f'{colour} object') if colour else another,
  )


def caption(
  rng: np.random.Generator, objects: Sequence[objects_lib.Object]
) -> str:
  """Describes a picture of one or two objects, given from left to right."""
  templates = CAPTIONS if len(objects) == 2 else CAPTIONS_ALONE
  names = [with_article(describe(thing)) for thing in objects]
  template = templates[rng.integers(len(templates))]
  return template.format(left=names[0], right=names[-1])


def describe(thing: objects_lib.Object) -> str:
  """Returns colour, pattern and type, for example 'red striped kettle'."""
  words = (thing.colour, PATTERN_WORDS[thing.pattern], thing.type)
  return ' '.join(word for word in words if word).replace('_', ' ')


def with_article(noun: str) -> str:
  """Puts 'a' or 'an' before a noun."""
  return f'{"an" if noun[0] in "aeiou" else "a"} {noun}'


def split_words(text: str) -> list[str]:
  """Splits a text into lower-case words and punctuation marks."""
  return re.findall(r'\w+|[^\w\s]', text.lower())


def all_words(types: Iterable[str] | None = None) -> tuple[str, ...]:
  """Lists every word and mark that any text of this module may contain.

  They are those of the standard wordings; the rephrased ones have no others.

  Args:
    types: names of object types; None takes those of the procedural pack.
  """
  if types is None:
    from vhop_jax.worlds.assets import procedural  # Loads mesh code.

    types = procedural.PROCEDURAL.types
  templates = [
    text
    for by_wording in wordings.WORDINGS.values()
    for choices in by_wording['standard'].values()
    for wording in choices
    for text in dataclasses.astuple(wording)
  ]
  texts = [
    *(re.sub(r'{\w+}', '', text) for text in templates),
    *(re.sub(r'{\w+}', '', text) for text in (*CAPTIONS, *CAPTIONS_ALONE)),
    *_SIDES.values(),
    *_UNSPECIFIC,
    *RELATION_WORDS.values(),
    *PATTERN_WORDS.values(),
    *NUMBERS,
    *ORDINALS,
    *objects_lib.COLOURS,
    *(name.replace('_', ' ') for name in types),
    'a an',
  ]
  return tuple(sorted({word for text in texts for word in split_words(text)}))


def _fill(template: str, *, relation: str, **words: str) -> str:
  """Fills a clause; one says `to the` of a side only."""
  if not relation.startswith(('left', 'right')):
    template = template.replace('to the {relation}', '{relation}')
  return template.format(relation=relation, **words)


def _name_carried(hops: 'Sequence[world_lib.Hop]', i: int) -> str:
  """Returns what hop i calls the object that the hop before led to."""
  colour = hops[i - 1].colour
  # Two objects of one colour in a picture: the colour names neither.
  if i == 0 or colour == hops[i].colour:
    return 'that object'
  return f'the {colour} object'


def _choose_clause(wording: wordings.Wording, i: int, count: int) -> str:
  """Returns the template of hop i of a route of `count` hops."""
  if count == 1:
    return wording.single
  if i == 0:
    return wording.first
  return (i == count - 1 and wording.last) or wording.more

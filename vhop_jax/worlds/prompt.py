"""Words the instructions of queries, of single hops, and captions.

The vocabulary is small on purpose: the tiny model learns every word from
scratch. All wordings stand in the tables below, so that `all_words` can list
what may ever be said. Models are trained on the standard wordings alone; the
rephrased ones use the same words in other sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from vhop_jax.worlds import objects as objects_lib

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


@dataclasses.dataclass(frozen=True)
class Wording:
  """Holds one way to word a route.

  Attributes:
    first: The first hop, about `{subject}`.
    more: A later hop; `{before}` is the object it comes from.
    end: What follows the last hop.
    single: The whole instruction when there is one hop only.
    last: The last of several hops, if worded otherwise than `more`.
  """

  first: str
  more: str
  end: str
  single: str
  last: str = ''


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

PRECISE = (
  Wording(
    first='Find the photo where {subject} stands {relation} {other}.',
    more=' From there, find the photo where {before} stands'
    ' {relation} {other}.',
    last=' Then find the photo where {before} stands {relation} {other}.',
    end='',
    single='Find the photo where {subject} stands {relation} {other}.',
  ),
  Wording(
    first='Start from {subject}. Go to the photo where it is {relation}'
    ' {other}',
    more=', then one with that object {relation} {other}',
    end='.',
    single='Start from {subject}. Go to the photo where it is {relation}'
    ' {other}.',
  ),
  Wording(
    first='Follow the links: {subject} is {relation} {other}',
    more=', that object is {relation} {other}',
    end='. Return the last photo.',
    single='Follow the link: {subject} is {relation} {other}. Return the'
    ' photo.',
  ),
  Wording(
    first='Which photo ends this route: {subject} is {relation} {other}',
    more=', {before} is {relation} {other} in another photo',
    end='?',
    single='Which photo shows that {subject} is {relation} {other}?',
  ),
  Wording(
    first='In one photo {subject} is to the {relation} {other}',
    more='; in another, that is to the {relation} {other}',
    end='. Find the last photo.',
    single='In one photo {subject} is to the {relation} {other}. Find that'
    ' photo.',
  ),
)

VAGUE = (
  Wording(
    first='Find another photo of {subject}.',
    more=' Then find another photo of the new object beside it.',
    end='',
    single='Find another photo of {subject}.',
  ),
  Wording(
    first='Start from {subject} and go on for {number} links: in each photo'
    ' found, the new object leads to the next photo',
    more='',
    end='.',
    single='Start from {subject} and go on for one link.',
  ),
  Wording(
    first='Follow the links: another photo of {subject}',
    more=', another photo of the object beside that one',
    end='. Return the last photo.',
    single='Follow the link: another photo of {subject}. Return the photo.',
  ),
  Wording(
    first='In another photo {subject} is beside a {ordinal} one',
    more=', which in another photo is beside a {ordinal} one',
    end='. Find the last photo.',
    single='In another photo {subject} is beside a second one. Find that'
    ' photo.',
  ),
)

# Their clauses are none of those above, their words are: a model that learned
# its words from scratch knows no others.
PRECISE_REPHRASED = (
  Wording(
    first='Return the last photo of this route: {subject} stands {relation}'
    ' {other}',
    more='; in the next photo, {before} stands {relation} {other}',
    end='.',
    single='Return the photo with {subject} {relation} {other}.',
  ),
  Wording(
    first='Follow {subject} to the photo that shows it {relation} {other}',
    more=', then follow that one to the photo that shows it {relation} {other}',
    end='.',
    single='Follow {subject} to the photo that shows it {relation} {other}.',
  ),
)

VAGUE_REPHRASED = (
  Wording(
    first='Go from {subject} to another photo of it',
    more=', then from the new object beside it to another photo of that one',
    end='.',
    single='Go from {subject} to another photo of it.',
  ),
  Wording(
    first='Which photo is {number} links from {subject}, where the new object'
    ' in each photo leads to the next one',
    more='',
    end='?',
    single='Which photo is one link from {subject}?',
  ),
)

# By `Spec.wording` and `Spec.prompt`.
WORDINGS: Mapping[str, Mapping[str, tuple[Wording, ...]]] = {
  'standard': {'precise': PRECISE, 'vague': VAGUE},
  'rephrased': {'precise': PRECISE_REPHRASED, 'vague': VAGUE_REPHRASED},
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
) -> str:
  """Words a route.

  Args:
    rng: chooses the wording.
    hops: one to five hops.
    kind: 'precise' or 'vague'.
    wording: 'standard' or 'rephrased'.
  """
  if kind == 'vague':
    return vague(rng, len(hops), wording)
  return precise(rng, hops, wording)


def precise(
  rng: np.random.Generator,
  hops: 'Sequence[world_lib.Hop]',
  wording: str = 'standard',
) -> str:
  """Words a route with the relation and the colour of each hop.

  Args:
    rng: chooses the wording.
    hops: one to five hops.
    wording: 'standard' or 'rephrased'.
  """
  wordings = WORDINGS[wording]['precise']
  return say_precise(wordings[rng.integers(len(wordings))], hops)


def vague(
  rng: np.random.Generator, hop_count: int, wording: str = 'standard'
) -> str:
  """Words a route without saying any relation or colour.

  Args:
    rng: chooses the wording.
    hop_count: one to five.
    wording: 'standard' or 'rephrased'.
  """
  wordings = WORDINGS[wording]['vague']
  return say_vague(wordings[rng.integers(len(wordings))], hop_count)


def say_precise(wording: Wording, hops: 'Sequence[world_lib.Hop]') -> str:
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


def say_vague(wording: Wording, hop_count: int) -> str:
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
) -> str:
  """Words one hop in the constructions that whole routes use.

  Args:
    rng: chooses the wording.
    side: which object of the picture is meant, a value of `PLACES`, or None
      where it shows one object only.
    relation: a key of `RELATION_WORDS`, or None to leave it open.
    colour: the other object's colour, or None to leave it open.
  """
  wordings = VAGUE if relation is None and colour is None else PRECISE
  wording = wordings[rng.integers(len(wordings))]
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
    for wording in (*PRECISE, *VAGUE)
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


def _choose_clause(wording: Wording, i: int, count: int) -> str:
  """Returns the template of hop i of a route of `count` hops."""
  if count == 1:
    return wording.single
  if i == 0:
    return wording.first
  return (i == count - 1 and wording.last) or wording.more

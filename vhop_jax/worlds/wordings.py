"""Holds every sentence in which a route may be asked for.

Worlds to train on are written in the standard wordings alone; the rephrased
ones use the same words in other sentences. While a router trains, `compose`
puts more sentences together from parts, none of them a rephrased one.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np


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

# Where a logo or a text makes the link: `{mark}` is either word.
_PRECISE_MARKED = (
  Wording(
    first='Find the photo where the {mark} of {subject} is on an object'
    ' {relation} {other}.',
    more=' From there, find the photo where the {mark} of {before} is on an'
    ' object {relation} {other}.',
    last=' Then find the photo where the {mark} of {before} is on an object'
    ' {relation} {other}.',
    end='',
    single='Find the photo where the {mark} of {subject} is on an object'
    ' {relation} {other}.',
  ),
  Wording(
    first='Follow the {mark}s: that of {subject} is on an object {relation}'
    ' {other}',
    more=', that of {before} is on an object {relation} {other}',
    end='. Return the last photo.',
    single='Follow the {mark}: that of {subject} is on an object {relation}'
    ' {other}. Return the photo.',
  ),
  Wording(
    first='In one photo an object with the {mark} of {subject} is to the'
    ' {relation} {other}',
    more='; in another, one with the {mark} of {before} is to the {relation}'
    ' {other}',
    end='. Find the last photo.',
    single='In one photo an object with the {mark} of {subject} is to the'
    ' {relation} {other}. Find that photo.',
  ),
)
_VAGUE_MARKED = (
  Wording(
    first='Find another photo with the {mark} of {subject}.',
    more=' Then find another photo with the {mark} of the new object beside'
    ' it.',
    end='',
    single='Find another photo with the {mark} of {subject}.',
  ),
  Wording(
    first='Follow the {mark}s: another photo with that of {subject}',
    more=', another photo with that of the new object there',
    end='. Return the last photo.',
    single='Follow the {mark}: another photo with that of {subject}. Return'
    ' the photo.',
  ),
)
_PRECISE_MARKED_REPHRASED = (
  Wording(
    first='Return the last photo of this route: the {mark} of {subject} is'
    ' {relation} {other}',
    more='; in the next photo, the {mark} of {before} is {relation} {other}',
    end='.',
    single='Return the photo with the {mark} of {subject} {relation} {other}.',
  ),
  Wording(
    first='Follow the {mark} of {subject} to the photo that shows it'
    ' {relation} {other}',
    more=', then that of {before} to the photo that shows it {relation}'
    ' {other}',
    end='.',
    single='Follow the {mark} of {subject} to the photo that shows it'
    ' {relation} {other}.',
  ),
)
_VAGUE_MARKED_REPHRASED = (
  Wording(
    first='Go from the {mark} of {subject} to another photo of it',
    more=', then from that of the new object beside it to another photo of'
    ' that one',
    end='.',
    single='Go from the {mark} of {subject} to another photo of it.',
  ),
  Wording(
    first='Which photo is {number} links from the {mark} of {subject}, where'
    ' the new object in each photo leads to the next one',
    more='',
    end='?',
    single='Which photo is one link from the {mark} of {subject}?',
  ),
)


def _name_mark(wordings: tuple[Wording, ...], mark: str) -> tuple[Wording, ...]:
  """Returns wordings with the word for what makes the link."""
  return tuple(
    Wording(
      *(text.replace('{mark}', mark) for text in dataclasses.astuple(one))
    )
    for one in wordings
  )


# By what makes the link ('' is the object itself), then by `Spec.wording` and
# `Spec.prompt`.
WORDINGS: Mapping[str, Mapping[str, Mapping[str, tuple[Wording, ...]]]] = {
  '': {
    'standard': {'precise': PRECISE, 'vague': VAGUE},
    'rephrased': {'precise': PRECISE_REPHRASED, 'vague': VAGUE_REPHRASED},
  },
  **{
    mark: {
      'standard': {
        'precise': _name_mark(_PRECISE_MARKED, mark),
        'vague': _name_mark(_VAGUE_MARKED, mark),
      },
      'rephrased': {
        'precise': _name_mark(_PRECISE_MARKED_REPHRASED, mark),
        'vague': _name_mark(_VAGUE_MARKED_REPHRASED, mark),
      },
    }
    for mark in ('logo', 'text')
  },
}

# Parts of composed wordings. Every verb, noun and joint goes with every other.
_STARTS = ('', '', 'Start from {subject}. ', 'Follow this route: ')
_VERBS = ('find', 'go to')
_PHOTOS = (
  'the photo where {subject} {is} {relation} {other}',
  'another photo where {subject} {is} {relation} {other}',
  'one photo in which {subject} {is} {relation} {other}',
  'the photo which shows {subject} {relation} {other}',
  'a photo with {subject} {relation} {other}',
)
_JOINTS = ('. Then ', '. From there, ', ', then ', '; from there, ', ' and ')
_ENDS = ('.', '. Return the last photo.', '. Find the last one.')
# Each asks for a list of links.
_OPENINGS = (
  ('Which photo ends this route: ', '?'),
  ('Which photo is the last of the links: ', '?'),
  ('Find the photo that ends this route: ', '.'),
  ('Go to the last photo: ', '.'),
  ('Follow the links: ', '. Return the last photo.'),
)
_LINKS = (
  '{subject} {is} {relation} {other}',
  '{subject} {is} to the {relation} {other}',
  'in one photo {subject} {is} {relation} {other}',
  'one photo shows {subject} {relation} {other}',
)
_LIST_JOINTS = (', ', '; ', ', then ', ' and then ', ' and ')
_IS = ('is', 'stands')
_CARRIED = ('{before}', 'that object', 'that one')


def compose(rng: np.random.Generator) -> Wording:
  """Puts a precise wording together, of several hundred that there are."""
  pick = lambda parts: parts[int(rng.integers(len(parts)))]  # noqa: E731
  is_list = bool(rng.integers(2))
  opening, end = pick(_OPENINGS) if is_list else (pick(_STARTS), pick(_ENDS))
  clause, joint = (
    (pick(_LINKS), pick(_LIST_JOINTS))
    if is_list
    else (f'{pick(_VERBS)} {pick(_PHOTOS)}', pick(_JOINTS))
  )
  clause = clause.replace('{is}', pick(_IS))
  first = opening + clause
  if not opening or opening.endswith('. '):
    first = opening + clause[0].upper() + clause[1:]
  more = clause.replace('{subject}', pick(_CARRIED))
  return Wording(first=first, more=joint + more, end=end, single=first + end)

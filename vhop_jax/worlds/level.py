"""Says what each level of difficulty asks of a hop, and which scenes it adds.

Levels are cumulative: a level asks for all that the levels below it ask for.
This is the one place that knows which constraint starts at which level.
"""

from vhop_jax import errors

LEVELS = (1, 2, 3, 4, 5, 6, 7)
PROMPTS = ('precise', 'vague')

# A dead end needs a hop after it, and no wording counts beyond five.
MIN_HOPS = 2
MAX_HOPS = 5

RELATION_LEVEL = 2  # From here on a hop asks for the spatial relation.
COLOUR_LEVEL = 3  # From here on a hop asks for the other object's colour.
DEAD_END_LEVEL = 4  # From here on a family has scenes that lead nowhere.
TWIN_LEVEL = 5  # From here on a family has look-alikes of what links.
LOGO_LEVEL = 6  # Two objects are linked by one logo,
TEXT_LEVEL = 7  # or by one printed text, and no longer by being the same.

# The least width in pixels at which a logo is told from others, a text read.
MIN_RESOLUTIONS = {'logo': 96, 'text': 224}

MAX_CLUTTER = 4
VARIATIONS = ('standard', 'strong')  # Of light, camera and background.

# How two objects of a world stand to each other. Of each pair the first
# relation is that of the object which an image names first.
PAIRS = {
  'sides': ('leftof', 'rightof'),
  'depth': ('infrontof', 'behind'),
  'height': ('ontop', 'below'),
}
MIRROR = {
  relation: pair[1 - i]
  for pair in PAIRS.values()
  for i, relation in enumerate(pair)
}
RELATIONS = tuple(MIRROR)


def flip_sides(relation: str) -> str:
  """Returns what a relation is in a mirror: only left and right change."""
  return MIRROR[relation] if relation in PAIRS['sides'] else relation


def parse_level(text: str | int) -> int:
  """Reads a level written as `L4`, `l4` or `4`.

  Raises:
    UsageError: there is no such level.
  """
  digits = str(text).strip().upper().removeprefix('L')
  if digits.isdecimal() and int(digits) in LEVELS:
    return int(digits)
  known = ', '.join(f'L{level}' for level in LEVELS)
  raise errors.UsageError(f'no level {str(text)!r}: choose one of {known}')


def asks_relation(level: int, prompt: str) -> bool:
  """Returns whether a hop is valid only in the asked relation."""
  return prompt == 'precise' and level >= RELATION_LEVEL


def asks_colour(level: int, prompt: str) -> bool:
  """Returns whether a hop is valid only with the asked colour."""
  return prompt == 'precise' and level >= COLOUR_LEVEL


def has_dead_ends(level: int) -> bool:
  """Returns whether a family has scenes without any continuation."""
  return level >= DEAD_END_LEVEL


def has_twins(level: int) -> bool:
  """Returns whether a family has look-alikes of its linking objects."""
  return level >= TWIN_LEVEL


def find_print(level: int) -> str:
  """Returns what links two images: 'logo', 'text', or '' for an object."""
  if level >= TEXT_LEVEL:
    return 'text'
  return 'logo' if level >= LOGO_LEVEL else ''


def count_prints(hops: int) -> int:
  """Returns how many different prints a family of L6 or L7 needs at most.

  The start, what the hops of both chains lead to, two dead ends, two
  look-alikes and what stands beside these.
  """
  return 1 + 2 * hops + 6


def shares_start(level: int, prompt: str) -> bool:
  """Returns whether both chains of a family begin at one start object.

  Where a precise prompt's relation is not checked yet (L1), a shared start
  would make both chains valid, so each chain has a start of its own.
  """
  return prompt == 'vague' or asks_relation(level, prompt)

"""Describes one physical object of a world: what it is, not where it stands.

An `Object` is plain data. Two objects of the same type, colour and pattern
with slightly different `shape` numbers are look-alikes, but not the same
physical thing: identity is the `uid`, which never reaches a picture.
"""

import dataclasses
from typing import Any

# Named colours as sRGB in [0, 1]. Brown is left out on purpose: it is orange
# in the shade, so that no light-independent rule could tell the two apart.
COLOURS: dict[str, tuple[float, float, float]] = {
  'red': (0.83, 0.08, 0.10),
  'orange': (0.97, 0.48, 0.03),
  'yellow': (0.98, 0.87, 0.10),
  'green': (0.10, 0.56, 0.16),
  'cyan': (0.20, 0.80, 0.84),
  'blue': (0.08, 0.26, 0.84),
  'purple': (0.52, 0.12, 0.62),
  'pink': (0.98, 0.56, 0.74),
  'white': (0.95, 0.95, 0.94),
  'black': (0.07, 0.07, 0.08),
}

PATTERNS: tuple[str, ...] = (
  'plain',
  'two_tone',
  'striped',
  'checked',
  'dotted',
)

# Every type uses the same number of shape parameters: the first two belong to
# the pattern (frequency and phase), the others to the geometry.
PATTERN_PARAMETERS = 2
GEOMETRY_PARAMETERS = 4
SHAPE_PARAMETERS = PATTERN_PARAMETERS + GEOMETRY_PARAMETERS


_OPTIONAL = ('logo', 'text', 'font', 'change')


@dataclasses.dataclass(frozen=True)
class Object:
  """Holds everything that fixes the looks of one physical object.

  Attributes:
    uid: Identity of the physical thing, unique within a world.
    type: What a person calls it, for example 'kettle'.
    colour: Name of the body's colour, a key of `COLOURS`.
    second_colour: Name of the colour of trim and pattern.
    pattern: One of `PATTERNS`, painted on the body.
    shape: `SHAPE_PARAMETERS` numbers in [0, 1]: pattern frequency, pattern
      phase, then the type's own proportions.
    pack: Name of the asset pack that can make the object's mesh.
    logo: Name of the logo printed on it, or ''.
    text: What is printed on it instead, or ''.
    font: Font of the text, or ''.
    change: Of a look-alike: in what it differs from the object that it is
      taken for, a proportion's name or 'trim'; else ''.
  """

  uid: str
  type: str
  colour: str
  second_colour: str
  pattern: str
  shape: tuple[float, ...]
  pack: str = 'procedural'
  logo: str = ''
  text: str = ''
  font: str = ''
  change: str = ''

  def to_json(self) -> dict[str, Any]:
    """Returns the object as a JSON-compatible dict, in field order.

    What most objects have not is left out, so that the worlds without it are
    the same to the byte as before it was added.
    """
    values = dataclasses.asdict(self)
    values['shape'] = list(self.shape)
    for name in _OPTIONAL:
      if not values[name]:
        del values[name]
    return values

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'Object':
    """Makes an object from what `to_json` returned."""
    return cls(**{**values, 'shape': tuple(values['shape'])})

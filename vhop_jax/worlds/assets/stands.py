"""Makes the stands on which one object stands above another.

A stand is no object of a world: it has no name that a prompt could say, no
pattern, and it is of a neutral material.
"""

import numpy as np

from vhop_jax.errors import UsageError
from vhop_jax.worlds.assets import Mesh, Part
from vhop_jax.worlds.assets.shapes import assemble, box
from vhop_jax.worlds.objects import PATTERN_PARAMETERS, Object

MATERIALS = {
  'wooden_stand': Part.WOOD,
  'light_stand': Part.LIGHT,
  'dark_stand': Part.DARK,
  'metal_stand': Part.METAL,
}
# Thickness of the board and of a leg, as shares of the board's lesser side.
BOARD_FRAC = 0.05
_LEG_FRAC = 0.05
_DIGITS = 6


def sample_stand(
  rng: np.random.Generator,
  *,
  uid: str,
  width: float,
  depth: float,
  height: float,
) -> tuple[Object, float]:
  """Draws a stand of given measures.

  Args:
    rng: chooses the material.
    uid: its identity.
    width: of the board, from the left to the right.
    depth: of the board, from the front to the back.
    height: of the board's upper side above the ground.

  Returns:
    The stand, and the scale at which it has these measures.
  """
  scale = max(width, depth, height)
  shares = (round(side / scale, _DIGITS) for side in (width, depth, height))
  stand = Object(
    uid=uid,
    type=tuple(MATERIALS)[rng.integers(len(MATERIALS))],
    colour='white',
    second_colour='white',
    pattern='plain',
    shape=(0.0,) * PATTERN_PARAMETERS + (*shares, 0.0),
    pack=STANDS.name,
  )
  return stand, scale


class StandPack:
  """Makes small tables of any width, depth and height.

  Their `shape` holds, after the two unused numbers of a pattern, width, depth
  and height as shares of the largest of the three, and one unused number.
  """

  name = 'stands'
  types: tuple[str, ...] = tuple(MATERIALS)

  def mesh(self, obj: Object) -> Mesh:
    """Makes the mesh of a stand.

    Raises:
      UsageError: there is no such material.
    """
    if obj.type not in MATERIALS:
      raise UsageError(
        f'stand {obj.uid} is of the unknown type {obj.type!r}; there are: '
        + ', '.join(MATERIALS)
      )
    width, depth, height = obj.shape[PATTERN_PARAMETERS:-1]
    board = BOARD_FRAC * min(width, depth)
    leg = _LEG_FRAC * min(width, depth)
    pieces = [box(width, board, depth).move(y=height - board)]
    pieces += [
      box(leg, height - board, leg).move(
        x=x * (width - leg) / 2, z=z * (depth - leg) / 2
      )
      for x in (-1, 1)
      for z in (-1, 1)
    ]
    return assemble([(MATERIALS[obj.type], piece) for piece in pieces])


STANDS = StandPack()

"""Makes objects and meshes without any downloaded asset."""

from collections.abc import Callable, Collection, Iterable
import inspect

import numpy as np

import vhop_jax
from vhop_jax.errors import UsageError
from vhop_jax.worlds.assets import (
  Mesh,
  buildings,
  furniture,
  home,
  kitchen,
  nature,
  tools,
  toys,
  twins,
  vehicles,
)
from vhop_jax.worlds.assets.shapes import Pieces, assemble
from vhop_jax.worlds.objects import (
  COLOURS,
  PATTERN_PARAMETERS,
  PATTERNS,
  SHAPE_PARAMETERS,
  Object,
)

TYPES: dict[str, Callable[[float, float, float, float], Pieces]] = {
  'kettle': kitchen.make_kettle,
  'mug': kitchen.make_mug,
  'wine glass': kitchen.make_wine_glass,
  'bottle': kitchen.make_bottle,
  'bowl': kitchen.make_bowl,
  'toaster': kitchen.make_toaster,
  'cupcake': kitchen.make_cupcake,
  'frying pan': kitchen.make_frying_pan,
  'vase': home.make_vase,
  'bucket': home.make_bucket,
  'barrel': home.make_barrel,
  'lamp': home.make_lamp,
  'candle': home.make_candle,
  'lantern': home.make_lantern,
  'gift box': home.make_gift_box,
  'alarm clock': home.make_alarm_clock,
  'hourglass': home.make_hourglass,
  'umbrella': home.make_umbrella,
  'watering can': home.make_watering_can,
  'bell': home.make_bell,
  'backpack': home.make_backpack,
  'chair': furniture.make_chair,
  'stool': furniture.make_stool,
  'table': furniture.make_table,
  'sofa': furniture.make_sofa,
  'bookshelf': furniture.make_bookshelf,
  'television': furniture.make_television,
  'teddy bear': toys.make_teddy_bear,
  'robot': toys.make_robot,
  'duck': toys.make_duck,
  'piggy bank': toys.make_piggy_bank,
  'snowman': toys.make_snowman,
  'drum': toys.make_drum,
  'chess pawn': toys.make_chess_pawn,
  'spinning top': toys.make_spinning_top,
  'crown': toys.make_crown,
  'rocking horse': toys.make_rocking_horse,
  'car': vehicles.make_car,
  'sailboat': vehicles.make_sailboat,
  'aeroplane': vehicles.make_aeroplane,
  'locomotive': vehicles.make_locomotive,
  'rocket': vehicles.make_rocket,
  'tyre': vehicles.make_tyre,
  'traffic cone': vehicles.make_traffic_cone,
  'hot air balloon': vehicles.make_hot_air_balloon,
  'mushroom': nature.make_mushroom,
  'cactus': nature.make_cactus,
  'pine tree': nature.make_pine_tree,
  'pumpkin': nature.make_pumpkin,
  'apple': nature.make_apple,
  'fish': nature.make_fish,
  'snail': nature.make_snail,
  'flower': nature.make_flower,
  'palm tree': nature.make_palm_tree,
  'dumbbell': tools.make_dumbbell,
  'hammer': tools.make_hammer,
  'key': tools.make_key,
  'guitar': tools.make_guitar,
  'trophy': tools.make_trophy,
  'hat': tools.make_hat,
  'boot': tools.make_boot,
  'anvil': tools.make_anvil,
  'telephone': tools.make_telephone,
  'globe': tools.make_globe,
  'camera': tools.make_camera,
  'house': buildings.make_house,
  'bird house': buildings.make_bird_house,
  'mailbox': buildings.make_mailbox,
  'windmill': buildings.make_windmill,
  'lighthouse': buildings.make_lighthouse,
  'castle': buildings.make_castle,
  'fire hydrant': buildings.make_fire_hydrant,
  'well': buildings.make_well,
}

# On these a label for a logo and one for a text fit whatever the proportions,
# or nearly so (`prints.find_print_area`).
PRINTABLE_TYPES = (
  *('camera', 'alarm clock', 'house', 'drum', 'mug', 'television', 'toaster'),
  *('sofa', 'fire hydrant', 'castle', 'telephone', 'gift box', 'bucket'),
  *('apple', 'bird house', 'teddy bear', 'robot', 'trophy', 'piggy bank'),
  *('locomotive', 'lamp', 'boot', 'mailbox', 'backpack', 'traffic cone'),
  *('kettle', 'vase', 'barrel', 'hat', 'well', 'globe', 'windmill'),
  *('wine glass', 'guitar', 'hot air balloon', 'bell', 'hammer'),
  *('watering can',),
)

# Colours that are easily confused in the shade or under coloured light are
# not combined on one object.
_ALIKE = (
  {'red', 'orange'},
  {'orange', 'yellow'},
  {'blue', 'purple'},
  {'red', 'pink'},
  {'pink', 'purple'},
  {'cyan', 'white'},
  {'pink', 'white'},
  {'cyan', 'blue'},
  {'cyan', 'green'},
)
SECOND_COLOURS: dict[str, tuple[str, ...]] = {
  first: tuple(
    second
    for second in COLOURS
    if second != first and {first, second} not in _ALIKE
  )
  for first in COLOURS
}


class ProceduralPack:
  """Composes parametric household objects from simple solids."""

  name = 'procedural'
  version = vhop_jax.__version__
  types: tuple[str, ...] = tuple(TYPES)
  printable_types: tuple[str, ...] = PRINTABLE_TYPES

  def sample_object(
    self,
    rng: np.random.Generator,
    *,
    uid: str,
    type: str | None = None,
    colour: str | None = None,
  ) -> Object:
    """Draws an object.

    The number of draws does not depend on what is given, so that a fixed
    type or colour leaves everything else as it was.

    Args:
      rng: Source of all randomness.
      uid: Identity of the object.
      type: Keeps the type; else it is drawn.
      colour: Keeps the colour; else it is drawn.

    Raises:
      UsageError: The type or the colour is unknown.
    """
    picks = rng.random(4)
    shape = rng.random(SHAPE_PARAMETERS)
    if type is None:
      type = pick(self.types, picks[0])
    if type not in TYPES:
      raise UsageError(
        f"unknown type '{type}' in pack 'procedural'; use one of "
        + ', '.join(TYPES)
      )
    if colour is None:
      colour = pick(tuple(COLOURS), picks[1])
    if colour not in COLOURS:
      raise UsageError(
        f"unknown colour '{colour}'; use one of " + ', '.join(COLOURS)
      )
    return Object(
      uid=uid,
      type=type,
      colour=colour,
      second_colour=pick(SECOND_COLOURS[colour], picks[2]),
      pattern=pick(PATTERNS, picks[3]),
      # Six digits are enough and survive a round trip through JSON.
      shape=tuple(round(float(value), 6) for value in shape),
      pack=self.name,
    )

  def sample_twin(
    self,
    rng: np.random.Generator,
    obj: Object,
    *,
    uid: str,
    avoid: Collection[str] = (),
  ) -> Object:
    """Draws a look-alike: type, colour and pattern are the object's.

    See `twins.sample_twin`.
    """
    names = inspect.signature(TYPES[obj.type]).parameters
    return twins.sample_twin(
      rng,
      obj,
      uid=uid,
      proportions={n: PATTERN_PARAMETERS + i for i, n in enumerate(names)},
      second_colours=SECOND_COLOURS[obj.colour],
      make_mesh=self.mesh,
      avoid=avoid,
    )

  def mesh(self, obj: Object) -> Mesh:
    """Makes the mesh of an object; only type and shape matter for it.

    Raises:
      UsageError: The object's type is unknown.
    """
    if obj.type not in TYPES:
      raise UsageError(
        f"object {obj.uid} has the unknown type '{obj.type}'; pack "
        f"'procedural' has " + ', '.join(TYPES)
      )
    return assemble(TYPES[obj.type](*obj.shape[PATTERN_PARAMETERS:]))

  def attribute(self, objects: Iterable[Object]) -> str:
    """Returns nothing: every mesh is made here."""
    return ''


def pick(options: tuple[str, ...], share: float) -> str:
  """Returns the option at a position in [0, 1)."""
  return options[int(share * len(options))]


PROCEDURAL = ProceduralPack()

"""Holds the shape glossary, the array aliases and the `typed` decorator.

One letter has one meaning everywhere, in annotations and (in lower case) in
einsums:

| letter | meaning                        |
|--------|--------------------------------|
| B      | queries or rollouts in a batch |
| G      | rollouts per query             |
| T      | decisions                      |
| D      | embedding width                |
| N      | gallery images                 |
| M      | visual tokens per image        |
| L      | text tokens                    |
| S      | sequence length                |
| V      | vocabulary                     |
| K      | top-k                          |
| H W C  | pixels: rows, columns, colours |

A name's suffix `_mask` means True for *keep*.
"""

from collections.abc import Callable
import importlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import beartype
import jaxtyping
from jaxtyping import (
  Bool,
  Float,
  Float32,
  Int,
  Int32,
  Integer,
  Shaped,
  UInt8,
  UInt32,
)

if TYPE_CHECKING:
  from jax import Array
  from jaxtyping import PyTree
  from numpy import ndarray

__all__ = [
  'Array',
  'Bool',
  'Float',
  'Float32',
  'Int',
  'Int32',
  'Integer',
  'Params',
  'PyTree',
  'Shaped',
  'UInt8',
  'UInt32',
  'ndarray',
  'typed',
]

Params = Any  # A nested dict of arrays; flax gives it no better type.

# `worlds` imports this module and must not load JAX, so what needs it is
# looked up when first asked for.
_LAZY_ALIASES = {'Array': 'jax', 'PyTree': 'jaxtyping', 'ndarray': 'numpy'}

_F = TypeVar('_F', bound=Callable[..., Any])


def __getattr__(name: str) -> Any:
  """Looks up an array class when a module asks for it."""
  if name not in _LAZY_ALIASES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_LAZY_ALIASES[name]), name)


def typed(function: _F) -> _F:
  """Checks the shapes and dtypes that a function's annotations promise.

  Works on functions and on the `__call__` of a Linen module; under `jit` the
  check happens while tracing and costs nothing afterwards.

  Args:
    function: annotated with jaxtyping's types, e.g. `Float[Array, 'B D']`.

  Returns:
    The same function with its arguments and result checked.
  """
  checked = jaxtyping.jaxtyped(function, typechecker=beartype.beartype)
  return cast(_F, checked)

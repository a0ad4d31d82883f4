"""Compiles for tests, which run a function once or twice."""

import functools

import jax

# The code is slower and ready in a third of the time. Only the outermost
# `jit` may name compiler options: what it calls must not be wrapped in it.
jit = functools.partial(
  jax.jit,
  compiler_options={
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True,
  },
)

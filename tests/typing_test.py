import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from vhop_jax.typing import Array, Float, typed


@typed
def compute_scores(
  queries: Float[Array, 'B D'], gallery: Float[Array, 'N D']
) -> Float[Array, 'B N']:
  return jnp.einsum('bd,nd->bn', queries, gallery)


class Head(nn.Module):
  @nn.compact
  @typed
  def __call__(self, states: Float[Array, 'B D']) -> Float[Array, 'B 3']:
    return nn.Dense(3)(states)


def test_letters_must_agree_between_arguments():
  jax.jit(compute_scores)(jnp.zeros((2, 4)), jnp.zeros((5, 4)))
  with pytest.raises(TypeError):
    jax.jit(compute_scores)(jnp.zeros((2, 4)), jnp.zeros((5, 3)))


def test_linen_call_is_checked():
  head = Head()
  params = head.init(jax.random.key(0), jnp.zeros((2, 4)))
  assert head.apply(params, jnp.zeros((2, 4))).shape == (2, 3)
  with pytest.raises(TypeError):
    head.apply(params, jnp.zeros((2, 4, 1)))


def test_worlds_do_not_load_jax():
  program = (
    'import sys, vhop_jax.typing, vhop_jax.worlds.world\n'
    'vhop_jax.typing.ndarray\n'
    'assert "jax" not in sys.modules'
  )
  subprocess.run([sys.executable, '-c', program], check=True)

"""Gives a policy that is random and the same in JAX and in plain Python."""

import jax.numpy as jnp
import numpy as np

from vhop_jax.env import policy as policy_lib

MEMORY = 97


class RandomPolicy:
  """Scores by a table, looked up by a hash of all that was decided."""

  def __init__(self, seed, num_images):
    rng = np.random.default_rng(seed)
    self.select = rng.normal(size=(MEMORY, num_images)).astype(np.float32)
    self.stop = (rng.normal(size=MEMORY) - 1).astype(np.float32)
    self.back = (rng.normal(size=MEMORY)).astype(np.float32)

  def make(self):
    """Returns it as the package's policy; the context is the hash."""
    select, stop, back = map(jnp.asarray, (self.select, self.stop, self.back))
    return policy_lib.Policy(
      score=lambda memory, state: policy_lib.Scores(
        select=select[memory], stop=stop[memory], backtrack=back[memory]
      ),
      advance=lambda memory, action, state: self.remember(memory, action),
      take=lambda memory, rows: memory[rows],
    )

  def look_up(self, memory):
    """Returns the scores as plain numbers."""
    return (
      self.select[memory].tolist(),
      float(self.stop[memory]),
      float(self.back[memory]),
    )

  @staticmethod
  def remember(memory, action):
    return (31 * memory + action + 7) % MEMORY

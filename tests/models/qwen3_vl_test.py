import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from vhop_jax import errors
from vhop_jax.models import hf_config, qwen3_vl


def test_parts_of_different_width_are_refused():
  config = hf_config.SIZES['2b']
  vision = dataclasses.replace(config.vision, out_size=1024)
  with pytest.raises(errors.UsageError, match='out_size=1024'):
    dataclasses.replace(config, vision=vision)


def test_visual_tokens_go_where_the_index_says():
  # Two rows of visual tokens are counted through: the second row's first is
  # token 2.
  visual = jnp.arange(8.0).reshape(2, 2, 2)
  embeddings, deepstack = qwen3_vl.place_visual(
    -jnp.ones((1, 3, 2)), visual, visual[None] * 10, jnp.array([[2, -1, 1]])
  )
  np.testing.assert_array_equal(embeddings[0], [[4, 5], [-1, -1], [2, 3]])
  np.testing.assert_array_equal(deepstack[0, 0], [[40, 50], [0, 0], [20, 30]])

"""Trains and routes with a small Hugging Face folder and adapters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import command
from tests.models import micro, quick, qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.index import gallery as gallery_lib
from vhop_jax.models import embedder as embedder_lib
from vhop_jax.models import lora as lora_lib
from vhop_jax.models import pretrained, qwen3_vl, vision_qwen3_vl
from vhop_jax.models import router as router_lib
from vhop_jax.train import objective, router_run
from vhop_jax.worlds import world as world_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

BACKBONE = {'width_px': 96, 'height_px': 64}
GRID = (2, 3)


@pytest.fixture(scope='module')
def hf_folder(tmp_path_factory):
  return qwen3_vl_folder.save(tmp_path_factory.mktemp('hf') / 'model')


@pytest.fixture(scope='module')
def model(hf_folder):
  return pretrained.load_embedder(hf_folder, BACKBONE)


def test_visual_tokens_and_embeddings_are_the_whole_models(model):
  """The packed, cached way gives what the model gives in one go."""
  rng = np.random.default_rng(0)
  pixels = rng.integers(0, 255, (2, 64, 96, 3)).astype(np.uint8)
  visual = gallery_lib.encode_images(model, pixels)
  size = model.module.config.decoder.hidden_size
  # One tap: tokens and one feature beside them.
  assert visual.shape == (2, GRID[0] * GRID[1], 2 * size)
  embedded = gallery_lib.embed_images(model, visual)

  tower = model.module.config.tower
  layout = vision_qwen3_vl.make_patch_layout(
    np.array([[1, 4, 6]] * 2), grid_side=tower.grid_side
  )
  patches = vision_qwen3_vl.cut_patches(jnp.asarray(pixels), tower)
  sequence = model.maker.documents(2)
  index = sequence.visual_index
  offsets = np.array([[0], [GRID[0] * GRID[1]]])
  whole = qwen3_vl.Qwen3VL(qwen3_vl_folder.CONFIG)
  hidden, _ = quick.jit(whole.apply)(
    {
      'params': {
        'vision': model.params['tower'],
        'decoder': model.params['text']['decoder'],
      }
    },
    jnp.asarray(sequence.tokens),
    jnp.moveaxis(jnp.asarray(sequence.positions), 1, 0),
    jnp.asarray(sequence.mask),
    patches=patches.reshape(-1, patches.shape[-1]),
    layout=jax.tree.map(jnp.asarray, layout),
    visual_index=jnp.asarray(np.where(index >= 0, index + offsets, -1)),
  )
  expected = embedder_lib.normalize(hidden[:, -1])
  np.testing.assert_allclose(embedded, expected, atol=1e-5)
  # Without the DeepStack features it is another.
  plain = visual.copy()
  plain[..., size:] = 0
  other = gallery_lib.embed_images(model, plain)
  assert np.abs(other - embedded).max() > 5e-4


# The second row goes back twice, to its query image, and on again.
TOPS = np.array([[2, 3, 4, 6, 0], [5, 6, 5, 8, 2]])
DEPTH = np.array([[1, 2, 3, 4, 5], [1, 2, 1, 0, 1]])


def make_router(model, *, view='stack', dropout=0.0):
  """Returns a router whose adapters and heads do something."""
  made = pretrained.make_router(
    model,
    inverse_temperature=20.0,
    view=view,
    lora=lora_lib.LoraConfig(rank=4, alpha=8.0, dropout=dropout),
  )
  rng = np.random.default_rng(1)
  moved = jax.tree.map(
    lambda x: np.float32(x + 0.1 * rng.normal(size=np.shape(x))),
    {name: part for name, part in made.params.items() if name != 'base'},
  )
  return made.replace_params({**moved, 'base': made.params['base']})


def draw_visual(model, count):
  size = model.maker.num_visual, 2 * model.module.config.decoder.hidden_size
  visual = np.random.default_rng(0).normal(size=(count, *size))
  return jnp.asarray(visual, jnp.float32)


@pytest.mark.parametrize('view', router_lib.VIEWS)
def test_cached_reading_of_deepstack_is_the_parallel_pass(model, view):
  router = make_router(model, view=view)
  texts = ['Find the photo.', 'Find the photo where this object stands alone']
  visual, count = draw_visual(model, 9), TOPS.shape[1]
  is_select = np.diff(DEPTH, axis=1, prepend=0) > 0

  def run(params, prefix, segment, visual, depth, is_select):
    variables = router_lib.make_variables(params)

    def apply(*args, method, **settings):
      return router.module.apply(variables, *args, method=method, **settings)

    query, tops = visual[jnp.array([7, 8])], visual[TOPS]
    whole = apply(prefix, segment, query, depth, tops, method='encode_states')
    context = apply(prefix, segment, query, budget=count, method='start')
    states = [context.state]
    for t in range(count):
      step = depth[:, t], is_select[:, t], tops[:, t]
      context = apply(context, segment, *step, method='advance')
      states.append(context.state)
    return whole, jnp.stack(states, axis=1)

  run = quick.jit(run)
  maker = model.maker
  arrays = router.params, maker.queries(texts), maker.segment()
  whole, states = run(*arrays, visual, DEPTH, is_select)
  np.testing.assert_allclose(states, whole, atol=1e-4)
  # The features of the query image and of what is selected count.
  size = model.module.config.decoder.hidden_size
  plain, _ = run(*arrays, visual.at[..., size:].set(0), DEPTH, is_select)
  assert (np.abs(plain - whole).max(axis=2) > 1e-3).all()


def test_adapters_drop_inputs_where_there_is_a_key(model):
  visual = draw_visual(model, 3)
  for dropout in (0.0, 0.5):
    router = make_router(model, dropout=dropout)
    embed = quick.jit(
      lambda params, rng, router=router: objective.embed_candidates(
        router, params, visual, rng=rng
      )
    )
    keys = [None, *map(jax.random.key, (0, 1, 0))]
    whole, first, other, again = (embed(router.params, key) for key in keys)
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(whole, first) == (dropout == 0)
    assert np.array_equal(first, other) == (dropout == 0)


def test_size_of_images_must_be_whole_tokens(hf_folder):
  with pytest.raises(errors.UsageError, match='multiples of 32'):
    pretrained.load_embedder(hf_folder, {'width_px': 100, 'height_px': 64})


def test_fingerprint_is_of_the_content(hf_folder, model, tmp_path):
  other = qwen3_vl_folder.save(tmp_path / 'other')
  assert pretrained.load_embedder(other, BACKBONE).fingerprint == (
    model.fingerprint
  )
  for changed in (
    pretrained.load_embedder(hf_folder, {**BACKBONE, 'height_px': 96}),
    pretrained.load_embedder(hf_folder, {**BACKBONE, 'dtype': 'bfloat16'}),
    pretrained.load_embedder(
      qwen3_vl_folder.save(tmp_path / 'seed', seed=1), BACKBONE
    ),
  ):
    assert changed.fingerprint != model.fingerprint


def test_stages_train_adapters_and_the_result_routes(
  hf_folder, model, folder, other_folder, tmp_path, capsys
):
  shared = {
    'embedder': hf_folder,
    'worlds': other_folder,
    'dev': folder,
    'data.batch_size': 2,
    'data.max_text_tokens': 128,
    'data.decisions': 6,
    'budget': 6,
    'mirror': False,
    'log_every': 1,
    'evaluate_every': 0,
    'mesh.data': 1,
    **{f'backbone.{name}': value for name, value in BACKBONE.items()},
  }
  runs = {
    'sft:turns': {
      'warmup_steps': 0,
      'joint_steps': 2,
      'lora.rank': 4,
      'joint_optimizer.warmup_steps': 0,
    },
    'imitation': {
      'imitation_steps': 2,
      'replay.capacity': 2,
      'replay.collect_every': 2,
      'imitation_optimizer.warmup_steps': 0,
    },
    'reinforce': {
      'reinforce_steps': 2,
      'collect.queries': 2,
      'collect.rollouts': 3,
      'collect.groups': 2,
      'collect.mask_failed': False,
      'reinforce_optimizer.warmup_steps': 0,
    },
  }
  before = None
  for stage, changes in runs.items():
    values = {**shared, **changes}
    if before is not None:
      values['router'] = path
    if stage == 'reinforce':
      # Rollouts that all run out of budget would teach nothing.
      made = micro.open_gates(pretrained.load_router(path, model))
      before, values['router'] = made.params, tmp_path / 'open.safetensors'
      pretrained.save_router(values['router'], made, training={})
    workdir = tmp_path / stage.split(':')[0]
    assert command.run_stage(stage, workdir, values) == 0, stage
    path = workdir / router_run.RESULT_FILE
    made = pretrained.load_router(path, model)
    # The base is the folder's, and is not written.
    base = micro.find_equal(made.params['base'], model.params['text'])
    assert all(jax.tree.leaves(base))
    assert path.stat().st_size < 0.5 * sum(
      x.nbytes for x in jax.tree.leaves(model.params)
    )
    if before is not None:
      same = micro.find_equal(made.params, before)
      assert not all(jax.tree.leaves(same['state'])), stage
      assert all(jax.tree.leaves(same['gallery'])), stage
    before = made.params
    printed = capsys.readouterr().out
    trained = sum(
      x.size
      for part in made.params
      if part != 'base'
      for x in jax.tree.leaves(made.params[part])
    )
    # No more than adapters and heads is trained, or has optimizer state.
    assert stage != 'sft:turns' or f'{trained:,} trained' in printed

  query = world_lib.load_world(folder).queries[0].id
  code, printed, error = command.run_vhop(
    capsys,
    'route',
    folder,
    f'--out={tmp_path / "route.png"}',
    f'--router={path}',
    f'--embedder={hf_folder}',
    f'--query={query}',
  )
  assert code == 0, error
  assert f'query {query}' in printed
  assert (tmp_path / 'route.png').exists()

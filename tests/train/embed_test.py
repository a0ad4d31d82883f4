"""Trains embedding models on files of pairs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from tests import command
from tests.models import micro, qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.data import embedding_pairs, item_rows
from vhop_jax.models import convert, encoder, peft_format, pretrained
from vhop_jax.train import embed

pytestmark = pytest.mark.usefixtures('quick_compile')

WORDS = ('red', 'blue', 'green', 'black')
SETTINGS = {
  'embed_steps': 2,
  'data.batch_size': 4,
  'data.max_tokens': 64,
  'data.max_pixels': 8192,
  'chunk': 2,
  'lora.rank': 4,
  'embed_optimizer.warmup_steps': 0,
  'embed_optimizer.lr': 0.02,
  'log_every': 1,
  'evaluate_every': 0,
  'mesh.data': 1,
}


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
  """Returns a file of four pairs; queries and documents are of all kinds."""
  folder = tmp_path_factory.mktemp('pairs')
  rng = np.random.default_rng(0)
  for number in range(4):
    small = rng.integers(0, 255, (4, 4, 3)).astype(np.uint8)
    image = Image.fromarray(small).resize((40 + 8 * number, 48))
    image.save(folder / f'{number}.png')
  lines = [
    {'query': f'a {WORDS[0]} kettle', 'positive_image': '0.png'},
    {'query_image': '1.png', 'positive_text': f'a {WORDS[1]} kettle'},
    {
      'query': f'the {WORDS[2]} kettle',
      'query_image': '2.png',
      'positive_image': '3.png',
      'positive_text': WORDS[2],
    },
    {
      'query': f'a {WORDS[3]} vase',
      'positive_text': f'the {WORDS[3]} vase',
      'negatives': [{'text': f'the {WORDS[0]} vase'}, {'image': '2.png'}],
    },
  ]
  path = folder / 'pairs.jsonl'
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  """Returns a file of pairs without pictures."""
  path = tmp_path_factory.mktemp('texts') / 'pairs.jsonl'
  lines = [
    {'query': f'a {word} kettle', 'positive_text': f'the {word} vase'}
    for word in WORDS
  ]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


@pytest.fixture(scope='module')
def hf_folder(tmp_path_factory):
  return qwen3_vl_folder.save(tmp_path_factory.mktemp('hf') / 'model')


def read_log(workdir):
  lines = (workdir / 'embed' / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_folder_gets_adapters_that_peft_reads(
  hf_folder, pairs, tmp_path, capsys
):
  values = {
    **SETTINGS,
    'embedder': hf_folder,
    'pairs': pairs,
    'dev_pairs': pairs,
    'data.negatives': 1,
    'lora.dropout': 0.25,
    'loss.query_query': True,
    'loss.document_document': True,
    'loss.widths': '(16, 64)',
    'evaluate_every': 1,
    # The base is cut over two devices.
    'mesh.fsdp': 2,
  }
  assert command.run_stage('embed', tmp_path, values) == 0
  config = convert.read_config(hf_folder)
  adapters, lora = peft_format.load_adapters(
    tmp_path / embed.ADAPTER_FOLDER, config.decoder
  )
  assert (lora.rank, lora.alpha, lora.dropout) == (4, 32.0, 0.25)
  # Every B has left zero; nothing else is trained.
  flat = [x['lora_b'] for x in adapters['layers'].values()]
  assert all(np.abs(x).max() > 1e-4 for x in flat)
  trained = sum(x.size for x in jax.tree.leaves(adapters))
  assert f'{trained:,} trained' in capsys.readouterr().out
  rows = read_log(tmp_path)
  assert {'loss', 'batch_r1'} <= rows[0].keys()
  assert any(0 <= row.get('r1', -1) <= 1 and row['r10'] == 1 for row in rows)
  about = json.loads(
    (tmp_path / embed.ADAPTER_FOLDER / peft_format.CONFIG).read_text()
  )
  assert about['base_model_name_or_path'] == str(hf_folder)

  # Merged, they are a folder like any other.
  merged = tmp_path / 'merged'
  code, printed, error = command.run_vhop(
    capsys,
    'convert',
    hf_folder,
    f'--out={merged}',
    f'--adapters={tmp_path / embed.ADAPTER_FOLDER}',
  )
  assert code == 0, error
  assert 'wrote' in printed
  items = [encoder.Item(text='a red kettle')]
  plain, other = (
    encoder.load_encoder(path).embed(items, batch_size=1)
    for path in (hf_folder, merged)
  )
  assert np.abs(plain - other).max() > 1e-4


def make_rows(hf_folder, pairs, **changes):
  """Returns the rows of documents and the model of a folder."""
  config = command.load_config(
    'embed', None, {**SETTINGS, 'embedder': str(hf_folder), **changes}
  )
  model = embed._open_model(config, dict.fromkeys(embed.SIDES, True))
  return config, model, embedding_pairs.read_pairs(pairs)


def test_rows_are_embedded_as_the_encoder_does(hf_folder, pairs):
  _, model, found = make_rows(hf_folder, pairs)
  rows = model.rows['document']
  contents = [pair.positive for pair in found]
  arrays = jax.tree.map(
    jnp.asarray, rows.stack([rows.prepare(content) for content in contents])
  )
  ours = jax.jit(lambda params: rows.embed(model.module, params, arrays, None))(
    model.params
  )
  # New adapters change nothing, and padding does not, either.
  expected = rows.encoder.embed([content.read() for content in contents])
  np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_gradients_are_those_of_the_batch_at_once(hf_folder, pairs):
  """With dropout, and layers computed anew, both passes draw the same."""
  config, model, found = make_rows(
    hf_folder, pairs, **{'lora.dropout': 0.5, 'backbone.remat': 'full'}
  )
  rng = np.random.default_rng(0)
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: (
      np.float32(0.1 * rng.normal(size=x.shape))
      if path[-1].key == 'lora_b'
      else x
    ),
    model.params,
  )
  sides = tuple(model.rows[side] for side in embed.SIDES)
  batch = next(
    embedding_pairs.make_batches(
      found,
      prepare=tuple(rows.prepare for rows in sides),
      stack=tuple(rows.stack for rows in sides),
      seed=0,
      batch_size=4,
      negatives=0,
      threads=1,
    )
  )
  batch = jax.tree.map(jnp.asarray, batch)
  key = jax.random.key(5)
  loss = embed._make_loss(model, chunk=2, **config.loss)
  run = jax.jit(
    lambda adapters: loss(join(adapters), batch, key, 0)[0],
  )

  def join(adapters):
    return {
      **params,
      'text': jax.tree.map(
        lambda old, new: old if new is None else new,
        params['text'],
        adapters,
        is_leaf=lambda x: x is None,
      ),
    }

  adapters = jax.tree_util.tree_map_with_path(
    lambda path, x: x if path[-1].key.startswith('lora_') else None,
    params['text'],
  )
  gradients = jax.tree.leaves(jax.jit(jax.grad(run))(adapters))

  def direct(adapters):
    rngs = jax.random.split(key, 2)
    parts = {}
    for side, side_rng in zip(embed.SIDES, rngs, strict=True):
      arrays = embed._take_side(batch, side)
      parts[side] = jnp.stack(
        [
          model.rows[side].embed(
            model.module,
            join(adapters),
            {name: x[i::2] for name, x in arrays.items()},
            chunk_rng,
          )
          for i, chunk_rng in enumerate(jax.random.split(side_rng, 2))
        ],
        axis=1,
      ).reshape(4, -1)
    return embed.contrastive.compute_embedding_loss(
      *parts.values(),
      inverse_temperature=1 / config.loss.temperature,
      candidate_mask=batch['candidate_mask'],
    )

  expected = jax.tree.leaves(jax.jit(jax.grad(direct))(adapters))
  scale = max(np.abs(x).max() for x in expected)
  assert scale > 1e-2
  for a, b in zip(gradients, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, scale))


def test_tiny_learns_its_pairs_and_stands_alone(
  embedder_file, embedder, pairs, tmp_path
):
  values = {
    **SETTINGS,
    'embedder': embedder_file,
    'pairs': pairs,
    'dev_pairs': pairs,
    # No negative is spared: sparing those that win would lower the loss, too.
    'loss.margin': 2.0,
    # Without them the fourth query would not tell its document from them.
    'data.negatives': 2,
    'embed_steps': 40,
    'evaluate_every': 40,
  }
  assert command.run_stage('embed', tmp_path, values) == 0
  rows = read_log(tmp_path)
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert losses[-1] < 0.1 * losses[0]
  assert rows[-1]['r1'] == 1
  made = pretrained.load_embedder(tmp_path / embed.RESULT_FILE)
  tower = micro.find_equal(made.params['tower'], embedder.params['tower'])
  assert all(jax.tree.leaves(tower))
  layers = micro.find_equal(made.params['text'], embedder.params['text'])
  layers = layers['decoder']['layers']
  # Merged: no adapter is left, and only what had one has changed.
  assert set(layers['query']) == {'kernel'}
  assert not layers['query']['kernel']
  assert layers['out']['kernel'] and layers['mlp_norm']['scale']


def test_whole_text_encoder_is_trained_without_adapters(
  embedder_file, embedder, texts, tmp_path
):
  values = {
    **SETTINGS,
    'embedder': embedder_file,
    'pairs': texts,
    'lora.rank': 0,
    'embed_steps': 1,
  }
  assert command.run_stage('embed', tmp_path, values) == 0
  made = pretrained.load_embedder(tmp_path / embed.RESULT_FILE)
  same = micro.find_equal(made.params, embedder.params)
  assert not same['text']['decoder']['layers']['out']['kernel']
  assert all(jax.tree.leaves(same['tower']))


@pytest.mark.parametrize(
  ('values', 'words'),
  [
    ({'chunk': 3}, 'chunk=3 does not divide a batch of 4'),
    ({'loss.widths': '(99,)'}, 'no width above 32'),
    ({'data.max_tokens': 5}, 'raise data.max_tokens'),
  ],
)
def test_settings_that_do_not_fit_are_said(
  embedder_file, texts, tmp_path, capsys, values, words
):
  values = {
    **SETTINGS, 'embedder': embedder_file, 'pairs': texts, **values,
  }  # fmt: skip
  assert command.run_stage('embed', tmp_path, values) != 0
  command.assert_one_line_error(capsys, words)


def test_folder_without_adapters_is_refused(hf_folder, pairs, tmp_path, capsys):
  values = {**SETTINGS, 'embedder': hf_folder, 'pairs': pairs, 'lora.rank': 0}
  assert command.run_stage('embed', tmp_path, values) == 2
  command.assert_one_line_error(capsys, 'lora.rank=0: a Hugging Face folder')


def test_picture_too_large_for_a_row_is_named(hf_folder, pairs):
  # 40 x 48 px are enlarged to 64 x 96, which is 24 patches of 16 px.
  _, model, found = make_rows(hf_folder, pairs, **{'data.max_pixels': 4096})
  with pytest.raises(errors.DataError, match='0.png has 24 patches, more than'):
    model.rows['document'].prepare(found[0].positive)


def test_tiny_knows_no_instruction(embedder):
  rows = item_rows.TinyRows(embedder, 64, has_pictures=False)
  content = embedding_pairs.Content('a', instruction='Find it')
  with pytest.raises(errors.DataError, match="instruction='Find it' is for"):
    rows.prepare(content)

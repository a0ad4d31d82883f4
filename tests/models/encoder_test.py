"""Compares embeddings with the reference recipe, alone and in batches."""

import dataclasses
import json
import lzma
import pathlib
import shutil

import numpy as np
from PIL import Image
import pytest
import tokenizers

from tests.models import qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.models import convert, encoder, hf_config, image_processor
from vhop_jax.models import sequence as sequence_lib
from vhop_jax.models import tokenizer as tokenizer_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

TOKENIZER = pathlib.Path(__file__).parent / 'qwen3_tokenizer.json.xz'
MAX_PIXELS = 20_000
INSTRUCTION = 'Find the picture that answers the question'
TEXTS = (
  'a red kettle left of a piggy bank',
  'Ünïcödé, 数字 123\n\nand  two lines',
  'x',
)


def draw(height, width, seed):
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 255, (4, 5, 3)).astype(np.uint8)
  image = Image.fromarray(small).resize((width, height))
  return np.asarray(image)


ITEMS = (
  encoder.Item(text=TEXTS[0]),
  encoder.Item(pixels=draw(64, 96, 0)),
  encoder.Item(text=TEXTS[1], pixels=draw(150, 70, 1)),
  encoder.Item(text=TEXTS[2]),
  encoder.Item(pixels=draw(40, 200, 2)),
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Returns a folder with the real tokenizer."""
  out = tmp_path_factory.mktemp('hf') / 'model'
  config = hf_config.SIZES['tiny']
  convert.save_folder(out, qwen3_vl_folder.make_params(config), config)
  (out / 'tokenizer.json').write_bytes(lzma.decompress(TOKENIZER.read_bytes()))
  (out / image_processor.FILE).write_text(
    json.dumps(
      {
        # As in the released folders; the recipe does not read them.
        'size': {'shortest_edge': 65_536, 'longest_edge': 16_777_216},
        'patch_size': 16,
        'image_mean': [0.5] * 3,
        'image_std': [0.5] * 3,
      }
    )
  )
  return out


@pytest.fixture(scope='module')
def model(folder):
  return encoder.load_encoder(folder, max_pixels=MAX_PIXELS)


@pytest.fixture(scope='module')
def embedded(model):
  return model.embed(ITEMS, instruction=INSTRUCTION, batch_size=2)


@pytest.fixture(scope='module')
def ending_folder(folder, tmp_path_factory):
  """Returns the folder with a tokenizer that ends every text by a token."""
  out = tmp_path_factory.mktemp('ending') / 'model'
  shutil.copytree(folder, out)
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
  end = tokenizer_lib.PAD
  tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
    single=f'$A {end}', special_tokens=[(end, tokenizer.token_to_id(end))]
  )
  tokenizer.save(str(out / 'tokenizer.json'))
  return out


@pytest.mark.parity
@pytest.mark.parametrize('name', ['folder', 'ending_folder'])
def test_embeddings_are_the_reference_recipe(name, request):
  folder = request.getfixturevalue(name)
  model = encoder.load_encoder(folder, max_pixels=MAX_PIXELS)
  embedded = model.embed(ITEMS, instruction=INSTRUCTION, batch_size=2)
  torch = pytest.importorskip('torch', reason='needs the extra [parity]')
  transformers = pytest.importorskip('transformers')
  reference = transformers.Qwen3VLModel.from_pretrained(folder).eval()
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_file=str(folder / 'tokenizer.json')
  )
  processor = transformers.Qwen2VLImageProcessorPil(
    patch_size=16,
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
    size={'shortest_edge': 4096, 'longest_edge': MAX_PIXELS},
  )
  for item, ours in zip(ITEMS, embedded, strict=True):
    content, images = '', {}
    if item.pixels is not None:
      images = processor(
        images=[Image.fromarray(item.pixels)], return_tensors='pt'
      )
      count = int(images['image_grid_thw'].prod()) // 4
      content = f'<|vision_start|>{"<|image_pad|>" * count}<|vision_end|>'
    # The chat template of the model with its prompt, written out. What the
    # tokenizer adds to that is its own affair.
    text = (
      f'<|im_start|>system\n{INSTRUCTION}.<|im_end|>\n'
      f'<|im_start|>user\n{content}{item.text}<|im_end|>\n'
      '<|im_start|>assistant\n'
    )
    tokens = torch.tensor([tokenizer(text)['input_ids']])
    if images:
      images['mm_token_type_ids'] = (tokens == 151655).int()
    with torch.no_grad():
      hidden = reference(
        input_ids=tokens, attention_mask=torch.ones_like(tokens), **images
      ).last_hidden_state[0, -1]
    expected = (hidden / hidden.norm()).numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_batches_and_order_change_nothing(model, embedded):
  np.testing.assert_allclose(np.linalg.norm(embedded, axis=1), 1, atol=1e-5)
  for number in (0, 2, 4):
    alone = model.embed([ITEMS[number]], instruction=INSTRUCTION, batch_size=1)
    np.testing.assert_allclose(alone[0], embedded[number], atol=1e-5)
  turned = model.embed(ITEMS[::-1], instruction=INSTRUCTION, batch_size=2)
  np.testing.assert_allclose(turned[::-1], embedded, atol=1e-5)
  # No two items are alike, so that an exchange would show.
  distances = np.linalg.norm(embedded[:, None] - embedded[None], axis=2)
  assert distances[~np.eye(len(ITEMS), dtype=bool)].min() > 1e-3


def test_width_is_a_prefix_normalised_again(model, embedded):
  part = model.embed(
    ITEMS[:1], instruction=INSTRUCTION, width=16, batch_size=2
  )[0]
  expected = embedded[0, :16] / np.linalg.norm(embedded[0, :16])
  np.testing.assert_allclose(part, expected, atol=1e-6)


def test_instruction_and_tail_change_embedding_and_fingerprint(folder, model):
  (plain,) = model.embed(ITEMS[:1], batch_size=2)
  (other,) = model.embed(ITEMS[:1], instruction=INSTRUCTION, batch_size=2)
  assert np.abs(plain - other).max() > 1e-3
  (blank,) = model.embed(ITEMS[:1], instruction=' ', batch_size=2)
  np.testing.assert_allclose(blank, plain, atol=1e-6)
  prints = {model.fingerprint}
  for tail in sequence_lib.TAILS:
    changed = encoder.load_encoder(folder, tail=tail, max_pixels=MAX_PIXELS)
    prints.add(changed.fingerprint)
    (embedded,) = changed.embed(ITEMS[:1], batch_size=2)
    is_default = tail == 'prompt'  # This tokenizer adds nothing.
    assert np.allclose(embedded, plain, atol=1e-5) == is_default
  assert len(prints) == len(sequence_lib.TAILS)


def test_pixel_limits_are_the_recipes_unless_asked_for(folder, model):
  read = lambda **limits: encoder.load_encoder(folder, **limits)  # noqa: E731
  recipe, own = read(), read(min_pixels=0, max_pixels=0)
  assert recipe.processor == image_processor.ImageProcessor()
  limits = own.processor.min_pixels, own.processor.max_pixels
  assert limits == (65_536, 16_777_216)
  assert len({model.fingerprint, recipe.fingerprint, own.fingerprint}) == 3


def test_patches_of_another_size_are_refused(folder, tmp_path):
  out = tmp_path / 'model'
  shutil.copytree(folder, out)
  settings = json.loads((out / image_processor.FILE).read_text())
  settings['patch_size'] = 14
  (out / image_processor.FILE).write_text(json.dumps(settings))
  with pytest.raises(errors.DataError, match='patch_size is 14 .* and 16 in'):
    encoder.load_encoder(out)


def test_tokenizer_with_another_end_is_refused(ending_folder, tmp_path):
  out = tmp_path / 'model'
  shutil.copytree(ending_folder, out)
  path = out / 'tokenizer.json'
  content = json.loads(path.read_text(encoding='utf-8'))
  tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
  end = tokenizer_lib.IM_END
  tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
    single=f'$A {end}', special_tokens=[(end, tokenizer.token_to_id(end))]
  )
  tokenizer.save(str(path))
  with pytest.raises(errors.DataError, match=r'<\|im_end\|>.* give tail'):
    encoder.load_encoder(out)


def test_rows_are_padded_to_few_sizes_and_batches_to_few_rows(
  model, monkeypatch
):
  read = []

  def record(_, rows, patches, tokens):
    read.append((len(rows), patches, tokens))
    return rows

  monkeypatch.setattr(encoder.Encoder, 'stack', record)
  monkeypatch.setattr(
    encoder, '_embed', lambda _, params, rows: np.ones((len(rows), model.width))
  )
  # 64 x 64 px are 16 patches, 128 x 128 are 64, and 128 x 160 are over the
  # limit and shrink to 96 x 128, which are 48. All are padded to 64, which are
  # 16 tokens; the words around them are padded to 32.
  pixels = [draw(64, 64, 0)] * 5 + [draw(128, 128, 0), draw(128, 160, 0)]
  model.embed([encoder.Item(pixels=p) for p in pixels], batch_size=4)
  # Seven rows: the second batch is filled up to four.
  assert read == [(4, 64, 48), (4, 64, 48)]
  read.clear()
  model.embed([ITEMS[0]], batch_size=8)
  assert [count for count, _, _ in read] == [1]
  # Attention needs the square of a row: few long rows at once.
  read.clear()
  monkeypatch.setattr(encoder, '_MAX_BATCH_LENGTH', 128)
  model.embed([encoder.Item(pixels=draw(64, 64, 0))] * 5, batch_size=4)
  assert [count for count, _, _ in read] == [2, 2, 1]  # 2 x 64 patches.


@pytest.mark.parametrize(
  ('count', 'most', 'size'),
  [
    # 64 x 1, 2, 3, 4, 6; the limit is taken where it is enough and less.
    (1, 10_000, 64),
    (65, 10_000, 128),
    (129, 10_000, 192),
    (200, 10_000, 256),
    (257, 10_000, 384),
    (7_000, 7_200, 7_200),
    (7_204, 7_200, 8_192),
  ],
)
def test_bucket(count, most, size):
  assert encoder._find_bucket(count, 64, most) == size


def test_text_that_looks_like_a_slot_stays_text(model):
  rows = [model.maker.item(t, None) for t in ('{text} {image}', 'a')]
  decode = lambda row: model.maker.tokenizer.decode(  # noqa: E731
    row.tokens[0].tolist(), skip_special_tokens=False
  )
  assert decode(rows[0]) == decode(rows[1]).replace(
    'user\na', 'user\n{text} {image}'
  )


@pytest.mark.parametrize(
  ('call', 'error', 'words'),
  [
    (
      lambda m: m.embed([ITEMS[0], encoder.Item(text=' ')]),
      errors.DataError,
      'item 1: neither text',
    ),
    (
      lambda m: m.embed([encoder.Item(pixels=draw(1, 400, 0))]),
      errors.DataError,
      'item 0: .*400 x 1 px',
    ),
    (
      lambda m: dataclasses.replace(m, max_tokens=20).embed(ITEMS[:1]),
      errors.DataError,
      'more than 20',
    ),
    (
      lambda m: m.embed(ITEMS[:1], width=65),
      errors.UsageError,
      'width=65: embeddings of this model have 64',
    ),
    (
      lambda m: m.embed(ITEMS[:1], batch_size=0),
      errors.UsageError,
      'batch_size=0',
    ),
  ],
)
def test_what_cannot_be_embedded_is_said(model, call, error, words):
  with pytest.raises(error, match=words):
    call(model)


def test_unknown_tail_is_refused(folder):
  with pytest.raises(errors.UsageError, match="tail='none': choose prompt_end"):
    encoder.load_encoder(folder, tail='none')

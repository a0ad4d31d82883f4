"""Compares embeddings with the reference recipe, alone and in batches."""

import dataclasses
import json
import lzma
import pathlib

import numpy as np
from PIL import Image
import pytest

from tests.models import qwen3_vl_folder
from vhop_jax import errors
from vhop_jax.models import convert, encoder, hf_config, image_processor
from vhop_jax.models import sequence as sequence_lib

pytestmark = pytest.mark.usefixtures('quick_compile')

TOKENIZER = pathlib.Path(__file__).parent / 'qwen3_tokenizer.json.xz'
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
        'size': {'shortest_edge': 4096, 'longest_edge': 20_000},
        'patch_size': 16,
        'image_mean': [0.5] * 3,
        'image_std': [0.5] * 3,
      }
    )
  )
  return out


@pytest.fixture(scope='module')
def model(folder):
  return encoder.load_encoder(folder)


@pytest.fixture(scope='module')
def embedded(model):
  return model.embed(ITEMS, instruction=INSTRUCTION, batch_size=2)


@pytest.mark.parity
def test_embeddings_are_the_reference_recipe(folder, embedded):
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
    size={'shortest_edge': 4096, 'longest_edge': 20_000},
  )
  for item, ours in zip(ITEMS, embedded, strict=True):
    content, images = '', {}
    if item.pixels is not None:
      images = processor(
        images=[Image.fromarray(item.pixels)], return_tensors='pt'
      )
      count = int(images['image_grid_thw'].prod()) // 4
      content = f'<|vision_start|>{"<|image_pad|>" * count}<|vision_end|>'
    # The chat template of the model, written out.
    text = (
      f'<|im_start|>system\n{INSTRUCTION}.<|im_end|>\n'
      f'<|im_start|>user\n{content}{item.text}<|im_end|>\n'
      '<|im_start|>assistant\n<|endoftext|>'
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
  prints = {model.fingerprint}
  for tail in sequence_lib.TAILS:
    changed = encoder.load_encoder(folder, tail=tail)
    prints.add(changed.fingerprint)
    (embedded,) = changed.embed(ITEMS[:1], batch_size=2)
    is_default = tail == 'prompt_end'
    assert np.allclose(embedded, plain, atol=1e-5) == is_default
  # That of the default is the template's own.
  assert len(prints) == len(sequence_lib.TAILS)


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
    (lambda m: m.embed([encoder.Item()]), errors.DataError, 'neither text'),
    (
      lambda m: m.embed([encoder.Item(pixels=draw(1, 400, 0))]),
      errors.DataError,
      '400 x 1 px',
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

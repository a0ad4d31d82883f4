import numpy as np
import pytest

from vhop_jax.worlds.assets import texts


def test_words_are_distinct_and_of_one_form():
  assert len(set(texts.WORDS)) == len(texts.WORDS) > 9000
  assert all(
    word[1] in 'AEIOU' and word[3] in 'AEIOU' and len(word) == 4
    for word in texts.WORDS
  )
  assert 'NAZI' not in texts.WORDS


@pytest.mark.parametrize('font', texts.FONTS)
def test_a_text_fills_its_label_in_every_font(font):
  ink = texts.draw_text('MOKA', font, aspect=1.9)
  assert ink.shape[1] == round(1.9 * ink.shape[0])
  rows, columns = np.nonzero(ink > 128)
  assert np.ptp(rows) > 0.7 * ink.shape[0]
  assert np.ptp(columns) > 0.8 * ink.shape[1]


def test_fonts_and_words_look_different():
  drawn = [
    texts.draw_text(word, font, aspect=2.0)
    for word in ('MOKA', 'MOKE')
    for font in texts.FONTS
  ]
  for i, one in enumerate(drawn):
    for other in drawn[i + 1 :]:
      assert np.abs(one.astype(int) - other).mean() > 5

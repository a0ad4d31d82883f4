import pytest

from vhop_jax import errors


def raise_error(error):
  raise error


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (errors.UsageError('level L9\nis unknown'), 2),
    (errors.DataError('level L9\nis unknown'), 1),
  ],
)
def test_user_errors_are_one_line_and_an_exit_code(error, code, capsys):
  assert errors.run_entry_point(lambda: raise_error(error)) == code
  captured = capsys.readouterr()
  assert captured.err == 'error: level L9 is unknown\n'
  assert captured.out == ''


def test_details_have_a_line_each(capsys):
  error = errors.DataError('two are\nmissing', ['first\none', 'second'])
  assert str(error) == 'two are\nmissing\nfirst\none\nsecond'
  assert errors.run_entry_point(lambda: raise_error(error)) == 1
  assert capsys.readouterr().err == (
    'error: two are missing\n  first one\n  second\n'
  )


def test_ctrl_c_has_no_traceback(capsys):
  code = errors.run_entry_point(lambda: raise_error(KeyboardInterrupt()))
  assert code == errors.INTERRUPTED_EXIT_CODE
  assert capsys.readouterr().err == 'error: interrupted\n'


def test_bugs_pass_through():
  with pytest.raises(ZeroDivisionError):
    errors.run_entry_point(lambda: 1 / 0)


def test_success_is_zero():
  assert errors.run_entry_point(lambda: 'anything') == 0

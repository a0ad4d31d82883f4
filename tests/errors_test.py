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


def test_ctrl_c_has_no_traceback(capsys):
  code = errors.run_entry_point(lambda: raise_error(KeyboardInterrupt()))
  assert code == errors.INTERRUPTED_EXIT_CODE
  assert capsys.readouterr().err == 'error: interrupted\n'


def test_bugs_pass_through():
  with pytest.raises(ZeroDivisionError):
    errors.run_entry_point(lambda: 1 / 0)


def test_success_is_zero():
  assert errors.run_entry_point(lambda: 'anything') == 0

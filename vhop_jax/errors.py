"""Names the errors a user can cause and how an entry point reports them."""

from collections.abc import Callable, Sequence
import sys
from typing import ClassVar

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, what a shell expects.


class VhopError(Exception):
  """Is an error the user can mend.

  Attributes:
    message: what is wrong, where, and what to do, in one line.
    details: every single thing that is wrong, a line each, where there are
      several.
  """

  exit_code: ClassVar[int] = 1

  def __init__(self, message: str, details: Sequence[str] = ()):
    super().__init__('\n'.join((message, *details)))
    self.message = message
    self.details = tuple(details)


class UsageError(VhopError):
  """Says that the command line or the config is wrong."""

  exit_code: ClassVar[int] = 2


class DataError(VhopError):
  """Says that a file, a world or a checkpoint is wrong."""

  exit_code: ClassVar[int] = 1


class Interrupted(VhopError):
  """Says that a signal stopped the program and how to go on."""

  exit_code: ClassVar[int] = INTERRUPTED_EXIT_CODE


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
  """Refuses a setting that is none of its choices.

  Args:
    name: of the setting, as it stands in a config.
    value: what it was set to.
    choices: what it may be.

  Raises:
    UsageError: it is something else.
  """
  if value not in choices:
    raise UsageError(f'{name}={value!r}: choose {", ".join(choices)}')


def print_error(message: str, details: Sequence[str] = ()) -> None:
  """Prints one line `error: ...` on stderr, then one for each detail.

  Args:
    message: what went wrong; line breaks in it become spaces.
    details: likewise; indented.
  """
  for start, text in (('error: ', message), *(('  ', d) for d in details)):
    print(start + ' '.join(text.split()), file=sys.stderr, flush=True)


def run_entry_point(function: Callable[[], object]) -> int:
  """Runs an entry point and turns the user's errors into an exit code.

  Args:
    function: the program's body. Whatever it returns is ignored; a program
      that fails raises a `VhopError`.

  Returns:
    The exit code: 0, the error's own, or 130 after Ctrl-C. Other exceptions
    are bugs and pass through with their traceback.
  """
  try:
    function()
  except VhopError as error:
    print_error(error.message, error.details)
    return error.exit_code
  except KeyboardInterrupt:
    print_error('interrupted')
    return INTERRUPTED_EXIT_CODE
  return 0

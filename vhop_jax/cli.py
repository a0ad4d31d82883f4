"""Runs the command `vhop`: each subcommand is a function with typed flags."""

from collections.abc import Callable, Sequence
import contextlib
import functools
import io
import pathlib
import sys
from typing import Annotated, Any

import tyro

from vhop_jax import errors
from vhop_jax.worlds import splits
from vhop_jax.worlds import verify as verify_lib
from vhop_jax.worlds import world as world_lib

MAX_BREACHES_SHOWN = 50

Folder = Annotated[pathlib.Path, tyro.conf.Positional]
Folders = Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
# The list of names is the table's, so this help is no docstring.
Names = Annotated[
  tuple[str, ...],
  tyro.conf.arg(
    help='names or shell patterns of splits, with spaces or commas between'
    f' them. There are {splits.describe_splits()}.'
  ),
]


def build(
  out: pathlib.Path,
  level: str = 'L4',
  families: int = 50,
  seed: int = 0,
  resolution: int = 96,
  hops: int = 3,
  prompt: str = 'precise',
  pack: str = 'procedural',
  with_chains: bool = True,
  workers: int | None = None,
  overwrite: bool = False,
) -> None:
  """Builds a world of images and multi-hop queries.

  Args:
    out: folder of the world.
    level: difficulty, L1 to L4.
    families: start objects, each with two queries.
    seed: worlds of different seeds share no object.
    resolution: image width in pixels; the height is two thirds of it.
    hops: links from the query image to the answer, 2 to 5.
    prompt: precise (says relation and colour of each hop) or vague.
    pack: asset pack that the objects come from: procedural, household (after
      `make assets`), or meshes:FOLDER for your own models.
    with_chains: store the gold chains; without them a query has its answers
      alone, as reinforcement learning reads them.
    workers: processes; all cores if not given.
    overwrite: replace another world in the folder.
  """
  spec = world_lib.Spec(
    level=level,  # type: ignore[arg-type]
    families=families,
    seed=seed,
    resolution=resolution,
    hops=hops,
    prompt=prompt,
    pack=pack,
    with_chains=with_chains,
  )
  # These load TFDS and the renderer, which the other commands do not need.
  from vhop_jax.worlds import builder, render_pool

  with render_pool.RenderPool(workers) as pool:
    result = builder.build_world(spec, out, overwrite=overwrite, pool=pool)
  if not result.built:
    print(f'{out} holds this world already ({result.images} images): skipped')
    return
  print(
    f'{out}: {result.images} images and {result.queries} queries'
    f' ({result.dropped} dropped by the verifier) in {result.secs:.1f} s,'
    f' {result.images / result.secs:.0f} images/s'
  )


def build_splits(
  out: pathlib.Path,
  names: Names = ('sft_*', 'il_*', 'rl_*', 'dev', 'test_*'),
  resolution: int = 96,
  workers: int | None = None,
) -> None:
  """Builds named worlds of the benchmark, each in its own folder.

  A prefix says in what a world differs from level L4, three hops and precise
  prompts. Worlds for reinforcement learning (`rl_`) have no gold chains.

  Args:
    out: folder of the worlds' folders.
    names: names or shell patterns of splits.
    resolution: image width in pixels; the height is two thirds of it.
    workers: processes; all cores if not given.
  """
  specs = splits.choose_splits(','.join(names), resolution=resolution)
  from vhop_jax.worlds import builder, render_pool

  with render_pool.RenderPool(workers) as pool:
    for number, (name, spec) in enumerate(specs.items()):
      result = builder.build_world(spec, out / name, pool=pool)
      print(
        f'world {number + 1}/{len(specs)} {out / name}: {result.images} images,'
        f' {result.queries} queries, '
        + (
          f'{result.images / result.secs:.0f} images/s'
          if result.built
          else 'there already'
        ),
        flush=True,
      )


def verify(folder: Folder) -> None:
  """Checks every rule of a world; lists breaches and exits 1 if there are any.

  Args:
    folder: a world.
  """
  breaches = verify_lib.verify_folder(folder)
  _report(breaches, f'{folder} breaks')
  world = world_lib.load_world(folder)
  chains = '' if world.spec.with_chains else ' (answers only, no chains)'
  print(
    f'{folder}: {len(world.images)} images, {len(world.queries)} queries'
    f'{chains}, all rules hold'
  )


def disjoint(folders: Folders) -> None:
  """Checks that worlds share no object and no scene.

  Args:
    folders: two worlds or more.
  """
  _report(verify_lib.verify_disjoint(folders), 'the worlds break')
  print(f'{len(folders)} worlds share no object and no scene')


def view(
  folder: Folder, out: pathlib.Path | None = None, families: int | None = None
) -> None:
  """Writes one static HTML page to look through a world.

  Args:
    folder: a world.
    out: the page; `view.html` inside the world if not given.
    families: how many families to show; all if not given.
  """
  from vhop_jax.worlds import view as view_lib

  print(view_lib.write_page(folder, out, families=families))


def route(
  world: Folder,
  *,
  out: pathlib.Path,
  query: str | None = None,
  router: str = 'tiny',
  embedder: str = 'tiny',
  budget: int = 16,
) -> None:
  """Answers one query of a world and draws what was decided.

  Args:
    world: a world with gold chains.
    out: the picture, a PNG file.
    query: id of the query; the first if not given.
    router: tiny for the one in the package, or a router.safetensors.
    embedder: that the router was trained from: tiny, or a parameter file.
    budget: decisions it may take.
  """
  from vhop_jax.evaluate import demo

  print(
    demo.answer_query(
      world,
      out,
      query_id=query,
      router_name=router,
      embedder_name=embedder,
      budget=budget,
    )
  )


def report(folders: Folders, *, out: pathlib.Path) -> None:
  """Writes one report on experiments, beside the paper's numbers.

  Args:
    folders: of experiments; everything below them is searched.
    out: folder of report.md and report.html.
  """
  from vhop_jax.evaluate import report as report_lib

  print(report_lib.write_experiments(folders, out).html)


# A group of commands, or one command by itself.
COMMANDS: dict[str, dict[str, Callable[..., None]] | Callable[..., None]] = {
  'worlds': {
    'build': build,
    'build-splits': build_splits,
    'verify': verify,
    'disjoint': disjoint,
    'view': view,
  },
  'route': route,
  'report': report,
}


def main(arguments: Sequence[str] | None = None) -> None:
  """Runs the command line and exits with its code."""
  arguments = sys.argv[1:] if arguments is None else list(arguments)
  sys.exit(errors.run_entry_point(lambda: _run(arguments)))


def _run(arguments: Sequence[str]) -> None:
  """Parses a command line and calls its function.

  Raises:
    UsageError: the command line is wrong.
  """
  known = ', '.join(
    f'{group} {name}'.strip()
    for group, names in COMMANDS.items()
    for name in (names if isinstance(names, dict) else [''])
  )
  if not arguments or arguments[0] in ('-h', '--help'):
    print(f'Commands: {known}.\nHelp on one: vhop COMMAND --help')
    return
  group, *rest = arguments
  if group not in COMMANDS:
    raise errors.UsageError(f'no command {group!r}; there are: {known}')
  chosen = COMMANDS[group]
  messages = io.StringIO()
  try:
    with contextlib.redirect_stderr(messages):
      if isinstance(chosen, dict):
        call = tyro.extras.subcommand_cli_from_dict(
          {name: _defer(function) for name, function in chosen.items()},
          prog=f'vhop {group}',
          args=rest,
        )
      else:
        call = tyro.cli(_defer(chosen), prog=f'vhop {group}', args=rest)
  except SystemExit as stop:
    if not stop.code:
      return
    raise errors.UsageError(_shorten(messages.getvalue())) from None
  call()


def _defer(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
  """Makes parsing return the call instead of making it."""

  @functools.wraps(function)
  def deferred(*args: Any, **kwargs: Any) -> Callable[[], None]:
    return functools.partial(function, *args, **kwargs)

  return deferred


def _shorten(message: str) -> str:
  """Returns what tyro says in a box as one line."""
  lines = [line.strip(' │─╭╮╰╯') for line in message.splitlines()]
  lines = [line for line in lines if line.strip('-')]
  # What follows these words repeats the help.
  helps = ('For full helptext', 'Argument helptext')
  ends = [i for i, line in enumerate(lines) if line.startswith(helps)]
  title, *body = lines[: ends[0] if ends else None] or ['wrong command line']
  text = ' '.join(body).rstrip('.')
  start = '' if text.startswith(title) else f'{title}: '
  return f'{start}{text}; see `--help`'


def _report(breaches: Sequence[verify_lib.Breach], subject: str) -> None:
  """Prints breaches and raises if there are any."""
  if not breaches:
    return
  for breach in breaches[:MAX_BREACHES_SHOWN]:
    print(breach)
  if len(breaches) > MAX_BREACHES_SHOWN:
    print(f'... and {len(breaches) - MAX_BREACHES_SHOWN} more')
  raise errors.DataError(
    f'{subject} {len(breaches)} rule(s), listed above; build again with'
    ' another seed, or with --overwrite if files were changed'
  )


if __name__ == '__main__':
  main()

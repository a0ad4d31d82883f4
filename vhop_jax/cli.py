"""Runs the command `vhop`: each subcommand is a function with typed flags."""

from collections.abc import Callable, Sequence
import contextlib
import functools
import inspect
import io
import pathlib
import sys
from typing import Annotated, Any

import tyro

from vhop_jax import errors
from vhop_jax.worlds import disjoint as disjoint_lib
from vhop_jax.worlds import splits
from vhop_jax.worlds import verify as verify_lib
from vhop_jax.worlds import world as world_lib

MAX_BREACHES_SHOWN = 50

Folder = Annotated[pathlib.Path, tyro.conf.Positional]
Folders = Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
# The list of names is the table's, so this help is no docstring.
Split = Annotated[
  str,
  tyro.conf.arg(
    help='names or shell patterns of worlds of the benchmark, with commas or'
    ' spaces between them. A prefix says in what a world differs from level'
    ' L4, three hops and precise prompts; worlds for reinforcement learning'
    f' (rl_) have no gold chains. There are {splits.describe_splits()}. Groups'
    f' of them: {", ".join(splits.GROUPS)}.'
  ),
]


def build(
  out: pathlib.Path,
  split: Split = '',
  level: str = 'L4',
  families: int = 50,
  seed: int = 0,
  resolution: int = 96,
  hops: int = 3,
  prompt: str = 'precise',
  wording: str = 'standard',
  pack: str = 'procedural',
  with_chains: bool = True,
  relations: str = 'sides',
  foreground: bool = False,
  clutter: int = 0,
  variation: str = 'standard',
  prints: str = 'all',
  workers: int | None = None,
  overwrite: bool = False,
) -> None:
  """Builds worlds of images and multi-hop queries.

  Either one world, as the flags say, or those of the benchmark that `--split`
  names. Worlds that are there already are left as they are.

  Args:
    out: folder of the world; with --split the folder of the worlds' folders.
    split: names of worlds of the benchmark, and groups of them.
    level: difficulty, L1 to L7.
    families: start objects, each with two queries.
    seed: worlds of different seeds share no object.
    resolution: image width in pixels; the height is two thirds of it.
    hops: links from the query image to the answer, 2 to 5.
    prompt: precise (says relation and colour of each hop) or vague.
    wording: standard, or rephrased for sentences that no model is trained on.
    pack: asset pack that the objects come from: procedural, household (after
      `make assets`), or meshes:FOLDER for your own models.
    with_chains: store the gold chains; without them a query has its answers
      alone, as reinforcement learning reads them.
    relations: how two objects stand to each other: sides (left and right of),
      depth (in front of, behind) or height (on top of, below).
    foreground: put a small object that is in no other image in front of each.
    clutter: objects to put around in each image, 0 to 4.
    variation: standard, or strong for more light and camera changes.
    prints: which logos (L6) or words (L7) may be printed: all, or train or test
      for halves that share none.
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
    wording=wording,
    pack=pack,
    with_chains=with_chains,
    relations=relations,
    foreground=foreground,
    clutter=clutter,
    variation=variation,
    prints=prints,
  )
  specs = {out: spec}
  if split:
    _check_nothing_else(spec)
    named = splits.choose_splits(split, resolution=resolution)
    specs = {out / name: spec for name, spec in named.items()}
  # These load TFDS and the renderer, which the other commands do not need.
  from vhop_jax.worlds import builder, geometry, render_pool

  # What cannot be built is said before anything is.
  for name in {spec.pack for spec in specs.values()}:
    geometry.get_pack(name)

  results = []
  with render_pool.RenderPool(workers) as pool:
    for number, (folder, spec) in enumerate(specs.items(), start=1):
      result = builder.build_world(spec, folder, overwrite=overwrite, pool=pool)
      rate = (
        f'{result.images / result.secs:.0f} images/s'
        if result.built
        else 'there already: skipped'
      )
      print(
        f'world {number}/{len(specs)} {folder}: {result.images} images,'
        f' {result.queries} queries ({result.dropped} dropped by the'
        f' verifier), {rate}',
        flush=True,
      )
      results.append(result)
  if split:
    print(splits.summarize(list(specs.values()), results))


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
  """Checks that no two worlds share an object, a scene or a background.

  Nor may a world of rephrased wording share a clause of its instructions with
  one of standard wording; standard worlds do share theirs, which is counted.

  Args:
    folders: two worlds or more.
  """
  comparison = disjoint_lib.compare_worlds(folders)
  _report(comparison.breaches, 'the worlds break')
  print(
    f'{len(folders)} worlds share no object, no scene, no background and no'
    f' wording that was to be new ({comparison.describe()})'
  )


def view(
  folders: Folders,
  out: pathlib.Path | None = None,
  families: int | None = None,
) -> None:
  """Writes static HTML to look through worlds, and prints the page to open.

  Args:
    folders: one world, or several to see on one page.
    out: folder of the page; `view` inside the first world if not given.
    families: how many families of each world to show; all if not given.
  """
  from vhop_jax.worlds import view as view_lib

  print(view_lib.write_page(folders, out, families=families))


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


def convert(
  source: Folder,
  *,
  out: pathlib.Path,
  dtype: str = '',
  adapters: pathlib.Path | None = None,
  max_shard_gb: float = 5.0,
) -> None:
  """Reads a Hugging Face folder of a Qwen3-VL model, checks it, writes another.

  The tokenizer and the settings of the image processor go along.

  Args:
    source: the folder, with config.json and safetensors files.
    out: folder to write; it must not exist.
    dtype: of the written weights: float32, bfloat16 or float16; that of the
      source if not given.
    adapters: a folder of PEFT's adapters, which are merged into the weights.
    max_shard_gb: size of the largest file, in 10^9 bytes.
  """
  from vhop_jax.models import convert as convert_lib

  print(
    convert_lib.convert_folder(
      source,
      out,
      dtype=dtype,
      adapters=adapters,
      max_shard_bytes=max_shard_gb * 10**9,
    )
  )


def embed(
  source: Annotated[str, tyro.conf.Positional],
  *,
  out: pathlib.Path,
  model: str = 'tiny',
  texts: bool = False,
  instruction: str = '',
  width: int = 0,
  batch_size: int = 8,
  dtype: str = 'float32',
  tail: str = '',
  min_pixels: int | None = None,
  max_pixels: int | None = None,
  skip_errors: bool = False,
) -> None:
  """Embeds pictures or texts; an interrupted run goes on.

  Args:
    source: a folder of pictures, a file with a path in each line, or - for
      lines of standard input.
    out: an .npy file (the ids beside it in .ids.txt) or a .parquet file.
    model: tiny, a parameter file, or a Hugging Face folder of Qwen3-VL.
    texts: the lines are texts, or an id, a tab and a text.
    instruction: what the embeddings are for (folders alone).
    width: keep so many numbers of each embedding, normalised again (folders).
    batch_size: items that are read at once.
    dtype: float32 or bfloat16 (folders alone).
    tail: what ends each sequence: prompt_end, prompt or end (folders alone); if
      not given what the folder's tokenizer says.
    min_pixels: enlarge smaller pictures; 0 is the folder's own limit, and if
      not given the recipe's, 4096 (folders alone).
    max_pixels: shrink larger pictures; likewise, 1843200 (folders alone).
    skip_errors: list what cannot be embedded instead of stopping.
  """
  from vhop_jax.index import embed_files, embed_models

  embed_files.check_out(out)
  lines = embed_files.split_lines(sys.stdin.read()) if source == '-' else None
  entries = embed_files.list_entries(source, lines, as_texts=texts)
  opened = embed_models.open_model(
    model,
    instruction=instruction,
    width=width,
    batch_size=batch_size,
    dtype=dtype,
    tail=tail,
    min_pixels=min_pixels,
    max_pixels=max_pixels,
  )
  print(
    embed_files.embed_entries(entries, out, opened, skip_errors=skip_errors)
  )


# A group of commands, or one command by itself.
COMMANDS: dict[str, dict[str, Callable[..., None]] | Callable[..., None]] = {
  'worlds': {
    'build': build,
    'verify': verify,
    'disjoint': disjoint,
    'view': view,
  },
  'convert': convert,
  'embed': embed,
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


def _check_nothing_else(spec: world_lib.Spec) -> None:
  """Refuses flags that a split decides.

  Args:
    spec: made from the flags.

  Raises:
    UsageError: a flag is not at its default.
  """
  defaults = inspect.signature(build).parameters
  values = {**spec.to_json(), 'level': f'L{spec.level}'}
  given = [
    f'--{name.replace("_", "-")}'
    for name, value in values.items()
    if name in defaults
    and name != 'resolution'
    and value != defaults[name].default
  ]
  if given:
    raise errors.UsageError(
      f'--split decides what {", ".join(given)} would: leave out either'
    )


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

"""The command line.

Exit status: 0 success, 2 wrong input (one message, no traceback), 3 no gain with
``opera train --require-gain``, 1 failure, 130 interrupted.
"""

from __future__ import annotations

import opera.cli.start  # noqa: F401

# isort: split
import io
import logging
import os
import string
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from opera.cli.cache import cache
from opera.cli.compare import compare, report, review
from opera.cli.deploy import export, push
from opera.cli.evaluate import evaluate, search
from opera.cli.inspect import inspect
from opera.cli.options import is_main_process
from opera.cli.scoring import mine, pairs, score
from opera.cli.show import show
from opera.cli.train import quickstart, train
from opera.config.training import TrainSettings, flag_of
from opera.core.errors import InputError, OperaError, is_out_of_memory
from opera.core.processes import several_processes, signals_as_interrupt
from opera.core.registry import load_extensions
from opera.core.terminal import escape_newlines, printable, say, shortened

USAGE_ERROR: Any = typer.BadParameter.__base__
"""The class of all errors about arguments. typer exports only its subclass."""


def usage_message(error: Any) -> str:
    """Say which argument is wrong, and which help text explains it."""
    is_unknown = hasattr(error, "possibilities") and hasattr(error, "option_name")
    name = error.option_name.lstrip("-").replace("-", "_") if is_unknown else ""
    if name in TrainSettings.model_fields:
        return f"no such option: {error.option_name}; give it as --set {name}=VALUE"
    words = " ".join(error.format_message().split()).replace("Input should be", "must be")
    words = words.replace(". Did you mean", "; did you mean")
    command = "opera" if error.ctx is None else error.ctx.command_path
    return f"{words[:1].lower()}{words[1:].rstrip('.')}; see {command} --help"


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
COMMANDS: dict[str, dict[Callable[..., Any], str]] = {
    "Train": {
        train: "my-beir-folder --model minilm --out run",
        compare: "my-beir-folder --model minilm --methods ft,sp:k=0.5,dp --seeds 0,1,2 --out grid",
        quickstart: "--out quickstart",
    },
    "Inspect and evaluate": {
        inspect: "my-beir-folder --model minilm",
        evaluate: "run",
        search: 'run "does garlic lower cholesterol" --top 5',
        show: "run",
        review: "run",
        report: "grid --out report.html",
    },
    "Prepare data": {
        pairs: "my-documents --out weak.csv",
        mine: "my-beir-folder --model minilm --range 10:100 --out mined.jsonl",
        score: "my-beir-folder --model minilm --out pairs.parquet",
    },
    "Deploy": {
        export: "run --onnx --int8 --out exported",
        push: "run your-name/your-model",
    },
    "Maintain": {cache: "--clear"},
}
"""The commands by group of ``opera --help``, each with an example."""


def _print_version(requested: bool) -> None:
    if requested:
        say(f"opera {version('opera-retrieval')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version and exit", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Adapt a retriever to your own data (OPERA, COLM 2026)."""


for group, commands in COMMANDS.items():
    for command, example in commands.items():
        app.command(
            help=" ".join((command.__doc__ or "").split()),
            epilog=f"Example: opera {command.__name__} {example}",
            rich_help_panel=group,
        )(command)


def main() -> NoReturn:
    """Run the command line; this is what ``opera`` calls."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # else a terminal that cannot show λ would end hours of training
            stream.reconfigure(errors="backslashreplace")
    if not is_main_process():
        sys.stdout = io.StringIO()  # all processes have the same results, and one prints them
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_TqdmHandler()])
    logging.getLogger("opera").setLevel(logging.INFO if is_main_process() else logging.WARNING)
    # processes that libraries start must not import modules from the current folder
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        if not {"--help", "--version"} & set(sys.argv):
            load_extensions()
        # Process 1 of a container ignores SIGTERM unless it has a handler. Several processes have
        # none, since a process with a handler could survive the signal and wait for the rest.
        with nullcontext() if several_processes() else signals_as_interrupt():
            status = app(sys.argv[1:] or ["--help"], prog_name="opera", standalone_mode=False)
    except KeyboardInterrupt:  # while no command was working
        say("\nopera: interrupted", file=sys.stderr)
        sys.exit(130)
    except OperaError as error:
        _fail(*error.lines, status=error.exit_status)
    except USAGE_ERROR as error:
        _fail(usage_message(error), status=InputError.exit_status)
    except Exception as error:
        _fail_unforeseen(error)
    finally:
        _leave_processes()
    sys.exit(status or 0)


def _fail_unforeseen(error: Exception) -> NoReturn:
    """Report an error that no command handles, and exit."""
    if is_out_of_memory(error):
        advice = "close other programs, raise a limit such as ulimit -v, or use less data"
        _fail(f"out of memory; {advice}", status=1)
    if isinstance(error, OSError):
        path = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{path}{(error.strerror or str(error)).lower()}", status=1)
    if several_processes() and any(word in str(error) for word in LOST_PROCESS):
        say(
            f"opera, process {os.environ['RANK']}: another process ended; see its message",
            file=sys.stderr,
        )
    else:  # a bug; say() escapes control characters in the message, Python would not
        say("".join(traceback.format_exception(error)).rstrip(), file=sys.stderr)
    sys.exit(1)


def _fail(*message: str, status: int) -> NoReturn:
    """Print an error message, given as lines, and exit."""
    who = "opera" if is_main_process() else f"opera, process {os.environ['RANK']}"
    lines = [shortened(escape_newlines(_by_option(line)), LONGEST_LINE) for line in message]
    say(f"{who}: error: " + "\n".join(lines), file=sys.stderr)
    sys.exit(status)


def _by_option(line: str) -> str:
    """Replace a setting's name at the start of a line by its option, if the user passed that."""
    options = {word.partition("=")[0] for word in sys.argv}
    name = line[: len(line) - len(line.lstrip(string.ascii_letters + "_"))]
    is_file = line.startswith(f"{name}.")  # such as decisions.csv
    is_setting = name in TrainSettings.model_fields and flag_of(name) in options and not is_file
    return line.replace(name, flag_of(name), 1) if is_setting else line


LOST_PROCESS = ("Connection closed by peer", "Connection reset", "Broken pipe", "NCCL")
"""Texts of torch.distributed's errors after another process ended."""
LONGEST_LINE = 3000
"""Most characters in a line of a message."""


def _leave_processes() -> None:
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


class _TqdmHandler(logging.Handler):
    """Prints log lines above the progress bars, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm.auto import tqdm

        if isinstance(record.args, tuple):  # a line break in a value must not forge a log line
            record.args = tuple(
                escape_newlines(value) if isinstance(value, str | Path) else value
                for value in record.args
            )
        library = record.name.partition(".")[0]
        line = (
            self.format(record)
            if library == "opera"
            else f"warning: {library}: {escape_newlines(record.getMessage())}"
        )
        tqdm.write(printable(line), file=sys.stderr)

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

from opera.cli.compare import compare, report
from opera.cli.deploy import export, push
from opera.cli.evaluate import evaluate, search
from opera.cli.inspect import inspect
from opera.cli.options import is_main_process, several_processes
from opera.cli.quickstart import quickstart
from opera.cli.review import review
from opera.cli.scoring import mine, pairs, score
from opera.cli.train import train
from opera.config.training import FLAGS, TrainSettings
from opera.core.errors import OperaError, is_out_of_memory
from opera.core.processes import signals_as_interrupt
from opera.core.registry import load_extensions
from opera.core.terminal import one_line, printable, say, shortened

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments; it exports only the class below this one."""


def usage_message(error: Any) -> str:
    """Say which argument is wrong, and where to look."""
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
    "Look": {
        inspect: "my-beir-folder --model minilm",
        evaluate: "run",
        search: 'run "does garlic lower cholesterol" --top 5',
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
}
"""The commands in the groups of ``opera --help``, each with an example."""


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
    """Adapt a dense retriever to your own data (OPERA, COLM 2026)."""


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
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that knows no λ must not end hours of training
    if not is_main_process():
        sys.stdout = io.StringIO()  # all have the same results, and one prints them
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_TqdmHandler()])
    logging.getLogger("opera").setLevel(logging.INFO if is_main_process() else logging.WARNING)
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # no process that a library starts imports what the current folder holds
    )
    try:
        if not {"--help", "--version"} & set(sys.argv):
            load_extensions()
        # process 1 of a container is sent SIGTERM in vain if it has no handler; of several
        # processes, none may outlive the signal while it waits for the others
        with nullcontext() if several_processes() else signals_as_interrupt():
            status = app(sys.argv[1:] or ["--help"], prog_name="opera", standalone_mode=False)
    except KeyboardInterrupt:  # outside of a command's work
        say("\nopera: interrupted", file=sys.stderr)
        sys.exit(130)
    except OperaError as error:
        _fail(*error.lines, status=error.exit_status)
    except USAGE_ERROR as error:
        _fail(usage_message(error), status=WRONG_USAGE)
    except Exception as error:
        _fail_unforeseen(error)
    finally:
        _leave_processes()
    sys.exit(status or 0)


def _fail_unforeseen(error: Exception) -> NoReturn:
    """End with what no command foresees."""
    if is_out_of_memory(error):
        advice = (
            "close other programs, raise a limit such as ulimit -v, or give the command less to "
            "hold at once"
        )
        _fail(f"out of memory; {advice}", status=1)
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{place}{(error.strerror or str(error)).lower()}", status=1)
    if several_processes() and any(word in str(error) for word in LOST_PROCESS):
        ended = "another process ended; see its message"
        say(f"opera, process {os.environ['RANK']}: {ended}", file=sys.stderr)
    else:  # what no code expected; Python would print a user's text in its message as it is
        say("".join(traceback.format_exception(error)).rstrip(), file=sys.stderr)
    sys.exit(1)


def _fail(*message: str, status: int) -> NoReturn:
    """End with one message, given line by line."""
    who = "opera" if is_main_process() else f"opera, process {os.environ['RANK']}"
    lines = [shortened(one_line(_by_option(line)), LONGEST_LINE) for line in message]
    say(f"{who}: error: " + "\n".join(lines), file=sys.stderr)
    sys.exit(status)


def _by_option(line: str) -> str:
    """Name the setting that a line starts with by its option, if that was given."""
    options = {word.partition("=")[0] for word in sys.argv}
    name = line[: len(line) - len(line.lstrip(string.ascii_letters + "_"))]
    is_setting = FLAGS.get(name) in options and not line.startswith(f"{name}.")  # decisions.csv
    return line.replace(name, FLAGS[name], 1) if is_setting else line


LOST_PROCESS = ("Connection closed by peer", "Connection reset", "Broken pipe", "NCCL")
"""What errors of torch.distributed say when another process has ended."""
LONGEST_LINE = 3000
"""Characters of a line of a message."""
WRONG_USAGE = 2
"""Exit status of arguments that a command does not take."""


def _leave_processes() -> None:
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


class _TqdmHandler(logging.Handler):
    """Prints log lines above the progress bars, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm.auto import tqdm

        if isinstance(record.args, tuple):  # a value that holds a line break must not forge a line
            record.args = tuple(
                one_line(value) if isinstance(value, str | Path) else value for value in record.args
            )
        library = record.name.partition(".")[0]
        line = (
            self.format(record)
            if library == "opera"
            else f"warning: {library}: {one_line(record.getMessage())}"
        )
        tqdm.write(printable(line), file=sys.stderr)

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
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from opera.cli.compare import compare, report
from opera.cli.deploy import export, push
from opera.cli.evaluate import evaluate, search
from opera.cli.inspect import inspect
from opera.cli.options import (
    as_given,
    check_launcher,
    is_main_process,
    several_processes,
    with_options,
)
from opera.cli.quickstart import quickstart
from opera.cli.scoring import mine, pairs, score
from opera.cli.train import train
from opera.config.training import TrainSettings
from opera.core.errors import OperaError, is_out_of_memory
from opera.core.processes import signals_as_interrupt
from opera.core.registry import load_extensions
from opera.core.settings import RULES
from opera.core.terminal import Unfailing, one_line, printable, say, shortened, shown

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for wrong arguments; it exports only the class below this one."""

TYPER_RULES = {
    "a valid integer": RULES["int_type"],
    "a valid number": RULES["float_type"],
    "Unable to parse input string as an integer, exceeded maximum size": (
        f"must be {RULES['int_parsing_size']}"
    ),
}


def explain_usage(error: Any, arguments: Sequence[str]) -> str:
    """Say which argument is wrong, the rule, its value, and where to look."""
    from opera.config.recipe import MOVED

    hint = f"see {'opera' if error.ctx is None else error.ctx.command_path} --help"
    options: Sequence[str] = getattr(getattr(error, "param", None), "opts", ())
    value = _value_of(options, arguments)
    if value is not None and hasattr(error, "message") and error.message:
        return f"{options[0]}: {_rule(error.message)}, got {shown(value)}; {hint}"
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if hasattr(error, "possibilities") and name in MOVED:
        return f"{error.option_name}: {MOVED[name]}"
    if hasattr(error, "possibilities") and name in TrainSettings.model_fields:
        return f"no such option: {error.option_name}; give it as --set {name}=VALUE"
    message = (
        " ".join(error.format_message().split())
        .replace(". Did you mean", "; did you mean")
        .rstrip(".")
    )
    return f"{message[:1].lower()}{message[1:]}; {hint}"


def _rule(message: str) -> str:
    """Typer's rule, which is pydantic's, in the words of our settings."""
    words = message.replace("Input should be ", "must be ").split(", unable")[0].rstrip(".")
    for kind, rule in TYPER_RULES.items():
        words = words.replace(kind, rule)
    return words


def _value_of(options: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value that an option was given last."""
    value = None
    for at, word in enumerate(arguments):
        name, equals, rest = word.partition("=")
        if name in options:
            value = rest if equals else next(iter(arguments[at + 1 :]), None)
    return value


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
EXAMPLES: dict[Callable[..., Any], str] = {
    train: "my-beir-folder --model minilm --out run",
    evaluate: "run",
    score: "my-beir-folder --model minilm --out pairs.parquet",
    mine: "my-beir-folder --model minilm --range 10:100 --out mined.jsonl",
    pairs: "my-documents --out weak.csv",
    search: 'run "does garlic lower cholesterol" --top 5',
    export: "run --onnx --int8 --out exported",
    push: "run your-name/your-model",
    compare: "my-beir-folder --model minilm --methods ft,sp:k=0.5,dp --seeds 0,1,2 --out grid",
    report: "grid --out report.html",
    inspect: "my-beir-folder --model minilm",
    quickstart: "--out quickstart",
}


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


for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: opera {command.__name__} {example}")(with_options(command))


def main() -> None:
    """Run the command line; this is what ``opera`` calls."""
    sys.stdout, sys.stderr = (
        stream or io.StringIO() for stream in (sys.stdout, sys.stderr)
    )  # None where it is closed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that knows no λ must not end hours of training
    with redirect_stderr(Unfailing(sys.stderr)):
        _run()


def _run() -> NoReturn:
    if not is_main_process():
        sys.stdout = io.StringIO()  # all have the same results, and one prints them
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_TqdmHandler()])
    logging.getLogger("opera").setLevel(logging.INFO if is_main_process() else logging.WARNING)
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # no process that a library starts imports what the current folder holds
    )
    try:
        check_launcher()
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
        _fail(explain_usage(error, sys.argv[1:]), status=WRONG_USAGE)
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
    lines = [
        shortened(one_line(as_given(line, sys.argv)), LONGEST_LINE) for line in message
    ]  # whatever was put in it
    say(f"{who}: error: " + "\n".join(lines), file=sys.stderr)
    sys.exit(status)


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

"""The command line. Each command is a thin layer over the function of the same name."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from cyclopts import CycloptsError, UnknownOptionError

from pahs.cli import cluster, exporting, look, reproduction, research, restore, weights
from pahs.cli.options import app, say
from pahs.errors import PahsError
from pahs.runtime.malloc import keep_memory
from pahs.web.command import serve

__all__ = ["app", "cluster", "exporting", "look", "main", "reproduction", "research", "restore", "weights"]

app.command(serve)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong use or unusable input, 1 anything else, 130 interrupted."""
    _stop_politely()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names that are not text in this locale
    keep_memory()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check(arguments)
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except UnknownOptionError as error:
        file = next((a for a in arguments if a.startswith("-") and Path(a).exists()), None)
        hint = "see `pahs --help`" if file is None else f"the file of that name is ./{file}"
        say(f"error: {' '.join(str(error).split())} ({hint})")
        return 2
    except CycloptsError as error:
        say(f"error: {' '.join(str(error).split())} (see `pahs --help`)")
        return 2
    except PahsError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt as stop:
        say(f"interrupted: {' '.join(map(str, stop.args)) or 'nothing was written for the file in work'}")
        return 130
    return 0


def _stop_politely() -> None:
    """Stop on a polite kill, and on a closed terminal, as on Ctrl-C: whatever is half-written gets removed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Under nohup the closed terminal is to be ignored.
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _check(arguments: Sequence[str]) -> None:
    """Refuse arguments that would be taken for the current folder or an option."""
    for argument in arguments:
        if not argument or (argument.startswith("-") and argument.endswith("=")):
            raise PahsError(f"{argument or 'an argument'} is empty; name a file")
        if argument == "-":
            raise PahsError("-: videos are not read from or written to pipes; name a file")

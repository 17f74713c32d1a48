"""The command line. Each command is a thin layer over the function of the same name."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from pahs.cli import research, restore, weights
from pahs.cli.options import app, say
from pahs.errors import PahsError
from pahs.runtime.malloc import keep_memory

__all__ = ["app", "main", "research", "restore", "weights"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong use or unusable input, 1 anything else, 130 interrupted."""
    # Stop on a polite kill as on Ctrl-C: whatever is half-written gets removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep_memory()
    try:
        app(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
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

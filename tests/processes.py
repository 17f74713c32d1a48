"""Processes that tests start."""

from __future__ import annotations

import os


def uncovered(**changes: str) -> dict[str, str]:
    """An environment in which a Python does not measure its coverage.

    Measuring takes locks of its own, which an interrupt can leave taken, and a kill damages what it writes.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")} | changes

"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from .hunt import hunt
from .kills import kill_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=0, help="damaged files to try")
    parser.add_argument("--kills", type=int, default=0, help="jobs to kill at random moments")
    parser.add_argument("--seconds", type=float, help="stop after so long, however many were tried")
    parser.add_argument("--run", type=int, default=0, help="another number gives other damage and moments")
    parser.add_argument("--only", type=int, help="try this one damaged file alone")
    parser.add_argument("--keep", type=Path, help="write the files that met something wrong to this folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    chosen = parser.parse_args()
    start = time.monotonic()
    faults: list[str] = []
    if chosen.count or chosen.only is not None:
        found = hunt(chosen.count, chosen.run, chosen.jobs, chosen.seconds, chosen.keep, chosen.only)
        faults += found.faults
        ends = ", ".join(f"{number} {end}" for end, number in found.ends.most_common())
        print(f"{found.ends.total()} damaged files: {ends or 'none'}; {time.monotonic() - start:.0f} s")
    if chosen.kills:
        killed = kill_many(chosen.kills, chosen.run, chosen.seconds)
        faults += killed.faults
        ends = ", ".join(f"{number} {end}" for end, number in killed.ends.most_common())
        print(f"{killed.ends.total()} kills: {ends}; {time.monotonic() - start:.0f} s")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


sys.exit(main())

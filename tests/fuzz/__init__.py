"""Damaged files and sudden ends: a program that looks for tracebacks, crashes, hangs and leftovers.

python -m tests.fuzz --count 5000      damaged videos and image folders
python -m tests.fuzz --kills 100       jobs that are killed at random moments
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the clips of the tests
os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder writes pages about itself

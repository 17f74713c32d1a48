"""Install with uv and with pipx by the very lines of the README, and use what they installed; `make test-tools`.

    python tests/tools.py build/tools

Both come from PyPI into an environment of their own, and put nothing into the user's home.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"^    ((?:uv tool|pipx) install .*)$", re.MULTILINE)


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder / "tools", with_pip=True)
    programs = folder / "tools" / "bin"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", "uv", "pipx"], check=True)
    lines = LINE.findall((ROOT / "README.md").read_text("utf-8"))
    for number, line in enumerate(lines):
        place = folder / str(number)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            **{name: str(place / "home") for name in ("UV_TOOL_DIR", "PIPX_HOME")},
            **{name: str(place / "bin") for name in ("UV_TOOL_BIN_DIR", "PIPX_BIN_DIR")},
            **dict.fromkeys(("UV_PYTHON", "PIPX_DEFAULT_PYTHON"), sys.executable),
        }
        if "PIP_FIND_LINKS" in os.environ:  # wheels that are at hand; uv has a name of its own for them
            environment["UV_FIND_LINKS"] = os.environ["PIP_FIND_LINKS"]
        program, *options = shlex.split(line)
        print(line, flush=True)
        subprocess.run([programs / program, *options], cwd=ROOT, env=environment, check=True)
        demo = ["demo", "--frames", "12", "-o", "demo"]
        subprocess.run([place / "bin" / "pahs", *demo], cwd=place, env=environment, check=True)
    print(f"{len(lines)} lines of the README work")
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())

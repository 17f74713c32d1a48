"""Install a wheel into an empty environment and use it, far from the source; `make test-wheel` runs this.

python tests/wheel.py dist build/wheel
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRAMES = 12
GAIN = 1.5
"""Decibels that the demonstration must gain with so few frames; weights that are not the bundled ones lose."""


class WheelError(Exception):
    """Something that a user of the wheel would meet."""


def run(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, in an empty folder, with nothing of this checkout in reach."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    clean["PYTHONNOUSERSITE"] = "1"
    place = environment.parent / "empty"
    place.mkdir(exist_ok=True)
    return subprocess.run(
        [str(environment / "bin" / words[0]), *words[1:]],
        cwd=place,
        env=clean,
        capture_output=True,
        text=True,
    )


def expect(done: subprocess.CompletedProcess[str], code: int, text: str) -> str:
    said = done.stdout + done.stderr
    if done.returncode != code or text not in said:
        raise WheelError(f"{' '.join(map(str, done.args))}: {done.returncode} instead of {code}\n{said}")
    return said


def check(wheel: Path, environment: Path) -> None:
    started = time.perf_counter()

    def note(what: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {what}", flush=True)

    shutil.rmtree(environment.parent, ignore_errors=True)
    venv.create(environment, with_pip=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    expect(
        run(environment, "python", *install, "-c", str(ROOT / "constraints.txt"), str(wheel.absolute())),
        0,
        "",
    )
    note(f"installed {wheel.name}")
    expect(run(environment, "python", "-m", "pip", "check"), 0, "")
    version = wheel.name.split("-")[1]
    expect(run(environment, "pahs", "--version"), 0, f"pahs {version}")
    home = expect(run(environment, "python", "-c", "import pahs; print(pahs.__file__)"), 0, "site-packages")
    if str(ROOT / "src") in home:
        raise WheelError(f"the package is that of the checkout: {home}")
    # An extra that is missing is one line, not a traceback.
    recipe = str(ROOT / "recipes" / "debug.toml")
    for command, extra in ((("serve",), "web"), (("train", recipe), "train")):
        said = expect(run(environment, "pahs", *command), 2, f"pahs[{extra}]")
        if len(said.strip().splitlines()) > 1:
            raise WheelError(f"pahs {command[0]} says more than a line:\n{said}")
    note("version, metadata and extras")
    said = expect(run(environment, "pahs", "demo", "--frames", str(FRAMES), "-o", "demo"), 0, "gain")
    gain = re.search(r"gain\s+\+?(-?[\d.]+) dB", said)
    if gain is None or float(gain[1]) < GAIN:
        raise WheelError(f"the demonstration does not gain {GAIN} dB:\n{said}")
    note(f"pahs demo gains {gain[1]} dB")


def main() -> int:
    wheels = sorted(Path(sys.argv[1]).glob("*.whl"))
    if len(wheels) != 1:
        print(f"{sys.argv[1]}: holds {len(wheels)} wheels; run `make dist`", file=sys.stderr)
        return 1
    try:
        check(wheels[0], Path(sys.argv[2]).absolute() / "environment")
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

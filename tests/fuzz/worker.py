"""One process that deblurs what it is told, without changing the pictures, and says how each job ended."""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import traceback
from pathlib import Path

MEMORY = 8 << 30
"""Bytes of address space: what asks for more fails here instead of filling the machine."""


def main() -> None:
    from pahs import DeblurOptions, deblur, load
    from pahs.choices import EncodeOptions
    from pahs.errors import PahsError
    from pahs.progress import Advance

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    network = load("pahs-t", device="cpu", precision="fp32")
    options = DeblurOptions(strength=0, encode=EncodeOptions(preset="ultrafast"))
    print("ready", flush=True)
    for line in sys.stdin:
        advance = Advance()
        try:
            report = deblur(Path(json.loads(line)), None, options, network, advance)
            answer = ("done", str(report.dst), report.frames)
        except PahsError as error:
            text = str(error)
            late = advance.progress.done > 0
            answer = ("late" if late else "refused", text, text.count("\n"))
        except BaseException:
            answer = ("traceback", traceback.format_exc(), 0)
        print(json.dumps(answer), flush=True)


main()

"""The code of a Markdown page, block by block, with the marks that say which of it no test can run.

Marks are comments of their own before a block, which readers of the page do not see:

    <!-- not run: REASON -->             the next block is parsed only
    <!-- run as: COMMAND -->             the next block's command runs shortened: the words that it shows, and some more
    <!-- from here not run: REASON -->   the same for the rest of the page
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = re.compile(r"<!-- (not run|run as|from here not run): (.+?) -->")
COMMAND = re.compile(r"(pahs|make|pip|uv|pipx|pytest|python|torchrun|podman|curl|\.) \S")


@dataclass(frozen=True)
class Block:
    """One piece of code on a page."""

    kind: str
    """The language of a fence; shell for indented commands."""
    text: str
    line: int
    reason: str | None = None
    """Why it is not run."""
    run_as: str | None = None

    def commands(self) -> list[str]:
        """The commands of a shell block, continued ones joined, without comments."""
        joined = re.sub(r"\\\n\s+", "", self.text)
        lines = (re.sub(r"\s+#.*", "", line) for line in joined.splitlines())
        return [line for line in lines if COMMAND.match(line)]


def blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    rest: str | None = None
    mark: tuple[str, str] | None = None
    at = 0
    while at < len(lines):
        start = at
        at += 1
        if found := MARK.fullmatch(lines[start]):
            if found[1].startswith("from"):
                rest = found[2]
            else:
                assert mark is None, f"line {at}: two marks for one block"
                mark = (found[1], found[2])
            continue
        if lines[start].startswith("```"):
            end = lines.index("```", at)
            kind, body, at = lines[start][3:], lines[at:end], end + 1
        elif lines[start].startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            kind, body = "shell", [line.removeprefix("    ") for line in lines[start:at]]
            if not any(COMMAND.match(line) for line in body):
                continue  # a diagram
        else:
            assert mark is None or not lines[start].strip(), f"line {at}: the mark is not before a block"
            continue
        about, words = mark or ("", "")
        reason = words if about == "not run" else None if about else rest
        mark = None
        yield Block(kind, "\n".join(body), start + 1, reason, words if about == "run as" else None)
    assert mark is None, "a mark without a block"

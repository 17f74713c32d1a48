"""The report's Markdown as one HTML file, with its pictures and videos inside."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; }
th { border-bottom: 2px solid #888; }
td.r, th.r { text-align: right; font-variant-numeric: tabular-nums; }
img, video { max-width: 100%; }
code { background: #f2f2f2; padding: 0 .2em; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
.confirmed { color: #1a7f37; } .refuted { color: #c0392b; } .open { color: #9a6700; }
"""
KINDS = {".png": "image/png", ".mp4": "video/mp4"}


def page(markdown: str, folder: Path, title: str) -> str:
    """A page that needs no other file; links to pictures and videos are read from `folder`."""
    body = "\n".join(_blocks(markdown, folder))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _blocks(markdown: str, folder: Path) -> Iterator[str]:
    """Headings, tables, lists and paragraphs: what our reports consist of."""
    for kind, group in groupby(markdown.splitlines(), _kind):
        lines = list(group)
        if kind == "heading":
            for line in lines:
                marks, _, text = line.partition(" ")
                yield f"<h{len(marks)}>{_inline(text, folder)}</h{len(marks)}>"
        elif kind == "table":
            yield from _table(lines, folder)
        elif kind == "list":
            yield "<ul>" + "".join(f"<li>{_inline(line[2:], folder)}</li>" for line in lines) + "</ul>"
        elif kind == "text":
            yield f"<p>{_inline(' '.join(lines), folder)}</p>"


def _kind(line: str) -> str:
    if not line.strip():
        return "empty"
    starts = {"#": "heading", "|": "table", "- ": "list"}
    return next((kind for start, kind in starts.items() if line.startswith(start)), "text")


def _table(lines: list[str], folder: Path) -> Iterator[str]:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    right = [cell.endswith(":") for cell in rows[1]]
    yield "<table>"
    for number, row in enumerate(rows):
        if number != 1:
            tag = "td" if number else "th"
            cells = (
                f"<{tag}{' class=r' if at_right else ''}>{_inline(cell, folder)}</{tag}>"
                for cell, at_right in zip(row, right, strict=True)
            )
            yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"


def _inline(text: str, folder: Path) -> str:
    """Pictures, videos, code, bold and italic; verdicts get their colour."""
    text = html.escape(text, quote=False)
    text = re.sub(r"!\[(.*?)\]\((.*?)\)", lambda m: _embedded(m[1], folder / m[2]), text)
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(.+?)\*\*", lambda m: f'<b class="{m[1].split()[0]}">{m[1]}</b>', text)
    return re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<i>\1</i>", text)


def _embedded(title: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{KINDS[path.suffix]};base64,{data}"
    if path.suffix == ".mp4":
        return f'<video src="{source}" controls loop muted></video>'
    return f'<img src="{source}" alt="{title}">'

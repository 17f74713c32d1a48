"""The report's Markdown as one HTML file, with its pictures and videos inside."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; }
th { border-bottom: 2px solid #888; }
td[style], th[style] { font-variant-numeric: tabular-nums; }
img, video { max-width: 100%; }
code { background: #f2f2f2; padding: 0 .2em; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
.confirmed { color: #1a7f37; } .refuted { color: #c0392b; } .open { color: #9a6700; }
"""
KINDS = {".png": "image/png", ".mp4": "video/mp4"}


def page(markdown: str, folder: Path, title: str) -> str:
    """A page that needs no other file; links to pictures and videos are read from `folder`."""
    from markdown_it import MarkdownIt  # which rich brings

    body = MarkdownIt("js-default").render(markdown)
    body = re.sub(r'<img src="(.*?)" alt="(.*?)">', lambda m: _embedded(m[2], folder / m[1]), body)
    body = re.sub(r"<strong>(\w+)", r'<strong class="\1">\1', body)  # verdicts get their colour
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}</body></html>\n"
    )


def _embedded(title: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{KINDS[path.suffix]};base64,{data}"
    if path.suffix == ".mp4":
        return f'<video src="{source}" controls loop muted></video>'
    return f'<img src="{source}" alt="{title}">'

"""Dataclasses from plain data (JSON, TOML), checked field by field.

Nothing is guessed: an unknown key, a value of the wrong type or outside its choices raises ValueError with a
message that names the key.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def at_least(least: int, config: object, *names: str, section: str = "") -> None:
    """Refuse values of a dataclass below `least`; a section's name and a dot go before theirs in the message."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ValueError(f"{section}{name} is {value}; it must be {least} or more")


def build(cls: type[T], data: Mapping[str, Any], where: str = "") -> T:
    """An instance of the dataclass `cls` from a mapping, nested dataclasses included."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"unknown key {where + key!r}; {hint}")
    values = {key: convert(hints[key], value, where + key) for key, value in data.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"{where.rstrip('.') or cls.__name__}: {error}") from None


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type `hint`, or ValueError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where} is {value!r}; choose one of {', '.join(map(str, arguments))}")
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        *others, last = (choice for choice in arguments if choice is not type(None))
        for choice in others:
            with suppress(ValueError):
                return convert(choice, value, where)
        return convert(last, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if len(arguments) != len(value):
            raise ValueError(f"{where} needs {len(arguments)} values, not {len(value)}")
        pairs = zip(arguments, value, strict=True)
        return tuple(convert(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))
    if is_dataclass(hint) and isinstance(value, Mapping):
        assert isinstance(hint, type)
        return build(hint, value, f"{where}.")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = hint if isinstance(hint, type) else object
    if not isinstance(value, plain) or (isinstance(value, bool) and plain in (int, float)):
        raise ValueError(f"{where} is {value!r}; it must be {getattr(hint, '__name__', hint)}")
    return value

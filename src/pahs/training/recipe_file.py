"""TOML into a `Recipe` and back; keys and types are checked against the dataclasses."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pahs import configs
from pahs.errors import PahsError
from pahs.networks import PRESETS
from pahs.training.recipe import ModelSection, Recipe

Table = Mapping[str, Any]
OWN = ("data.root", "data.workers", "data.footage.root", "validation.root")
"""Values that may differ from machine to machine: where the data lies, and how many processes read it."""


def load_recipe(path: str | os.PathLike[str], sets: Sequence[str] = ()) -> Recipe:
    """Read a recipe; each of `sets` is `section.key=value` and replaces what the file says."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PahsError(f"{path}: no such recipe; the ones that come with pahs are in recipes/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PahsError(f"{path}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise PahsError(f"{path}: not valid TOML: {error}") from error
    for text in sets:
        _set(table, text)
    try:
        return parse_recipe(table)
    except PahsError as error:
        raise PahsError(f"{path}: {error}") from error


def parse_recipe(table: Table) -> Recipe:
    """A recipe from TOML's tables; what they leave out has its default."""
    rest = {name: section for name, section in table.items() if name != "model"}
    try:
        return dataclasses.replace(configs.build(Recipe, rest), model=_model(table.get("model", {})))
    except ValueError as error:
        raise PahsError(str(error)) from None


def _model(table: Any) -> ModelSection:
    """[model.config] replaces values of the preset's configuration, whose class only the preset knows."""
    if not isinstance(table, Mapping):
        raise PahsError(f"model is {table!r}; it must be a section, [model]")
    section = configs.build(ModelSection, {k: v for k, v in table.items() if k != "config"}, "model.")
    if section.preset not in PRESETS:
        raise PahsError(f"model.preset is {section.preset!r}; choose one of {', '.join(PRESETS)}")
    preset = PRESETS[section.preset].config
    values = _merged(dataclasses.asdict(preset), table.get("config", {}), "model.config")
    return dataclasses.replace(section, config=configs.build(type(preset), values, "model.config."))


def to_toml(recipe: Recipe) -> str:
    """The recipe with every default written out; read again, it is the same recipe."""
    lines: list[str] = []
    for section in dataclasses.fields(recipe):
        _write(getattr(recipe, section.name), section.name, lines)
    return "\n".join(lines).strip() + "\n"


def common(recipe: Recipe) -> dict[str, Any]:
    """The values that all processes of a training must share, by dotted name: all but those of a machine."""
    values = _flat(tomllib.loads(to_toml(recipe)))
    return {name: value for name, value in values.items() if name not in OWN}


def _flat(table: Table, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def differences(old: Table, new: Table, prefix: str = "") -> list[str]:
    """Dotted names of the values that two recipes' tables do not share."""
    found: list[str] = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}")
    return found


def _set(table: dict[str, Any], text: str) -> None:
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise PahsError(f"--set {text}: write it as section.key=value, such as train.steps=100")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a string, so that paths and names need no quotes
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise PahsError(f"--set {text}: {key} is a value, not a section")
    table[keys[-1]] = parsed


def _merged(base: Table, top: Any, where: str) -> dict[str, Any]:
    if not isinstance(top, Mapping):
        raise PahsError(f"{where} is {top!r}; it must be a section, [{where}]")
    merged = dict(base)
    for key, value in top.items():
        below = base.get(key)
        merged[key] = _merged(below, value, f"{where}.{key}") if isinstance(below, Mapping) else value
    return merged


def _write(config: Any, where: str, lines: list[str]) -> None:
    lines += ["", f"[{where}]"]
    inner = []
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            inner.append((value, f"{where}.{item.name}"))
        elif value is not None:  # TOML has no null; what is left out is the default
            lines.append(f"{item.name} = {_literal(value)}")
    for value, name in inner:
        _write(value, name, lines)


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    # TOML writes texts and truths as JSON does, but not infinity.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)

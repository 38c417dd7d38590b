"""A sheet as a YAML file of ours, and as the report of what became of what."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from rlinf.config import ConfigErrors, load_mapping
from rlinf.config.experiment import Config
from rlinf.config.names import hints, leaves
from rlinf.config.problems import ConfigProblem
from rlinf_import.sheet import Setting, Sheet


def mapping(sheet: Sheet) -> dict[str, object]:
    """Return the settings as nested plain data, in the order of the schema."""
    nested: dict[str, object] = {}
    for key, setting in _ordered(sheet.settings).items():
        branch = nested
        *sections, name = key.split(".")
        for section in sections:
            below = branch.setdefault(section, {})
            assert isinstance(below, dict), f"{key} stands below a value"
            branch = below
        branch[name] = setting.value
    return nested


def page(sheet: Sheet) -> str:
    """Return a YAML file whose lines name the settings that they come from, and why a value is another one."""
    lines = [f"# From {sheet.peer}: {sheet.source.path.name}"]
    _write(mapping(sheet), sheet.settings, "", 0, lines)
    return "\n".join(lines) + "\n"


def report(sheet: Sheet) -> str:
    """Write the import's report: differences, ignored settings and why, open decisions, and the result of the check."""
    parts = [f"{len(sheet.settings)} keys from {sheet.source.path} ({sheet.peer})"]
    sections = {
        "Differs in meaning": sheet.differs,
        "Ignored": sheet.ignored,
        "To decide": [*sheet.decide, *sheet.source.remarks],
        "What `rlinf check` would report": [str(result).removeprefix("imported: ") for result in problems(sheet)],
    }
    for title, lines in sections.items():
        if lines:
            parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def problems(sheet: Sheet) -> list[ConfigProblem]:
    """Every mistake that is left in the configuration."""
    try:
        load_mapping(mapping(sheet), "imported")
    except ConfigErrors as errors:
        return errors.problems
    return []


def _ordered(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    order = {key: number for number, key in enumerate(leaves())}
    sections = {name: number for number, name in enumerate(hints(Config))}

    def rank(key: str) -> tuple[int, int, str]:
        known = next((order[name] for name in _upwards(key) if name in order), len(order))
        return sections.get(key.partition(".")[0], len(sections)), known, key

    return {key: settings[key] for key in sorted(settings, key=rank)}


def _upwards(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _write(
    branch: Mapping[str, object], settings: Mapping[str, Setting], prefix: str, depth: int, lines: list[str]
) -> None:
    for name, value in branch.items():
        key, indent = f"{prefix}{name}", "  " * depth
        if key in settings:
            comment = "; ".join(text for text in (settings[key].cause, settings[key].note) if text)
            lines.append(f"{indent}{name}: {_flow(value)}" + (f"  # {comment}" if comment else ""))
        elif isinstance(value, dict):
            lines.append(f"{indent}{name}:")
            _write(value, settings, f"{key}.", depth + 1, lines)


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.strip().removesuffix("...").strip()

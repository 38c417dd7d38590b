"""The rest of an account: settings that no rule has named, each with what became of it, by the table of names."""

from __future__ import annotations

from rlinf.config.defaults import schema_default
from rlinf.config.tree import Located
from rlinf_import.sheet import Sheet, pair, shown
from rlinf_import.written import Code, upwards

_OFF: tuple[object, ...] = (False, 0, -1, "none", "None", "null", "no", "")


def close(sheet: Sheet) -> None:
    """Account for every key that is still open; keys that have one reason in common share a line."""
    shared: dict[str, list[str]] = {}
    for key, located in list(sheet.open_leaves()):
        value = located.plain()
        if isinstance(value, Code) and not _has_no_equivalent(sheet, key):
            sheet.decide.append(f"{located.origin}: {key}: `{shown(value)}` is known only when the script runs")
        elif key.endswith("_target_"):
            shared.setdefault(f"a class of {sheet.peer}'s own", []).append(pair(key, value))
        elif value in (None, "", {}, []):
            shared.setdefault("nothing is set there", []).append(key)
        elif key in sheet.defaults and sheet.defaults[key] == value:
            shared.setdefault(f"equal to {sheet.peer}'s default", []).append(pair(key, value))
        else:
            _by_name(sheet, key, located, shared)
        sheet.named.add(key)
    for why, keys in shared.items():
        sheet.ignored.append(f"{sheet.source.path}: {', '.join(keys)}: {why}")


def _has_no_equivalent(sheet: Sheet, key: str) -> bool:
    return any(name in sheet.names and not sheet.names[name].keys for name in upwards(key))


def unaccounted(sheet: Sheet) -> list[str]:
    """Written keys that neither the file nor the report names: there must be none."""
    lines = [*sheet.ignored, *sheet.differs, *sheet.decide, *sheet.source.remarks]
    words = "\n".join([*(setting.cause for setting in sheet.settings.values()), *lines])
    return [key for key, _ in sheet.source.leaves() if key not in words and not _named_below(key, words)]


def _named_below(key: str, words: str) -> bool:
    """Whether a line names a section and, behind it, the rest of the key."""
    parts = key.split(".")
    return any(
        f"{'.'.join(parts[:count])}: " in line and all(part in line for part in parts[count:])
        for count in range(1, len(parts))
        for line in words.splitlines()
    )


def _by_name(sheet: Sheet, key: str, located: Located, shared: dict[str, list[str]]) -> None:
    value = located.plain()
    line = f"{located.origin}: {pair(key, value)}"
    read = any(key == used or key.startswith(f"{used}.") for used in sheet.used)
    result = next(((name, sheet.names[name]) for name in upwards(key) if name in sheet.names), None)
    if read and value in _OFF:
        shared.setdefault("off there, and nothing is set here", []).append(pair(key, value))
    elif result is None and any(name in sheet.source.referred for name in upwards(key)):
        shared.setdefault("a value that other keys of the file refer to", []).append(pair(key, value))
    elif result is None and read:
        shared.setdefault("read together with the other settings, and nothing follows from it", []).append(
            pair(key, value)
        )
    elif result is None:
        sheet.decide.append(f"{line}: nothing here is known of this key: a run here is without it")
    else:
        _by_meaning(sheet, key, located, result[0], shared)


def _by_meaning(sheet: Sheet, key: str, located: Located, name: str, shared: dict[str, list[str]]) -> None:
    meaning, value = sheet.names[name], located.plain()
    line = f"{located.origin}: {pair(key, value)}"
    if not meaning.keys:
        shared.setdefault(meaning.note, []).append(pair(key, value))
        return
    ours = meaning.keys[0]
    if value is False and not isinstance(_default(ours), bool):
        sheet.ignored.append(f"{line}: it is off, and so it is here ({ours})")
    elif isinstance(value, str) and _is_number(_default(ours)):
        sheet.decide.append(f"{line}: it is no number, and was not read: see {' or '.join(meaning.keys)}")
    elif key in sheet.used:
        sheet.ignored.append(f"{line}: with the other settings nothing is set by it ({' or '.join(meaning.keys)})")
    elif meaning.note or len(meaning.keys) > 1 or name != key or not _fits(value, ours):
        note = f" ({meaning.note})" if meaning.note else ""
        sheet.decide.append(f"{line}: see {' or '.join(meaning.keys)}{note}")
    elif ours not in sheet.settings:
        sheet.put(ours, value, key)
    else:
        sheet.ignored.append(f"{line}: {ours} is {shown(sheet.settings[ours].value)} already")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _default(ours: str) -> object:
    return None if ours.startswith("env.kwargs") else schema_default(ours)


def _fits(value: object, ours: str) -> bool:
    """Whether a value may be one of our key as it stands: switches are not numbers or words."""
    return not ours.startswith("env.kwargs.") and isinstance(value, bool) == isinstance(_default(ours), bool)

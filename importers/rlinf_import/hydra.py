"""A Hydra ``defaults`` list, as far as its files lie in the folder of the one that names them."""

from __future__ import annotations

from pathlib import Path

from rlinf.config.tree import Branch, Located, get, merge, put
from rlinf_import.written import Source, document


def read_yaml(path: Path) -> Source:
    """Read a YAML file of any vocabulary, with the files of a Hydra ``defaults`` list that lie in its folder."""
    remarks: list[str] = []
    tree = with_defaults(document(path), path, remarks)
    return Source(path, tree, remarks)


def with_defaults(tree: Branch, path: Path, remarks: list[str]) -> Branch:
    """Lay the tree over what its ``defaults`` name; files that are not there are remarked on.

    Read are ``group/name``, ``group/name@package`` and ``{group: name}``; ``_self_`` at the front lets the others
    win. Overrides of Hydra's own groups have no meaning here.
    """
    given = tree.pop("defaults", None)
    if given is None or not isinstance(given.value, list):
        return tree
    below: Branch = {}
    above: Branch = {}
    own_first = False
    for position, entry in enumerate(given.value):
        name, package = _entry(entry.plain())
        if name == "_self_":
            own_first = position == 0 and len(given.value) > 1
            continue
        if name is None:
            continue
        result = _file(path, name)
        if result is None:
            remarks.append(f"{given.origin}: the file of `{name}` is not here: what it sets is not read")
            continue
        layer = with_defaults(document(result), result, remarks)
        target = above if own_first else below
        merged = merge(target, _placed(layer, package, given))
        target.clear()
        target.update(merged)
    return merge(merge(below, tree), above)


def _entry(plain: object) -> tuple[str | None, str]:
    """(group/name, package) of one entry; (None, "") for one without meaning here."""
    if isinstance(plain, dict) and len(plain) == 1:
        group, chosen = next(iter(plain.items()))
        if str(group).startswith("override ") or chosen is None:
            return None, ""
        group, _, package = str(group).removeprefix("optional ").partition("@")
        return f"{group}/{chosen}", package or group.strip("/").replace("/", ".")
    if not isinstance(plain, str):
        return None, ""
    name, _, package = plain.partition("@")
    return name, package or ".".join(part for part in name.split("/")[:-1] if part not in ("..", "."))


def _file(path: Path, name: str) -> Path | None:
    folder = path.resolve().parent
    candidates = [folder / f"{name}.yaml", folder.parent / f"{name.removeprefix('../')}.yaml"]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _placed(layer: Branch, package: str, given: Located) -> Branch:
    if package in ("", "_global_", "_here_"):
        return layer
    placed: Branch = {}
    put(placed, package, Located({}, given.origin))
    holder = get(placed, package)
    assert holder is not None
    holder.value = layer
    return placed

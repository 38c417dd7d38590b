"""Read YAML with libyaml, which takes a tenth of the time of PyYAML's own parser."""

from __future__ import annotations

import yaml

_DEEPEST = 1000
"""Levels that libyaml is given: PyYAML descends without a limit there, and a process crashes at some ten thousand."""


def compose(text: str) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """Return the node of a document, None where there is none, and the loader that builds its values.

    Whatever libyaml refuses, PyYAML's own parser reads again: errors are the same with and without libyaml.

    :raises yaml.YAMLError: the text is no single YAML document.
    """
    quick = getattr(yaml, "CSafeLoader", None)
    # It takes tabs for blanks, which PyYAML refuses. Each level needs one of these signs, or a line that is indented
    # further: a thousand such lines are half a megabyte.
    if quick is not None and "\t" not in text and sum(map(text.count, "[{-?")) < _DEEPEST:
        try:
            loader = quick(text)
            return loader, loader.get_single_node()
        except (yaml.YAMLError, UnicodeError):
            pass
    own = yaml.SafeLoader(text)
    return own, own.get_single_node()


def read_yaml(text: str) -> object:
    """Return the plain value of a document.

    :raises yaml.YAMLError: the text is no single YAML document of plain values.
    """
    loader, node = compose(text)
    return None if node is None else loader.construct_document(node)

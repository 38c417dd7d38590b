"""YAML by libyaml: the values, lines and errors of PyYAML's own parser."""

from __future__ import annotations

import pytest
import yaml

from rlinf.base.yaml_text import compose, read_yaml

DOCUMENTS = [
    "",
    "# nothing\n",
    "a: 1\nb: [x, 'y', \"z\"]\nc:\n  d: 1e-3\n  e: 2026-01-01\n  f: |\n    text\n",
    "base: &base {lr: 0.1}\nother:\n  <<: *base\n  lr: 0.2\n",
    "\ufeffa: ü 名\n",
    "[[[1]]]",
]


@pytest.mark.parametrize("text", DOCUMENTS)
def test_values_and_lines_are_those_of_the_other_parser(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)
    loader, node = compose(text)
    assert isinstance(loader, yaml.CSafeLoader)
    assert lines(node) == lines(yaml.SafeLoader(text).get_single_node())


def lines(node: yaml.Node | None) -> list[tuple[str, int]]:
    if node is None:
        return []
    children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
    below = [] if isinstance(node, yaml.ScalarNode) else [line for child in children for line in lines(child)]
    return [(node.tag, node.start_mark.line), *below]


@pytest.mark.parametrize(
    "text", ["a: b: c", "a: [1\nb: 2", "a: \x07", "a: \ud800", "a: *b", "a:\t1", "a: 1\n--- \nb: 2"]
)
def test_errors_are_those_of_the_other_parser(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as wanted:
        yaml.safe_load(text)
    with pytest.raises(type(wanted.value)) as found:
        read_yaml(text)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("level", ["[", "- ", "{a: ", "? "])
def test_no_depth_ends_the_process(level: str) -> None:
    with pytest.raises(RecursionError):
        read_yaml(level * 100_000)

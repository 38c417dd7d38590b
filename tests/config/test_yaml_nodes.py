"""Documents that no configuration needs: refused with file and line, in bounded time."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_cases import MINIMAL, Write, mistakes

from rlinf.config import ConfigErrors, load, load_mapping
from rlinf.config.placeholders import PlaceholderError, expand
from rlinf.sweep.load import read_sweep_file


def _powers(first: str, each: str) -> str:
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} " + each.format(", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 10)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (_powers("[x, y]", "[{}]"), 6, "aliases repeat more than 100,000 values"),
        (_powers("{x: 1}", "{{<<: [{}]}}"), 6, "aliases repeat more than 100,000 values"),
        ("run: {}\na: &a [1, *a]\n", 2, "an alias stands inside of its own anchor"),
        ('run: !!python/object/apply:os.system ["true"]\n', 1, "the tag !!python/object/apply:os.system is not read"),
        ("run: {seed: !mine 4}\n", 1, "the tag !mine is not read here."),
        ('run:\n  name: "a\x01b"\n', 2, "it holds the control character U+0001."),
    ],
    ids=["lists", "merges", "itself", "python", "own_tag", "control"],
)
def test_a_document_is_refused_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        load(path)
    (found,) = [problem for problem in caught.value.problems if problem.line is not None]
    assert (found.file, found.line) == (str(path), line)
    assert message in found.message


def test_brackets_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("a: " + "[" * 20_000 + "]" * 20_000)
    assert "deep.yaml: the value is nested too deeply." in mistakes(path)


def test_aliases_of_ordinary_size_are_read(write: Write) -> None:
    many = ", ".join(["*names"] * 50)
    path = write(f"env: {{kwargs: {{a: &names [{', '.join(str(n) for n in range(500))}], b: [{many}]}}}}\n")
    assert len(load(path).env.kwargs["b"]) == 50  # type: ignore[arg-type]


def test_messages_show_values_and_not_our_own_classes(write: Write) -> None:
    assert "run is a section, not the list ['a', 'b']." in mistakes(write("run: [a, b]\n"))
    assert len(mistakes(write(f"run: {{seed: {'x' * 10_000}}}\n"))) < 500


@pytest.mark.parametrize(
    ("override", "fix"),
    [
        ("env.kwargs.a={b} and {c}", "put it in quotes: 'env.kwargs.a=\"{b} and {c}\"'"),
        ("learner.optimizer.betas=[0.9,", "Quote the whole of it for the shell: 'learner.optimizer.betas=[1, 2]'."),
        ("run.name=a\x01b", "or write it as an escape in double quotes."),
    ],
)
def test_an_override_that_is_not_yaml_shows_how_to_write_it(minimal: Path, override: str, fix: str) -> None:
    assert fix in mistakes(minimal, override)


def test_the_advice_on_quoting_works(minimal: Path) -> None:
    assert load(minimal, ['env.kwargs.a="{b} and {c}"']).env.kwargs["a"] == "{b} and {c}"


@pytest.mark.parametrize("name", ["../evil", "a/b", "a\\b", "", ".", "..", "a\nb"])
def test_a_run_is_not_named_by_a_path(name: str) -> None:
    with pytest.raises(ConfigErrors, match="cannot be the name of a folder"):
        load_mapping({**MINIMAL, "run": {"name": name}})


@pytest.mark.parametrize("folder", ["runs/{name}_{model}", "runs/{name", "runs/{}", "runs/{0}", "runs/{seed:zzz}"])
def test_placeholders_of_the_run_directory_are_checked(folder: str) -> None:
    with pytest.raises(ConfigErrors, match=r"run\.dir: .*") as caught:
        load_mapping({**MINIMAL, "run": {"dir": folder}})
    (found,) = caught.value.problems
    assert found.key == "run.dir"
    assert "runs/{name}_{seed}" in found.fix


def test_the_message_names_the_placeholders_that_exist() -> None:
    with pytest.raises(PlaceholderError, match=r"has the unknown placeholder \{model\}; there are \{name\}, \{seed\}"):
        expand("{name}_{model}", {"name": "a", "seed": 0})


def test_the_folder_of_a_sweep_is_checked_likewise(tmp_path: Path, minimal: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"base: {minimal.name}\ndir: runs/{{model}}\nspace: {{run.max_steps: {{grid: [1, 2]}}}}\n")
    _, problems = read_sweep_file(path)
    assert [(found.key, found.line) for found in problems] == [("dir", 2)]

"""Every training file of other frameworks' repositories through `rlinf import` and `rlinf check --no-build`.

    python benchmarks/import_peers.py rlinf=PATH roll=PATH verl=PATH [--show failing] [--sample 25] [--write DIR]
        [--record FILE]

Peers: rlinf, roll, verl, recipe (verl-recipe), trl, trl-docs, open-r1, sb3-docs, zoo. Each PATH is a checked-out
repository; files are read as text and nothing of them runs. A file counts as

* passing: what was imported passes the checks, but for paths of models and data that are not on this machine;
* refused: one sentence names the feature that does not exist here;
* other: a fragment, an evaluation, a server or data preparation, reported so by the importer: not a training file;
* failing: what was imported does not pass, or the import ended in any other way.

The share is that of passing and refused among training files. Features are listed by how many files name them.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from records import figures_of_table, save
from rlinf_import.account import unaccounted
from rlinf_import.page import page, problems, report
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError, NotTrainingError
from rlinf_import.sb3_zoo import entries as zoo_entries
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

from rlinf.base.errors import UserError

_BLOCK = re.compile(r"^[ \t]*```(?:python|py)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_BUILDS = {
    "trl": re.compile(r"\b\w+Trainer\("),
    "sb3": re.compile(r"\b(PPO|SAC|TD3|DDPG|DQN|A2C|QRDQN|TQC|TRPO|ARS|CrossQ|RecurrentPPO|MaskablePPO)\("),
}
ROWS = 10_000
"""Rows of a data set, for lengths in epochs: the peers' files do not give their number."""


@dataclass(frozen=True)
class Entry:
    """One file, or one entry of a file, and what it is called in the report."""

    name: str
    peer: str
    file: Path
    options: Options


@dataclass(frozen=True)
class Outcome:
    """What became of an entry: a kind, and the sentences that explain it."""

    entry: Entry
    kind: str
    reasons: tuple[str, ...] = ()
    sheet: Sheet | None = None


def entries(peer: str, root: Path, scratch: Path) -> Iterator[Entry]:
    """The files of a peer's repository that may be training files."""
    options = Options(rows=ROWS)
    if peer == "zoo":
        for file in sorted((root / "hyperparams").glob("*.yml")):
            for environment in zoo_entries(file):
                yield Entry(f"{file.name}:{environment}", "sb3", file, Options(environment=environment))
        return
    if peer in ("sb3-docs", "trl-docs"):
        kind = peer.removesuffix("-docs")
        for number, (name, block) in enumerate(_blocks(root, _BUILDS[kind])):
            file = scratch / f"{peer}_{number}.py"
            file.write_text(block)
            yield Entry(name, kind, file, options)
        return
    for pattern in _PATTERNS[peer]:
        for file in sorted(root.glob(pattern)):
            if _FILTERS.get(peer, lambda _: True)(file):
                kind = {"open-r1": "trl", "recipe": "verl"}.get(peer, peer)
                yield Entry(str(file.relative_to(root)), kind, file, options)


_PATTERNS = {
    "rlinf": ("examples/**/*.yaml",),
    "roll": ("examples/**/*.yaml",),
    "verl": ("examples/**/*.sh", "examples/**/*.yaml"),
    "recipe": ("**/*.sh", "**/*.yaml"),
    "trl": ("examples/**/*.py", "examples/**/*.yaml", "trl/scripts/*.py"),
    "open-r1": ("recipes/**/*.yaml", "src/**/*.py"),
}
_FILTERS: dict[str, Callable[[Path], bool]] = {
    "trl": lambda file: file.suffix != ".py" or bool(_BUILDS["trl"].search(file.read_text())),
    "open-r1": lambda file: file.suffix != ".py" or bool(_BUILDS["trl"].search(file.read_text())),
}


def _blocks(root: Path, builds: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Python in the pages of a documentation that builds a model or a trainer."""
    for page_file in sorted((root / "docs").rglob("*.md")):
        text = page_file.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            block = _dedented(match.group(1))
            if builds.search(block):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{page_file.relative_to(root)}:{line}", block


def _dedented(block: str) -> str:
    lines = [line.removeprefix(">>> ").removeprefix("... ") for line in block.splitlines()]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines) + "\n"


def outcome(entry: Entry) -> Outcome:
    """Imports an entry and checks what came out."""
    try:
        sheet = imported(entry.peer, entry.file, (), entry.options)
    except NotTrainingError as error:
        return Outcome(entry, "other", (error.kind,))
    except NotOfferedError as error:
        return Outcome(entry, "refused", error.features)
    except UserError as error:
        if "this is not Python" in str(error):
            return Outcome(entry, "other", ("a snippet that is no Python",))
        return Outcome(entry, "failing", (f"import: {str(error).replace(str(entry.file), entry.file.name)}",))
    except Exception as error:  # an import that crashes is what this is to find
        return Outcome(entry, "failing", (f"crash: {type(error).__name__}: {error}",))
    left = [str(found) for found in problems(sheet) if not about_files(found)]
    silent = [f"unaccounted: {key}" for key in unaccounted(sheet)]
    return Outcome(entry, "failing" if left or silent else "passing", (*left, *silent), sheet)


def table(outcomes: dict[str, list[Outcome]], roots: dict[str, Path]) -> str:
    """The table by peer, as Markdown."""
    lines = [
        "| peer | commit | training files | pass `check` | refused by name | fail | share |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer, found in outcomes.items():
        kinds = Counter(one.kind for one in found)
        whole = len(found) - kinds["other"]
        share = (kinds["passing"] + kinds["refused"]) / whole if whole else 1.0
        lines.append(
            f"| {peer} | {_commit(roots[peer])} | {whole} (and {kinds['other']} others) | {kinds['passing']} | "
            f"{kinds['refused']} | {kinds['failing']} | {share:.0%} |"
        )
    return "\n".join(lines)


def _commit(root: Path) -> str:
    given = root / "COMMIT"
    if given.exists():
        return given.read_text().strip()
    command = ["git", "-C", str(root), "log", "-1", "--format=%h, %cd", "--date=short"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def features(outcomes: dict[str, list[Outcome]], kind: str, most: int) -> str:
    """The reasons of one kind of outcome by frequency."""
    lines: list[str] = []
    for peer, found in outcomes.items():
        counts = Counter(reason for one in found if one.kind == kind for reason in set(one.reasons))
        lines += [f"{peer}: {number} {reason}" for reason, number in counts.most_common(most)]
    return "\n".join(lines)


def sample(outcomes: dict[str, list[Outcome]], number: int, seed: int) -> None:
    """Prints drawn files that passed, with what was written and reported, to be read by hand."""
    passed = [one for found in outcomes.values() for one in found if one.sheet is not None]
    for one in random.Random(seed).sample(passed, min(number, len(passed))):
        assert one.sheet is not None
        print(f"\n{'=' * 100}\n{one.entry.file} ({one.entry.name})\n{page(one.sheet)}\n{report(one.sheet)}")


def main() -> int:
    """Prints the table; exits 1 where a peer's share is below 90%."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", metavar="PEER=PATH")
    parser.add_argument("--show", choices=("passing", "refused", "other", "failing"), help="list entries of this kind")
    parser.add_argument("--most", type=int, default=40, help="reasons listed for each peer")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N drawn files with their imports")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="DIR", help="keep the imported files there")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the table's figures as JSON")
    options = parser.parse_args()
    roots = {peer: Path(path) for peer, _, path in (word.partition("=") for word in options.repositories)}
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = {
            peer: [outcome(entry) for entry in entries(peer, root, Path(scratch))] for peer, root in roots.items()
        }
        print(table(outcomes, roots))
        if options.record:
            save(options.record, figures_of_table(table(outcomes, roots)), intervals="")
        for kind in ("refused", "other", "failing"):
            print(f"\n{kind}:\n{features(outcomes, kind, options.most)}")
        for found in outcomes.values():
            for one in found:
                if one.kind == options.show:
                    print(f"{one.entry.name}: {'; '.join(one.reasons)}")
                if options.write and one.sheet is not None:
                    target = options.write / f"{one.entry.name.replace('/', '_').replace(':', '_')}.yaml"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(page(one.sheet))
        if options.sample:
            sample(outcomes, options.sample, options.seed)
    below = [peer for peer, found in outcomes.items() if _share(found) < 0.9]
    if below:
        print(f"below 90%: {', '.join(below)}", file=sys.stderr)
    return 1 if below else 0


def _share(found: list[Outcome]) -> float:
    training = [one for one in found if one.kind != "other"]
    return sum(one.kind != "failing" for one in training) / len(training) if training else 1.0


if __name__ == "__main__":
    sys.exit(main())

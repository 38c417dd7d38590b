"""Compare ``rlinf check`` and ``rlinf train`` over all recipes times drawn edits, in parts.

``PYTHONPATH=.:envs:importers:tests python -m support.agreement_sweep LOG --edits 60 --seed 1 --minutes 75 [RECIPE]``

LOG has a line of JSON for each case. What stands in it is not run again, so a sweep that was stopped goes on. The
first edit of every recipe comes before the second edit of any, so a part of a sweep has something of each recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support import agreement

from rlinf.config import ConfigErrors
from rlinf.config.recipes import recipes

ROOT = Path(__file__).parents[2]


def _entry(recipe: str, edit: tuple[str, ...], seed: int, folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    case = agreement.compare(recipe, edit, folder)
    entry: dict[str, Any] = {"recipe": recipe, "edits": list(edit), "seed": seed}
    if case is None:
        return {**entry, "kind": "not read"}
    kind = "agree" if case.agrees else "disagree"
    ends = {"check": [case.check.code, case.check.tail], "train": [case.train.code, case.train.tail]}
    if kind == "disagree":
        ends |= {"output": [case.check.output[-4000:], case.train.output[-4000:]]}
    return {**entry, "kind": kind, **ends, "seconds": round(time.monotonic() - began, 1)}


def _drawn(names: Sequence[str], number: int, seed: int) -> dict[str, list[tuple[str, ...]]]:
    """No edit and the drawn ones, of each recipe that can be read here."""
    drawn: dict[str, list[tuple[str, ...]]] = {}
    for name in names:
        try:
            drawn[name] = [(), *agreement.draw_edits(name, number, seed)]
        except ConfigErrors as error:  # a simulator that is not installed
            print(f"left out: {error}")
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("recipes", nargs="*", default=sorted(recipes()))
    parser.add_argument("--edits", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_intermixed_args()
    end = time.monotonic() + 60 * options.minutes
    log = options.log.absolute()
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    entries = [json.loads(line) for line in lines]
    done = {(entry["recipe"], tuple(entry["edits"])) for entry in entries}
    with tempfile.TemporaryDirectory() as made, log.open("a", encoding="utf-8") as out:
        os.chdir(agreement.furnish(Path(made)))
        drawn = _drawn(options.recipes, options.edits, options.seed)
        for turn in range(options.edits + 1):
            for name in drawn:
                if (name, drawn[name][turn]) in done or time.monotonic() > end:
                    continue
                entries.append(_entry(name, drawn[name][turn], options.seed, Path(made)))
                print(json.dumps(entries[-1]), file=out, flush=True)
        os.chdir(ROOT)
    kinds = Counter(entry["kind"] for entry in entries)
    print(f"{len({entry['recipe'] for entry in entries})} recipes: {dict(kinds)}")
    return int(kinds["disagree"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())

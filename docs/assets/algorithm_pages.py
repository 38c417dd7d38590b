"""Generate docs/algorithms/: a page per estimator, loss and off-policy algorithm.

Sources are the catalog, the recipes of config/ and the records of benchmarks/results/.

`make docs` runs it: python docs/assets/algorithm_pages.py. A test holds the committed pages to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from records import Record, load_all  # noqa: E402
from topic_pages import anchor, cell  # noqa: E402

from rlinf.algorithms import catalog  # noqa: E402
from rlinf.algorithms.entries import Entry, Estimator, Loss  # noqa: E402
from rlinf.config.defaults import schema_default  # noqa: E402
from rlinf.config.reference import field_docs  # noqa: E402
from rlinf.schema.algorithm import AlgorithmConfig  # noqa: E402

FOLDER = ROOT / "docs" / "algorithms"
TABLES: Mapping[str, tuple[str, str, str]] = {
    "advantages": ("adv_type", "advantage", "Advantage estimators"),
    "losses": ("loss_type", "loss", "Policy losses"),
    "off_policy": ("loss_type", "off_policy", "Off-policy algorithms"),
}
"""Table of the catalog -> (key, beginning of the file name, title)."""
_KINDS = {"advantage": "advantage estimator", "loss": "policy loss", "off_policy": "off-policy algorithm"}
_GENERATED = "<!-- Generated from the catalog by `make docs`. -->\n"
_SYMBOLS = (
    "Symbols: R reward of a row, r reward of a token, A advantage, V value, m mask, l length, "
    "rho = exp(logp - old), sg: no gradient."
)
_RECIPES = 8
"""Recipes that a page names."""
_FIGURES = 4
"""Metrics of a measured row that a page shows."""


def pages() -> Mapping[str, str]:
    """Return every page by its file name."""
    recipes, records = selections(), load_all()
    found = {"index.md": overview()}
    for table, (key, kind, _) in TABLES.items():
        for name, entry in catalog.TABLES[table].items():
            using = [recipe for recipe, chosen in recipes.items() if chosen.get(key) == name]
            found[f"{kind}_{name}.md"] = page(name, entry, key, kind, using, records)
    return found


def overview() -> str:
    """Return the list of all pages."""
    parts = [
        f"{_GENERATED}\n# All algorithms\n\nOne page each, with formula, source, options, recipes and measured rows. "
        "[Algorithms](../algorithms.md) explains how they work together and when to use which.\n"
    ]
    for table, (key, kind, title) in TABLES.items():
        lines = [f"## {title}\n", f"| `{key}` | what it does | source |", "|---|---|---|"]
        for name, entry in catalog.TABLES[table].items():
            lines.append(f"| [`{name}`]({kind}_{name}.md) | {_cell(entry.line)} | {_cell(_linked(entry.source))} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def page(name: str, entry: Entry, key: str, kind: str, recipes: list[str], records: Mapping[str, Record]) -> str:
    """Return the page of one entry."""
    formula = "\n".join(f"    {line.strip()}" for line in entry.formula.split(";  "))
    parts = [
        f"{_GENERATED}\n# {name}: {_KINDS[kind]}\n",
        f"{entry.line[:1].upper()}{entry.line[1:]}. Select it with `algorithm.{key}: {name}`.\n",
        f"## Formula\n\n{formula}\n\n{_SYMBOLS}\n",
        f"Source: {_linked(entry.source)}. Code: `{entry.function.partition(':')[0].replace('.', '/')}.py`.\n",
        options(entry),
    ]
    facts = list(traits(entry))
    if facts:
        parts.append("## Properties\n\n" + "\n".join(f"- {fact}" for fact in facts) + "\n")
    if recipes:
        recipes = sorted(recipes, key=lambda recipe: (recipe.rpartition("/")[2] != name, recipe))[:_RECIPES]
        commands = "\n".join(f"rlinf train {recipe}" for recipe in recipes)
        parts.append(f"## Recipes\n\n```bash\n{commands}\n```\n")
    rows = list(measured(recipes, records))
    if rows:
        head = "## Measured\n\n| recipe | figures | benchmark |\n|---|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    return "\n".join(parts)


def options(entry: Entry) -> str:
    """Return the table of the options that choosing this entry makes effective."""
    documented = field_docs(AlgorithmConfig)
    lines = ["## Options\n", "| option | default | meaning |", "|---|---|---|"]
    for option in entry.reads:
        default = schema_default(f"algorithm.{option}")
        shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
        lines.append(f"| [`{option}`](../config.md#algorithm) | `{shown}` | {_cell(documented.get(option, ''))} |")
    if not entry.reads:
        return "## Options\n\nNone besides those that all entries of its kind read.\n"
    return "\n".join(lines) + "\n"


def traits(entry: Entry) -> Iterator[str]:
    """Yield what the catalog records of an entry beyond its formula."""
    if entry.needs:
        yield f"Needs the columns {', '.join(f'`{column}`' for column in entry.needs)} of the batch."
    if isinstance(entry, Estimator):
        if entry.of_outcomes:
            yield "One number a row, from outcomes and lengths: computed on the driver, tokens stay with the samplers."
        if entry.of_turns:
            yield "One number a turn."
        if entry.by_row or entry.compares:
            yield "Advantages of tokens, computed by the learner ranks for their own rows."
        if entry.compares_groups:
            yield "Compares responses of a group: `algorithm.group_size` must be at least 2."
        if entry.whitens:
            yield "Whitened over the batch as a part of the rule."
        if entry.token_kl:
            yield "Each token pays `kl_coef` times its KL as a part of the rule."
    if isinstance(entry, Loss):
        if entry.sequence_level:
            yield "Reads whole rows: a ratio or a mean over the sequence."
        if entry.selector:
            yield "Chooses tokens among all rows of an optimiser step, so every rank receives all rows."


def selections() -> Mapping[str, Mapping[str, Any]]:
    """Return what each recipe of config/ selects in `algorithm`, with what it extends: short name -> keys."""
    files = [path for path in sorted((ROOT / "config").rglob("*.yaml")) if path.parent.name not in ("sweeps", "scale")]
    return {path.relative_to(ROOT / "config").with_suffix("").as_posix(): _algorithm(path) for path in files}


def _algorithm(path: Path) -> dict[str, Any]:
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = _algorithm(path.parent / tree["extends"]) if "extends" in tree else {}
    return {**base, **tree.get("algorithm", {})}


def measured(recipes: list[str], records: Mapping[str, Record]) -> Iterator[str]:
    """Yield a row for each benchmark that names one of the recipes: its first case."""
    for recipe in recipes:
        name = recipe.rpartition("/")[2]
        for record in records.values():
            cases = {figure.case for figure in record.figures if figure.case.startswith(f"`{name}`")}
            for case in sorted(cases)[:1]:
                figures = [figure for figure in record.figures if figure.case == case][:_FIGURES]
                shown = "; ".join(f"{figure.metric}: {cell(figure)}" for figure in figures)
                yield f"| {case} | {shown} | [{record.title}](../benchmarks/{record.topic}.md#{anchor(record.title)}) |"


def _linked(source: str) -> str:
    """Return a source with its arXiv numbers as links.

    >>> _linked("GRPO, arXiv:2402.03300")
    'GRPO, [arXiv:2402.03300](https://arxiv.org/abs/2402.03300)'
    """
    words = []
    for word in source.split(" "):
        bare = word.rstrip(";,")
        link = f"[{bare}](https://arxiv.org/abs/{bare.removeprefix('arXiv:')})"
        words.append(link + word[len(bare) :] if bare.startswith("arXiv:") else word)
    return " ".join(words)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")

"""The parity tables of docs/vla.md: how far actions are from the original code's, and how far other conventions lead.

    PYTHONPATH=tests/support python docs/assets/vla_parity.py measure FAMILIES [INTERPRETER [SOURCES]]
    python docs/assets/vla_parity.py                           writes the tables into docs/vla.md

`measure` writes docs/assets/vla_parity.json. FAMILIES is `lerobot` (INTERPRETER has LeRobot 0.6), `groot` (with its
extra of that name) or `openvla` (with the SOURCES that tests/support/openvla_original.py names); the interpreter loads
what is exported.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent
PAGE, FIGURES = ASSETS.parent / "vla.md", ASSETS / "vla_parity.json"
TITLES = {
    "lerobot": {
        "smolvla": "SmolVLA",
        "smolvla_aloha": "SmolVLA, Aloha joints",
        "pi0": "pi0",
        "pi05": "pi0.5",
    },
    "groot": {
        "groot": "LIBERO",
        "groot_areas": "another robot",
        "groot_relative": "actions relative to the state",
        "groot_lerobot": "LeRobot's layout",
    },
    "openvla": {
        "openvla": "OpenVLA",
        "openvla_libero": "OpenVLA in LIBERO",
        "openvla_oft": "OFT, regression",
        "openvla_oft_film": "OFT+, FiLM",
        "openvla_oft_tokens": "OFT, tokens",
        "openvla_oft_diffusion": "OFT, diffusion",
    },
}


def measure(families: str, interpreter: str | None, sources: str | None) -> None:
    """Build each family's checkpoint, act, and act with each convention changed."""
    found = json.loads(FIGURES.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        measured = {"lerobot": _lerobot, "groot": _groot, "openvla": _openvla}[families]
        found |= measured(Path(scratch), interpreter, sources)
    FIGURES.write_text(json.dumps(found, indent=1) + "\n")


def _lerobot(scratch: Path, interpreter: str | None, _: str | None) -> dict[str, Any]:
    import numpy as np
    import published_checkpoints as small
    import published_policies as policies

    found, exported = {}, []
    for family in small.FAMILIES:
        folder, out = scratch / "in" / family, scratch / "out" / family
        small.write_checkpoint(family, folder)
        policy = policies.build(family, folder)
        entry: dict[str, Any] = {"original": policies.error(family, policy)}
        entry["otherwise"] = {part: policies.error_of_flip(family, part, folder) for part in policies.PARTS}
        found[family] = entry
        _write_with_other_weights(policy, out, 1.01)
        exported.append((out, policies.acted(policy, policies.leaves_of(family))))
        sys.stderr.write(f"{family}: {entry}\n")
    if interpreter is not None:
        folders = [str(out) for out, _ in exported]
        for (out, ours), theirs in zip(exported, small.acted_by_original(interpreter, folders), strict=True):
            found[out.name]["export"] = float(np.abs(ours - np.array(theirs)).max())
    return found


def _groot(scratch: Path, interpreter: str | None, _: str | None) -> dict[str, Any]:
    import groot_checkpoints as small
    import groot_policies as policies

    found, exported, ours = _by_case(scratch, small, policies, 1.02)
    if interpreter is not None:
        _add_exports(found, ours, small.acted_by_original(interpreter, exported))
    return found


def _openvla(scratch: Path, interpreter: str | None, sources: str | None) -> dict[str, Any]:
    import openvla_checkpoints as small
    import openvla_policies as policies

    found, exported, ours = _by_case(scratch, small, policies, 1.05)
    if interpreter is not None and sources is not None:
        theirs = small.acted_by_original(interpreter, sources, exported)
        _add_exports(found, ours, {case: content["actions"] for case, content in theirs.items()})
    return found


def _by_case(
    scratch: Path, small: Any, policies: Any, factor: float
) -> tuple[dict[str, Any], dict[str, Path], dict[str, Any]]:
    """Figures of each case, its export with weights times ``factor``, and the actions of that."""
    found, exported, ours = {}, {}, {}
    for case in small.CASES:
        folder, out = scratch / "in" / case, scratch / "out" / case
        small.write_checkpoint(case, folder)
        policy = policies.build(case, folder)
        entry: dict[str, Any] = {"original": policies.error(case, policy)}
        entry["otherwise"] = {part: policies.error_of_flip(case, part, folder) for part in policies.parts_of(case)}
        found[case] = entry
        _write_with_other_weights(policy, out, factor)
        exported[case], ours[case] = out, policies.acted(policy)
        sys.stderr.write(f"{case}: {entry}\n")
    return found, exported, ours


def _add_exports(found: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    import numpy as np

    for case, actions in theirs.items():
        found[case]["export"] = float(np.abs(ours[case] - np.array(actions)).max())


def _write_with_other_weights(policy: Any, folder: Path, factor: float) -> None:
    import torch

    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.mul_(factor)
    policy.write_published(folder)


def table(titles: dict[str, str]) -> str:
    """Markdown of the entries of `vla_parity.json` that ``titles`` names."""
    found = json.loads(FIGURES.read_text())
    entries = [found[name] for name in titles]
    lines = ["| largest difference of an action | " + " | ".join(titles.values()) + " |"]
    lines.append("|---|" + "---|" * len(titles))
    lines.append(_row("to the original", [f"{entry['original']:.0e}" for entry in entries]))
    if all("export" in entry for entry in entries):
        cells = [f"{entry['export']:.0e}" for entry in entries]
        lines.append(_row("exported, loaded by the original (other weights)", cells))
    for part in dict.fromkeys(part for entry in entries for part in entry["otherwise"]):
        known = [entry["otherwise"].get(part) for entry in entries]
        lines.append(_row(f"{part} changed", ["" if value is None else f"{value:.2f}" for value in known]))
    return "\n".join(lines)


def _row(head: str, cells: Sequence[str]) -> str:
    return f"| {head} | {' | '.join(cells)} |"


def written(page: str) -> str:
    """Return the page with the tables of today's figures."""
    for families, titles in TITLES.items():
        begin, end = f"<!-- parity of {families}: docs/assets/vla_parity.py -->", "<!-- end of parity -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{table(titles)}\n{end}{rest.split(end, 1)[1]}"
    return page


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], *([*sys.argv[3:5], None, None])[:2])
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()

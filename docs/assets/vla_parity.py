"""The parity table of docs/vla.md: how far actions are from the original code's, and how far other conventions lead.

    PYTHONPATH=tests/support python docs/assets/vla_parity.py measure [INTERPRETER]   writes docs/assets/vla_parity.json
    python docs/assets/vla_parity.py                                                 writes the table into docs/vla.md

INTERPRETER has LeRobot 0.6, and loads what is exported.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent
PAGE, FIGURES = ASSETS.parent / "vla.md", ASSETS / "vla_parity.json"
BEGIN, END = "<!-- parity: docs/assets/vla_parity.py -->", "<!-- end of parity -->"
_TITLES = {"smolvla": "SmolVLA", "smolvla_aloha": "SmolVLA, Aloha joints", "pi0": "pi0", "pi05": "pi0.5"}


def measure(interpreter: str | None) -> None:
    """Build each family's checkpoint, act, and act with each convention changed."""
    import numpy as np
    import published_checkpoints as small
    import published_policies as policies
    import torch

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        exported = []
        for family in small.FAMILIES:
            folder, out = Path(place) / "in" / family, Path(place) / "out" / family
            small.write_checkpoint(family, folder)
            policy = policies.build(family, folder)
            entry: dict[str, Any] = {"original": policies.error(family, policy)}
            entry["otherwise"] = {part: policies.error_of_flip(family, part, folder) for part in policies.PARTS}
            with torch.no_grad():
                for weight in policy.network.parameters():
                    weight.mul_(1.01)
            policy.write_published(out)
            exported.append((out, policies.acted(policy, policies.leaves_of(family))))
            found[family] = entry
            sys.stderr.write(f"{family}: {entry}\n")
        if interpreter is not None:
            places = [str(out) for out, _ in exported]
            for (out, ours), theirs in zip(exported, small.acted_by_original(interpreter, places), strict=True):
                found[out.name]["export"] = float(np.abs(ours - np.array(theirs)).max())
    FIGURES.write_text(json.dumps(found, indent=1) + "\n")


def table() -> str:
    """Markdown of `vla_parity.json`."""
    found = json.loads(FIGURES.read_text())
    families = list(found)
    lines = ["| largest difference of an action | " + " | ".join(_TITLES[name] for name in families) + " |"]
    lines.append("|---|" + "---|" * len(families))
    lines.append("| to the original | " + " | ".join(f"{found[name]['original']:.0e}" for name in families) + " |")
    if all("export" in entry for entry in found.values()):
        head = "| exported, loaded by the original (other weights) | "
        lines.append(head + " | ".join(f"{found[name]['export']:.0e}" for name in families) + " |")
    for part in found[families[0]]["otherwise"]:
        row = " | ".join(f"{found[name]['otherwise'][part]:.2f}" for name in families)
        lines.append(f"| {part} changed | {row} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with the table of today's figures."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2] if len(sys.argv) > 2 else None)
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()

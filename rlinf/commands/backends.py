"""``rlinf backends``: the same batches through several learner backends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines

CHOICES = ("torch", "fsdp", "megatron")
_COMPARED = ("train/loss", "train/grad_norm")
_TIMEOUT_S = 3600
"""For one backend; it trains on a few batches."""


def main(arguments: Sequence[str]) -> int:
    """Train with each backend, print the differences, and return the exit code."""
    parser = Parser(
        prog="rlinf backends",
        description="Train on the batches that `rlinf train FILE --save-batches N` kept, with each backend from the "
        "same weights. Losses, gradient norms and the largest difference of a weight are printed.",
    )
    parser.add_argument("batches", metavar="DIR", type=Path, help="a run directory with kept batches, or that folder")
    parser.add_argument("--backend", action="append", choices=CHOICES, help="which (default: all); may be repeated")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="replace keys: learner.num_workers=2")
    options = parser.parse_intermixed_args(list(arguments))
    from rlinf.train.saved_batches import BatchFolder

    folder = BatchFolder.open(options.batches)
    with tempfile.TemporaryDirectory(prefix="rlinf_backends_") as temporary:
        backends = options.backend or CHOICES
        runs = {name: _trained(folder.path, name, Path(temporary), options.overrides) for name in backends}
        print(_table(runs))
    return 0


def _trained(batches: Path, backend: str, folder: Path, overrides: Sequence[str]) -> Path:
    """Train in a process of its own, since a process has one group of ranks; return the run directory."""
    keys = [f"run.dir={folder / backend}", f"learner.backend={backend}", "cluster.backend=local"]
    quiet = ["logging.progress=none", "logging.tensorboard=false"]
    command = [sys.executable, "-m", "rlinf", "train", str(batches / "config.yaml"), *keys, *quiet, *overrides]
    done = subprocess.run(
        [*command, "--from-batches", str(batches)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise UserError(f"{backend}: {done.stderr.strip()[-2000:]}")
    return folder / backend


def _table(runs: Mapping[str, Path]) -> str:
    """Lay out steps by backend, and the distances of weights."""
    lines = [f"{'step':>6}  {'backend':<10}  {'loss':>14}  {'gradient norm':>14}"]
    rows = {name: list(read_json_lines(path / "metrics.jsonl", number="step").rows) for name, path in runs.items()}
    steps = sorted({int(row["step"]) for result in rows.values() for row in result if _COMPARED[0] in row})
    for step in steps:
        for name, result in rows.items():
            row = next(row for row in result if row["step"] == step)
            numbers = "  ".join(f"{row[metric]:>14.8g}" for metric in _COMPARED)
            lines.append(f"{step:>6}  {name:<10}  {numbers}")
    first, *others = runs
    for other in others:
        lines.append(_distance(first, other, runs))
    return "\n".join(lines)


def _distance(first: str, other: str, runs: Mapping[str, Path]) -> str:
    """Name the weight that differs most between two runs, relative to the largest value of that weight."""
    from safetensors.torch import load_file

    ours, theirs = (load_file(runs[name] / "policy" / "model.safetensors") for name in (first, other))
    if ours.keys() != theirs.keys():
        return f"{other}: other weights than {first}: {', '.join(sorted(ours.keys() ^ theirs.keys())[:3])}"
    distances = {name: float((tensor.float() - theirs[name].float()).abs().max()) for name, tensor in ours.items()}
    worst = max(distances, key=distances.__getitem__)
    if not distances[worst]:
        return f"{other}: the same weights as {first}, bit for bit"
    scale = float(ours[worst].float().abs().max())
    where = f"{worst}, whose largest number is {scale:.3g}"
    return f"{other}: weights differ from {first} by at most {distances[worst]:.3g} ({where})"

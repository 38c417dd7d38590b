"""``rlinf verify``: a step of a run again, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser


def main(arguments: Sequence[str]) -> int:
    """Verify a step, and return 0 if every bit is equal, else 1."""
    parser = Parser(
        prog="rlinf verify",
        description="Train a step of a run again, from the newest checkpoint before it, and compare metrics, kept "
        "batches and weights. The first phase and number or tensor that differ are named. The run is only read.",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument("--step", type=int, metavar="K", help="the step (default: the last one)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="where to compute: cluster.backend=local")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="override a configuration key")
    options = parser.parse_intermixed_args(list(arguments))
    from rlinf.train.verify import verify

    result = verify(options.run, options.step, [*options.overrides, *options.set])
    steps = f"step {result.last}" if result.first == result.last else f"steps {result.first} to {result.last}"
    if result.difference is not None:
        print(f"{steps}: not the same. The first difference is in {result.difference}")
        return 1
    held = {
        "checkpoint": "the weights of the run's checkpoint are among them",
        "digest": "the sha256 of the run's weights is among them",
        "nothing": "the run kept no weights of this step to compare",
    }
    print(f"{steps}: same bits in {result.numbers} numbers and tensors; {held[result.weights]}")
    return 0

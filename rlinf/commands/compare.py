"""``rlinf compare A B``: two saved evaluations, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser


def main(arguments: Sequence[str]) -> int:
    """Print the differences and return the exit code. Raises UserError if there is nothing to compare."""
    parser = Parser(
        prog="rlinf compare",
        description="Two saved evaluations of the same tasks: each rate's difference with its 95% interval (Student's "
        "over tasks) and the p-value of a paired permutation test.",
    )
    for name in ("first", "second"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="an evaluation's .json, or the folder of a run")
    options = parser.parse_args(list(arguments))
    from rlinf.train.evaluation.saved import comparison_lines, read_evaluation

    print("\n".join(comparison_lines(read_evaluation(options.first), read_evaluation(options.second))))
    return 0

"""``rlinf label FILE --data DIR``: which recorded frames were better than expected, for `policy.flow.advantage`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError

_LITTLE = 0.2
"""Share of the variance of held-out returns."""


def main(arguments: Sequence[str]) -> int:
    """Label a dataset and return the exit code. Raises UserError for one that cannot be labelled."""
    parser = _parser()
    options = parser.parse_intermixed_args(list(arguments))
    if not 0.0 < options.share < 1.0 or options.steps < 1 or options.batch_size < 1 or options.lookahead < 0:
        raise UserError(
            "rlinf label: --share must lie between 0 and 1, --steps and --batch-size be at least 1, --lookahead at "
            "least 0"
        )
    from rlinf.config import resolve
    from rlinf.config.derived import is_text, training_env
    from rlinf.datasets.robot_data.leaves import observation_arrays
    from rlinf.datasets.robot_data.outcomes import succeeded, write_labels
    from rlinf.datasets.robot_data.reading import read_dataset
    from rlinf.rollouts.isolation.env import make_env_anywhere
    from rlinf.rollouts.vec_env.vec_env import close_quietly
    from rlinf.train.outcome_labels import Fit, label

    config = resolve(options.file, [*options.overrides, *options.set]).config
    if is_text(config):
        raise UserError(f"{options.file} has a language model: rlinf label is for simulators")
    env = make_env_anywhere(training_env(config))
    try:
        space = env.observation_space
    finally:
        close_quietly(env)
    recorded = read_dataset(options.data)
    success = succeeded(recorded)
    fit = Fit(options.steps, options.batch_size, options.lr, options.share, options.lookahead, config.run.seed)
    arrays = observation_arrays(recorded, space, config.sft.rename)
    tasks = recorded.task_index if len(recorded.instructions) > 1 else None
    done = label(arrays, space, recorded.lengths, success, fit=fit, tasks=tasks, report=_show_progress)
    file, labels = write_labels(options.data, done.labels), done.labels
    print(
        f"{file}: {len(success)} episodes, {success.mean():.0%} with success; {labels.positive.mean():.0%} of "
        f"{len(labels.positive)} frames are positive; loss {done.loss:.3f} nats, {done.explained:.2f} of the variance "
        "of held-out returns explained"
    )
    if not done.explained >= _LITTLE:  # NaN: no episode was held out
        print(
            "The values explain little, so a label is hardly more than the outcome of its episode: record more "
            "episodes (with 3,000 instead of 400 the tabletop's explain half), or train longer (--steps "
            f"{2 * options.steps})."
        )
    return 0


def _show_progress(step: int, loss: float) -> None:
    if sys.stderr.isatty():
        print(f"\rstep {step}: loss {loss:.3f} ", end="", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="rlinf label",
        description="Train a value function on the outcomes of recorded episodes (next.success), and write next to the "
        "dataset which frames were better than it expected: what policy.flow.advantage is conditioned on.",
    )
    parser.add_argument("file", metavar="FILE", help="a YAML file, or the name of a recipe, with the environment")
    parser.add_argument("--data", required=True, metavar="DIR", help="a dataset, as sft.dataset names it")
    parser.add_argument("--share", type=float, default=0.4, metavar="P", help="share of positive frames (default 0.4)")
    parser.add_argument("--lookahead", type=int, default=0, metavar="N", help="frames ahead (default: to the end)")
    parser.add_argument("--steps", type=int, default=1500, metavar="N", help="training steps of the values")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="frames of a step")
    parser.add_argument("--lr", type=float, default=1e-3, metavar="RATE", help="learning rate of the values")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the file")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="override a configuration key")
    return parser

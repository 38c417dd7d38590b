"""``rlinf record FILE --out DIR --episodes N``: episodes of a demonstrator or a policy as a LeRobot dataset."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError


def main(arguments: Sequence[str]) -> int:
    """Record and return the exit code. Raises UserError for what cannot be recorded."""
    parser = _parser()
    options = parser.parse_intermixed_args(list(arguments))
    too_few = options.episodes < 1 or (options.fps is not None and options.fps < 1)
    if too_few or not 0.0 <= options.perturbation < 1.0:
        raise UserError("rlinf record: --episodes and --fps must be at least 1, --perturbation in [0, 1)")
    from rlinf.base.random_streams import numpy_generator
    from rlinf.config import resolve
    from rlinf.config.derived import evaluation_env, is_text, training_env
    from rlinf.rollouts.simulator.experts import expert_of
    from rlinf.rollouts.simulator.recorded import Recording, policy_as_expert, record

    resolved = resolve(options.file, [*options.overrides, *options.set])
    for note in (*resolved.notes, *resolved.warnings):
        print(note, file=sys.stderr)
    config = resolved.config
    if is_text(config):
        raise UserError(f"{options.file} has a language model: rlinf record is for simulators")
    env = evaluation_env(config) if options.split == "eval" else training_env(config)
    expert = options.expert or config.sft.expert
    if options.server is not None and (options.policy is not None or options.expert is not None or options.sample):
        raise UserError("rlinf record: --server acts alone, without --policy, --expert and --sample")
    if env.isolation != "none" and expert is not None and options.policy is None and options.server is None:
        raise UserError(
            f"rlinf record: the demonstrator {expert} reads an environment of this process; set env.isolation: none"
        )
    requested = Recording(
        env=env,
        episodes=options.episodes,
        seed=config.run.seed,
        perturbation=options.perturbation,
        keep_failures=options.keep_failures,
        to_the_end=options.to_the_end,
        videos=options.videos,
        fps=options.fps,
        task=options.task,
    )
    report = _progress(options.episodes)
    if options.server is not None:
        from rlinf.serve.client import RemotePolicy

        generator = numpy_generator(config.run.seed, "record")
        token = options.token or os.environ.get("RLINF_SERVE_TOKEN")
        with RemotePolicy(options.server, token=token) as remote:
            acting = policy_as_expert(remote, deterministic=True, generator=generator)
            done = record(options.out, requested, lambda env: acting, report)
    elif options.policy is not None:
        from rlinf.api.policy import Policy

        acting = policy_as_expert(
            Policy.load(options.policy),
            deterministic=not options.sample,
            generator=numpy_generator(config.run.seed, "record"),
        )
        done = record(options.out, requested, lambda env: acting, report)
    else:
        done = record(options.out, requested, lambda made: expert_of(expert, made, env.id), report)
    what = f"{done.episodes} episodes, {done.frames} frames; {done.solved} of {done.tried} played succeeded"
    print(f"{options.out}: {what}")
    if done.interrupted:
        raise KeyboardInterrupt
    return 0


def _progress(episodes: int) -> Callable[[int, int], None]:
    """Return what reports (recorded, played): over one line of a terminal, in a file a line for each tenth."""
    tenths = 0

    def report(recorded: int, played: int) -> None:
        nonlocal tenths
        text = f"{recorded} of {episodes} episodes recorded, {played} played"
        if sys.stderr.isatty():
            print(f"\r{text} ", end="", file=sys.stderr, flush=True)
        elif 10 * recorded // episodes > tenths:
            tenths = 10 * recorded // episodes
            print(text, file=sys.stderr, flush=True)

    return report


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="rlinf record",
        description="Play episodes of a configuration's environment with its demonstrator, another one, or a trained "
        "policy, and write those that succeed as a LeRobotDataset v3 folder (sft.dataset, algorithm.prior_data).",
    )
    parser.add_argument("file", metavar="FILE", help="a YAML file, or the name of a recipe")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="episodes to record (default 100)")
    parser.add_argument("--expert", metavar="MODULE:NAME", help="a demonstrator other than the environment's own")
    parser.add_argument("--policy", metavar="RUN", help="a run or exported folder whose policy acts instead")
    parser.add_argument("--server", metavar="URL", help="a policy server that acts instead: ws://HOST:PORT")
    parser.add_argument("--token", metavar="SECRET", help="of the server (default: RLINF_SERVE_TOKEN)")
    parser.add_argument("--sample", action="store_true", help="of a policy: draw actions, not the likeliest")
    parser.add_argument("--perturbation", type=float, default=0.0, metavar="P", help="share of random decisions")
    parser.add_argument("--keep-failures", action="store_true", help="record episodes without success too")
    parser.add_argument("--to-the-end", action="store_true", help="play on after success (for algorithm.prior_data)")
    parser.add_argument("--videos", action="store_true", help="pictures as films: smaller, with a little loss")
    parser.add_argument("--fps", type=int, metavar="N", help="steps of a second (default: the environment's)")
    parser.add_argument("--task", metavar="WORDS", help="the instruction (default: the environment's)")
    parser.add_argument("--split", choices=("train", "eval"), default="train", help="whose environment is played")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the file")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="override a configuration key")
    return parser

"""The command line. Handlers import what they run, so that everything else answers at once.

Exit codes: 0 done, 1 the run failed, 2 the configuration is wrong, 130 interrupted, 143 stopped by SIGTERM, 129 by
SIGHUP.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import rlinf
from rlinf.base.arguments import RESUMES, Parser, positive
from rlinf.base.errors import UserError, exit_code_of, is_user_error
from rlinf.base.logs import LEVEL, requested_level, show
from rlinf.base.packages import missing_package
from rlinf.base.redaction import redact_warnings, redacted
from rlinf.base.signals import Stopped, raising_exits
from rlinf.base.terminal import printable
from rlinf.commands.closed_pipes import flushed, open_standard_streams, outlasting_readers

if TYPE_CHECKING:
    from rlinf.config import Config

_OF_THE_MACHINE = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
    errno.ENAMETOOLONG,
)
"""What the machine refuses: no mistake of the program, whose traceback would not help."""
FAILED, WRONG_CONFIG, INTERRUPTED = 1, 2, 130


GROUPS = {
    "Run": ("check", "try", "sft", "train", "sweep"),
    "View runs": ("report", "watch", "ui", "replay"),
    "Evaluate": ("eval", "compare"),
    "Compute again": ("verify", "backends"),
    "Models and data": ("record", "label", "serve", "export", "convert", "publish"),
    "Set up": ("list", "doctor", "new", "import", "completion"),
}
"""The commands in the order of `rlinf --help`."""
DELEGATED = {
    "try": ("rlinf.commands.try_policy", "answer a handful of tasks with the policy as it is, before training"),
    "sweep": ("rlinf.sweep.cli", "many runs from one file"),
    "report": ("rlinf.report.cli", "a page about a run or a sweep"),
    "watch": ("rlinf.report.watch", "see what a run's newest policy does: window, video or text"),
    "verify": ("rlinf.commands.verify", "train a step of a run again from its checkpoint, and compare every bit"),
    "backends": ("rlinf.commands.backends", "train on kept batches with several learner backends, and compare"),
    "replay": ("rlinf.report.replay", "generate a recorded group of a run again, and compare"),
    "eval": ("rlinf.commands.evaluate", "evaluate a run's checkpoint again, or any model on any data"),
    "compare": ("rlinf.commands.compare", "two saved evaluations, task by task"),
    "record": ("rlinf.commands.record", "episodes of a demonstrator or a policy as a LeRobot dataset"),
    "label": ("rlinf.commands.label", "which recorded frames were better than expected"),
    "serve": ("rlinf.commands.serve", "a policy behind a websocket, in openpi's protocol"),
    "export": ("rlinf.commands.export", "the policy of a run, at any of its checkpoints, as a folder"),
    "publish": ("rlinf.commands.publish", "the policy of a run with a model card, for the Hugging Face Hub"),
    "ui": ("rlinf.commands.ui", "runs and sweeps in the browser, live"),
    "new": ("rlinf.commands.new", "a skeleton of an environment, a reward, an algorithm or a policy of your own"),
    "import": ("rlinf.commands.import_config", "a configuration of TRL, verl, ROLL, RLinf or SB3 as one of rlinf"),
    "completion": ("rlinf.commands.completion", "a script that completes commands and options in a shell"),
    "convert": ("rlinf.commands.convert", "a run's checkpoint to a folder that others load; megatron layouts"),
}
"""Commands that their packages parse by themselves: each module has ``main(arguments) -> int``."""
_TRAINING = ("train", "sft", "eval", "sweep", "verify", "backends")
"""Commands that go on when no process reads their output any more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see rlinf/__init__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    open_standard_streams()
    if not faulthandler.is_enabled():  # a crash in native code of an environment shows its Python line
        faulthandler.enable(sys.__stderr__ or sys.stderr)
    try:
        here = os.getcwd()
    except FileNotFoundError:
        print("the current folder does not exist any more: cd to another one", file=sys.stderr)
        return WRONG_CONFIG
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # `env.id: my_module:My-v0` next to the file, as with `python -m rlinf.cli`
    redact_warnings()
    try:
        level = requested_level()
    except UserError as error:
        print(error, file=sys.stderr)
        return WRONG_CONFIG
    if level is not None:  # `RLINF_LOG=debug` reports phases and processes as they come
        show(level, "driver")
    words = list(sys.argv[1:] if arguments is None else arguments)
    with outlasting_readers() if words[:1] and words[0] in _TRAINING else nullcontext():
        return _run(words)


def _run(words: list[str]) -> int:
    if words and words[0] in DELEGATED:
        # Not through argparse, which would take `--help` for itself.
        return _guarded(lambda: _code(_function(DELEGATED[words[0]][0], "main")(words[1:])))
    parser = build_parser()
    if words[:1] == ["help"]:  # `rlinf help train`, as git has it
        return _run([*words[1:2], "--help"])
    if words in (["version"], ["-V"], ["-v"]):
        words = ["--version"]
    if not words:
        parser.print_help(sys.stderr)
        return WRONG_CONFIG
    options, rest = parser.parse_known_args(words)
    # `FILE a=1 --set b=2 c=3`: argparse gives up on positionals after an option.
    if rest and (not hasattr(options, "overrides") or any(word.startswith("-") for word in rest)):
        takes_keys = hasattr(options, "overrides") and any(word.startswith("-") for word in rest)
        advice = f"; keys are set without dashes: {_as_override(rest)}" if takes_keys else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{advice}")
    options.rest_overrides = rest
    handler: Callable[[argparse.Namespace], int] = options.handler
    return _guarded(lambda: handler(options))


def _as_override(words: Sequence[str]) -> str:
    """``--seed 3`` as the override that was most likely meant: `run.seed=3`."""
    from rlinf.config.names import nearest_keys

    name, _, value = next(word for word in words if word.startswith("-")).lstrip("-").partition("=")
    key = next(iter(nearest_keys(name.replace("-", "_"), ())), "KEY")
    follows = [word for word in words if not word.startswith("-") and "=" not in word]
    return f"{key}={value or next(iter(follows), 'VALUE')}"


def _guarded(command: Callable[[], int]) -> int:
    """Return the command's exit code, or report an error and return its exit code."""
    try:
        with raising_exits():
            return flushed(command())
    except Stopped as stop:
        _complain(str(stop))
        return stop.exit_code
    except KeyboardInterrupt:
        _complain("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # `rlinf list envs | head`: the reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _reported(error)


def _reported(error: Exception) -> int:
    """Report the error, as briefly as it allows; return the exit code."""
    from rlinf.base.own_errors import own_account
    from rlinf.cluster.errors import ClusterError
    from rlinf.config.problems import ConfigErrors

    if isinstance(error, ConfigErrors):
        for problem in error.problems:
            _complain(str(problem))
        count = len(error.problems)
        _complain(f"{count} problem{'s' if count > 1 else ''}. Nothing was started.")
        return WRONG_CONFIG
    if is_user_error(error):
        _complain("\n".join([str(error), *getattr(error, "__notes__", ())]))
        return exit_code_of(error)
    missing = missing_package(error)
    if missing:
        _complain(missing)
        return WRONG_CONFIG
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE and LEVEL not in os.environ:
        # Build a sentence with the file, which a traceback would only hide.
        location = error.filename2 or error.filename or "the command"
        fix = " (ulimit -n raises the limit)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        _complain(f"{location}: {error.strerror}{fix}. RLINF_LOG=info shows the line of code.")
    elif isinstance(error, ClusterError):
        # It names the worker and holds its traceback: that of the driver would only show which call waited for it.
        _complain("\n".join([str(error), *getattr(error, "__notes__", ())]))
    elif LEVEL not in os.environ and (own := own_account(error)) is not None:
        _complain("\n".join([own, *getattr(error, "__notes__", ()), "RLINF_LOG=info shows the whole traceback."]))
    else:
        _complain("".join(traceback.format_exception(error)).rstrip())
    return FAILED


def build_parser() -> argparse.ArgumentParser:
    """All commands; the delegated ones are here for `rlinf --help`."""
    parser = Parser(
        prog="rlinf",
        description="One loop that trains language models on verified tasks and policies in simulators.",
    )
    parser.add_argument("--version", action="version", version=f"rlinf {rlinf.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    train = _add_config_command(commands, "train", _train, "train what a YAML file describes; the same command resumes")
    train.add_argument("-m", "--multirun", action="store_true", help="every combination of key=value1,value2")
    train.add_argument("--ui", action="store_true", help="show the run in the browser while it trains (rlinf ui)")
    train.add_argument(
        "--save-batches", type=positive, default=0, metavar="N", help="keep the first N batches in RUN/batches"
    )
    train.add_argument(
        "--from-batches", type=Path, metavar="DIR", help="train on kept batches, without samplers or environments"
    )
    check = _add_config_command(commands, "check", _check, "report every mistake, print the plan, start nothing")
    check.add_argument(
        "--no-build", action="store_true", help="check the file alone: make no environment, open no data"
    )
    check.add_argument(
        "--rehearse", action="store_true", help="run the learner's code at full size on fake tensors: memory, mistakes"
    )
    check.add_argument(
        "--clock",
        action="store_true",
        help="predict time and memory of a step from short runs with fewer layers and tokens",
    )
    check.add_argument(
        "--machines", metavar="NxGPUS", help="which machine holds which worker, on machines that Ray imitates: 2x8"
    )
    check.add_argument("--time", action="store_true", help="run a few steps, and estimate how long the whole run takes")
    _add_config_command(commands, "sft", _sft, "only the supervised warm start of a YAML file")
    listed = commands.add_parser("list", description="list recipes, algorithms, environments, metrics, ...")
    listed.add_argument("what", nargs="?", metavar="WHAT", help="advantages, losses, ...; without it: all there is")
    listed.set_defaults(handler=_list)
    doctor = commands.add_parser("doctor", description="what this machine can run")
    doctor.add_argument(
        "--cluster",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="check the machines of a running Ray cluster instead",
    )
    doctor.set_defaults(handler=_doctor)
    for name, (_, line) in DELEGATED.items():
        commands.add_parser(name, description=line, add_help=False)
    parser.usage = "rlinf [-h] [--version] COMMAND ..."
    parser.epilog = _grouped({name: str(command.description) for name, command in commands.choices.items()})
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _grouped(lines: Mapping[str, str]) -> str:
    """Return the list of commands for `rlinf --help`, by what they are for."""
    parts = []
    for group, names in GROUPS.items():
        parts.append("\n".join([f"{group}:", *(f"    {name:<12}{lines[name]}" for name in names)]))
    return "\n\n".join([*parts, "rlinf COMMAND --help shows the options of a command."])


def _add_config_command(
    commands: argparse._SubParsersAction[Parser],
    name: str,
    handler: Callable[[argparse.Namespace], int],
    line: str,
) -> Parser:
    command = commands.add_parser(name, description=line)
    command.add_argument("file", metavar="FILE", help="a YAML file, or the name of a recipe (`rlinf list recipes`)")
    command.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the file")
    command.add_argument("--set", action="append", default=[], metavar="key=value", help="override a configuration key")
    command.resumes = RESUMES
    command.set_defaults(handler=handler)
    return command


def _overrides(options: argparse.Namespace) -> list[str]:
    return [*options.overrides, *options.rest_overrides, *options.set]


def _load(options: argparse.Namespace, *more: str) -> Config:
    from rlinf.config import resolve

    resolved = resolve(options.file, [*_overrides(options), *more])
    for note in (*resolved.notes, *resolved.warnings):
        print(redacted(note), file=sys.stderr)
    return resolved.config


def _train(options: argparse.Namespace) -> int:
    if options.multirun:
        return _code(_function("rlinf.sweep.multirun", "multirun")(options.file, _overrides(options)))
    config = _load(options)
    with _shown(config) if options.ui else nullcontext():
        saved = {"save_batches": options.save_batches, "from_batches": options.from_batches}
        batches = {name: value for name, value in saved.items() if value}
        return _finished(_function("rlinf.train", "run")(config, **batches))


def _shown(config: Config) -> AbstractContextManager[None]:
    """Open the live view that accompanies a run."""
    from rlinf.commands.ui import live_view

    return live_view(Path(config.facts.run_dir))


def _sft(options: argparse.Namespace) -> int:
    config = _load(options, "run.max_steps=0")
    return _finished(_function("rlinf.train", "run_sft")(config))


def _finished(result: object) -> int:
    directory = getattr(result, "run_dir", None)
    if directory is not None:
        print(f"Run directory: {directory}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from rlinf.config.loading import is_sweep_file
    from rlinf.config.recipes import located, packaged, sweep_recipes
    from rlinf.planning.describe import plan

    file = packaged(options.file) or located(options.file, sweep_recipes())
    if is_sweep_file(file):
        return _code(_function("rlinf.sweep.cli", "main")([str(file), *_overrides(options), "--check"]))

    config = _load(options)
    print(redacted(str(plan(config))), flush=True)
    failing = bool(options.rehearse and _function("rlinf.commands.rehearse", "rehearse")(config))
    if not options.no_build:
        failing = bool(_function("rlinf.commands.check", "examine")(config)) or failing
    if options.machines is not None:
        failing = bool(_function("rlinf.commands.placement", "show_placement")(config, options.machines)) or failing
    if options.clock and not failing:
        _function("rlinf.commands.timing", "predict_step")(config)
    if options.time and not failing:
        _function("rlinf.commands.timing", "time_run")(config)
    return WRONG_CONFIG if failing else 0


def _list(options: argparse.Namespace) -> int:
    from rlinf.commands.listing import CHOICES, listing, tables
    from rlinf.config.names import nearest

    if options.what is None:
        print(tables())
        return 0
    if options.what not in CHOICES:
        close = nearest(options.what, CHOICES)
        meant = f" Did you mean {close[0]}?" if close else ""
        _complain(f"rlinf list {options.what}: there is {', '.join(CHOICES)}.{meant}")
        return WRONG_CONFIG
    print(listing(options.what))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from rlinf.commands.doctor import examine

    if options.cluster is None:
        findings = examine()
    else:
        from rlinf.commands.doctor_cluster import examine_cluster

        findings = examine_cluster(options.cluster)
    for finding in findings:
        print(finding)
    return FAILED if any(finding.state == "broken" for finding in findings) else 0


def _code(result: object) -> int:
    return result if isinstance(result, int) else 0


def _function(module: str, name: str) -> Callable[..., object]:
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    return function


def _complain(text: str) -> None:
    """Write to the error stream, in red if a person reads it."""
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    words = printable(redacted(text))
    print(f"\033[31m{words}\033[0m" if colour else words, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

"""Words of Hydra's command line and of others, and what stands for them here: files are read without Hydra."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_FILE = "name the file itself: {prog} FOLDER/NAME.yaml, or a recipe of `rlinf list recipes`"
_GRID = "`rlinf train FILE --multirun KEY=1,2` runs every combination, `rlinf sweep FILE` what a sweep file describes"
_SHOWN = "`rlinf check FILE` reports every mistake and prints the plan; RUN/config.yaml holds all keys of a run"
_LOGS = "RLINF_LOG=info or RLINF_LOG=debug in the environment"
_FLAGS: Mapping[tuple[str, ...], str] = {
    ("--config-name", "-cn", "--config", "--config-file", "--cfg-path"): _FILE,
    ("--dry-run", "--dry_run"): _SHOWN,
    (
        "--config-path",
        "-cp",
        "--config-dir",
        "-cd",
    ): f"{_FILE}; `extends: other.yaml` in a file starts from another one",
    ("--multirun", "-m"): _GRID,
    ("--cfg", "-c", "--resolve", "--info", "-i", "--package", "-p"): _SHOWN,
    ("--run", "-r"): "`{prog} FILE` runs, without a word for it",
    ("--hydra-help",): "{prog} --help",
    ("--shell-completion", "-sc"): "`rlinf completion SHELL`",
    ("--experimental-rerun",): "`{prog} RUN/config.yaml run.dir=DIR` runs a run's configuration again",
}
FLAGS: Mapping[str, str] = {word: meaning for words, meaning in _FLAGS.items() for word in words}
"""Option -> what does the same here; ``{prog}`` stands for the command."""
_OWN_KEYS: Mapping[str, str] = {
    "hydra.run.dir": "run.dir={value}",
    "hydra.sweep.dir": "--multirun run.dir={value}",
    "hydra.sweep.subdir": "--multirun run.dir=DIR, whose trials have folders of their own",
    "hydra.job.name": "run.name={value}",
    "hydra.job.chdir": "nothing: the working directory stays what it is",
    "hydra.output_subdir": "nothing: a run's configuration lies in RUN/config.yaml",
    "hydra.mode": _GRID,
    "hydra.verbose": _LOGS,
    "hydra.job_logging": _LOGS,
    "hydra.hydra_logging": _LOGS,
    "hydra.launcher": "`rlinf sweep FILE`, whose `resources` limit what runs in parallel",
    "hydra.sweeper": "`rlinf sweep FILE`, whose `space` and `method` define what is tried",
}
_CHOICE = re.compile(r"(?:choice|range|interval|glob)\(.*\)", re.DOTALL)


def replacement(override: str, sections: Collection[str]) -> tuple[str, str] | None:
    """Return what is wrong with an override that only Hydra reads, and what to write; None for all others.

    Args:
        override: a word of the command line.
        sections: keys at the top of a file.
    """
    added = override.startswith("+")
    key, _, value = override.lstrip("+").partition("=")
    key = key.strip()
    if override.startswith("~"):
        name = key.removeprefix("~")
        fix = f"Set it to another value, or to null where it may be empty: {name}=null."
        return f"{override!r}: no key is deleted here.", fix
    if re.match(r"hydra(?:[./=]|$)", key):
        dotted = key.replace("/", ".")
        meaning = next((text for name, text in _OWN_KEYS.items() if f"{dotted}.".startswith(f"{name}.")), None)
        fix = f"Here it is {meaning.format(value=value or 'VALUE')}." if meaning else f"Of several runs: {_GRID}."
        return f"{key} is a key of Hydra, which is not used here.", fix
    head, dot, _ = key.partition(".")
    if "/" in head or "@" in head or (added and not dot and head not in sections):
        example = f"extends: {key.partition('@')[0]}/{value or 'NAME'}.yaml"
        fix = f"A file names another one that it starts from: {example}; single keys are SECTION.KEY=VALUE."
        return f"{key} is no key: a choice of a group of Hydra has no meaning here.", fix
    if _CHOICE.fullmatch(value.strip()):
        return f"{key}={value}: ranges and choices of Hydra are not read.", f"List the values: --multirun {key}=1,2,3."
    return None

"""`rlinf check` beyond the file: everything that training makes before its first step, made and checked here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.base.redaction import redacted
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.config.derived import is_text
from rlinf.config.setting_origins import placed
from rlinf.planning.room import require_room


def examine(config: Config) -> bool:
    """Print what was found; return whether training would fail, or learn from something wrong."""
    from rlinf.train.run import counted

    try:
        config = counted(config)
    except UserError as error:
        print(redacted(str(Caveat(True, str(error), subject="sft.data"))))
        return True
    lines: list[str] = []
    try:
        require_room(config)
    except UserError as error:
        print(redacted(str(Caveat(True, str(error), subject="policy"))))
        return True
    if is_text(config):
        from rlinf.commands.text_check import examine_text

        report = examine_text(config)
        findings, lines = report.findings, report.lines
    else:
        from rlinf.commands.env_check import examine_env
        from rlinf.commands.published_check import published_findings

        findings = published_findings(config, lines)
        if not _failing(findings):
            findings += examine_env(config)
    if not _failing(findings):
        from rlinf.commands.trial_check import trial_findings

        findings += trial_findings(config)
    findings += _run_directory(config)
    findings += _source(config, lines)
    if lines:
        print(redacted("\n" + "\n".join(lines)))
    for finding in findings:
        print(redacted(str(replace(finding, message=placed(config, finding.message)))))
    # The plan names the extras that are missing.
    return _failing(findings) or any(not extra.installed for extra in config.extras)


def _run_directory(config: Config) -> list[Caveat]:
    """Remains of another run, or of an earlier part of this one, or permissions that keep this one out of it."""
    from rlinf.train.run_dir import RunDirectory

    try:
        RunDirectory(Path(config.facts.run_dir)).require_usable(config)
    except UserError as error:
        return [Caveat(True, str(error), subject="run.dir")]
    return []


def _source(config: Config, lines: list[str]) -> list[Caveat]:
    """Find the reason why a new run cannot begin with `run.init_from`; ``lines`` get what is carried over."""
    from rlinf.train.init_from import source_of
    from rlinf.train.run_dir import RunDirectory

    folder = Path(config.facts.run_dir)
    if config.run.init_from is None or RunDirectory(folder).steps():
        return []
    try:
        source = source_of(config, folder)
    except UserError as error:
        return [Caveat(True, str(error).removeprefix("run.init_from: "), subject="run.init_from")]
    lines += source.lines(config) if source is not None else []
    return []


def _failing(findings: list[Caveat]) -> bool:
    return any(finding.serious for finding in findings)

"""``rlinf publish RUN``: the policy of a run with a model card, as a folder and, if requested, on the hub."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.durable import new_folder
from rlinf.base.errors import UserError

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_TRAINING = ("config.yaml", "metrics.jsonl", "summary.json", "machine.json", "init_from.json")


def main(arguments: Sequence[str]) -> int:
    """Write the folder, send it to the hub with `--push`, and return the exit code."""
    parser = Parser(
        prog="rlinf publish",
        description="The policy of a run as a folder for the Hugging Face Hub: weights, a model card with results, "
        "curves and settings, and the records of its training. Nothing is sent without --push.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write it (default: RUN/publish)")
    parser.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step instead of the final policy")
    parser.add_argument("--license", metavar="ID", help="as the hub names it (apache-2.0); default: the base model's")
    parser.add_argument("--push", metavar="OWNER/NAME", help="send it to this repository, private unless --public")
    parser.add_argument("--public", action="store_true", help="make a new repository public")
    options = parser.parse_args(list(arguments))
    if options.push is not None and not _REPOSITORY.fullmatch(options.push):
        parser.error(f"--push {options.push}: name a repository as OWNER/NAME: letters, digits, - _ and dots")
    out = options.out or options.run / "publish"
    license = _write_folder(options.run, out, step=options.step, license=options.license)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.relative_to(out)}")
    print(f"{sum(path.stat().st_size for path in files):>12,}  bytes in {out}")
    if license is None:
        print("No licence is stated: add --license, for example --license apache-2.0.")
    if options.push is None:
        print("Nothing was sent. Read README.md there, then add --push OWNER/NAME.")
        return 0
    print(f"Sent to {push(out, options.push, private=not options.public)}")
    return 0


def _write_folder(run: Path, out: Path, *, step: int | None = None, license: str | None = None) -> str | None:
    """Write the policy, model card, curves and training records to ``out``; return the licence that is stated.

    Raises UserError if there is no policy to publish, or ``out`` holds something else.
    """
    from rlinf.report.card import card, drawn_curves, stated_license
    from rlinf.report.runs import read_run, require_inside

    record = read_run(run)
    for path in (run / "policy").rglob("*"):
        require_inside(path, run)
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / "training" / "config.yaml").is_file()):
        raise UserError(f"{out} is {'a file' if out.is_file() else 'not empty'}: name another folder with --out")
    result = license or stated_license(record)
    curves = drawn_curves(record)
    with new_folder(out) as aside:
        after = _policy(run, aside, step, record.summary)
        for name, picture in curves.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_text(picture, encoding="utf-8")
        text = card(record, step=after, license=result, curves=list(curves))
        (aside / "README.md").write_text(text, encoding="utf-8")
        (aside / "training").mkdir()
        for name in _TRAINING:
            if (run / name).is_file():
                shutil.copyfile(require_inside(run / name, run), aside / "training" / name)
        # What was published before stays until all of this is written.
        shutil.rmtree(out, ignore_errors=True)
    return result


def _policy(run: Path, folder: Path, step: int | None, summary: object) -> int:
    """Copy the exported policy, or export a checkpoint, to ``folder``; return the step it was trained to."""
    if step is None and (run / "policy").is_dir() and isinstance(summary, dict):
        shutil.copytree(run / "policy", folder)
        return int(summary["steps"])
    from rlinf.train.export_checkpoint import export_checkpoint

    return export_checkpoint(run, step, folder)


def push(folder: Path, name: str, *, private: bool) -> str:
    """Make the repository if it does not exist, and upload the folder; return its address.

    Raises UserError in the hub's words, most often because there is no account.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Policy and model card")
    except Exception as error:
        # An unreachable hub raises errors of whichever HTTP client the installed huggingface_hub has.
        unreachable = type(error).__module__.partition(".")[0].startswith(("httpx", "httpcore", "requests"))
        if not unreachable and not isinstance(error, HfHubHTTPError | LocalTokenNotFoundError | OSError | ValueError):
            raise
        raise UserError(f"--push {name}: {error}. `hf auth login` signs in; the folder is {folder}") from error
    return str(address)

"""``rlinf convert``: what a run saved to folders that others load, and Hugging Face folders to megatron layouts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlinf.errors import UserError
from rlinf.learners.convert import build_parser, is_megatron
from rlinf.learners.convert import main as convert_layout
from rlinf.train.stored_run import run_of_checkpoint, stored_run


def main(arguments: Sequence[str]) -> int:
    """Converts and returns the exit code."""
    options = build_parser().parse_args(list(arguments))
    place = run_of_checkpoint(options.folder)
    if place is None:
        if options.step is not None:
            raise UserError(f"--step {options.step} is for a run directory, and {options.folder} is none")
        return convert_layout(arguments)
    if options.out is None:
        raise UserError(f"rlinf convert {options.folder} OUT: name a new folder to write the policy into")
    run, step = place
    if step is not None and options.step not in (None, step):
        raise UserError(f"{options.folder} is the checkpoint of step {step}: leave --step {options.step} out")
    found = stored_run(run, step if options.step is None else options.step).latest()
    assert found is not None
    from rlinf.train.export_checkpoint import export_checkpoint, save_tokenizer

    if is_megatron(found.folder):
        words = [str(found.folder) if word == str(options.folder) else word for word in arguments]
        code = convert_layout(words)
        if code == 0 and os.environ.get("RANK", "0") == "0":
            save_tokenizer(run, options.out)
        return code
    if options.out.exists() and any(options.out.iterdir()):
        raise UserError(f"{options.out} is not empty: choose another folder")
    step = export_checkpoint(run, found.step, options.out)
    print(f"policy of step {step} written to {options.out}")
    return 0

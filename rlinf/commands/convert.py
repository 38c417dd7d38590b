"""``rlinf convert``: runs and GGUF files to Hugging Face folders, and such folders to megatron checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlinf.errors import UserError
from rlinf.learners.convert import build_parser, is_megatron
from rlinf.learners.convert import main as convert_layout
from rlinf.models.gguf import convert_gguf, is_gguf
from rlinf.train.stored_run import run_of_checkpoint, stored_run


def main(arguments: Sequence[str]) -> int:
    """Converts and returns the exit code."""
    options = build_parser().parse_args(list(arguments))
    if is_gguf(options.folder):
        return _from_gguf(options.folder, options.out)
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
    _require_empty(options.out)
    step = export_checkpoint(run, found.step, options.out)
    print(f"policy of step {step} written to {options.out}")
    return 0


def _from_gguf(file: Path, out: Path | None) -> int:
    if out is None:
        raise UserError(f"rlinf convert {file} OUT: name a new folder to write the model into")
    _require_empty(out)
    if out.exists():
        out.rmdir()  # the folder comes whole, by a rename
    written = convert_gguf(file, out)
    types = ", ".join(f"{count} of {name}" for name, count in written.quantisation.items())
    template = "a tokenizer with chat template" if written.chat_template else "a tokenizer without chat template"
    print(
        f"{written.parameters:,} parameters in float32 (tensors: {types}) and {template} written to {out}; its logits "
        "are those of transformers' own reading of the file"
    )
    return 0


def _require_empty(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty: choose another folder")

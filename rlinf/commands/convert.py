"""``rlinf convert``: runs and GGUF files to Hugging Face folders, and such folders to megatron checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError
from rlinf.learners.convert import convert_folder, is_first_rank, is_megatron, require_empty
from rlinf.models.gguf import convert_gguf, is_gguf
from rlinf.schema import MegatronConfig
from rlinf.train.stored_run import run_of_checkpoint

_DESCRIPTION = (
    "A run, or RUN/checkpoints/step_000010, to the folder of its policy: a Hugging Face folder with the tokenizer, "
    "adapters merged, or what a simulator policy's from_pretrained reads. A GGUF file to a Hugging Face folder, "
    "de-quantised. A Hugging Face folder to a checkpoint of the megatron learner, which loads at any layout; under "
    "torchrun every process holds its share only."
)


def main(arguments: Sequence[str]) -> int:
    """Convert and return the exit code."""
    parser = Parser(prog="rlinf convert", description=_DESCRIPTION)
    parser.add_argument(
        "folder", type=Path, metavar="IN", help="a run, a checkpoint of one, a GGUF file or a Hugging Face folder"
    )
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help="an empty or new folder")
    parser.add_argument("--step", type=int, metavar="N", help="of a run: the checkpoint of this step, not the newest")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="processes that share each matrix")
    parser.add_argument("--pipeline-parallel", type=int, default=1, help="processes that share the layers")
    parser.add_argument("--expert-parallel", type=int, default=1, help="processes that share the experts of a layer")
    options = parser.parse_args(list(arguments))
    folder, out, step = options.folder, options.out, options.step
    layout = MegatronConfig(
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.pipeline_parallel,
        expert_parallel=options.expert_parallel,
        sequence_parallel=options.tensor_parallel > 1,
    )
    if is_gguf(folder):
        _from_gguf(folder, out)
    elif run_of_checkpoint(folder) is not None:
        if out is None:
            raise UserError(f"rlinf convert {folder} OUT: name a new folder to write the policy into")
        from rlinf.train.export_checkpoint import export_checkpoint

        step = export_checkpoint(folder, step, out, layout)
        if is_first_rank():
            print(f"policy of step {step} written to {out}")
    elif step is not None:
        raise UserError(f"--step {step} is for a run directory, and {folder} is none")
    elif out is None:
        raise UserError(f"rlinf convert {folder} OUT: name a new folder to write into")
    else:
        convert_folder(folder, out, layout)
        if is_first_rank():
            kind = "Hugging Face folder" if is_megatron(folder) else "megatron checkpoint"
            print(f"{kind} written to {out}")
    return 0


def _from_gguf(file: Path, out: Path | None) -> None:
    if out is None:
        raise UserError(f"rlinf convert {file} OUT: name a new folder to write the model into")
    require_empty(out)
    if out.exists():
        out.rmdir()  # the folder comes whole, by a rename
    written = convert_gguf(file, out)
    types = ", ".join(f"{count} of {name}" for name, count in written.quantisation.items())
    template = "a tokenizer with chat template" if written.chat_template else "a tokenizer without chat template"
    print(
        f"{written.parameters:,} parameters in float32 (tensors: {types}) and {template} written to {out}; its logits "
        "are those of transformers' own reading of the file"
    )

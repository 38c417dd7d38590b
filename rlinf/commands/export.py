"""``rlinf export RUN OUT --step N``: the policy of any checkpoint of a run as a folder that other programs load."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.durable import new_folder
from rlinf.base.errors import UserError
from rlinf.base.run_folders import no_run
from rlinf.train.stored_run import run_of_checkpoint


def main(arguments: Sequence[str]) -> int:
    """Write the folder and return the exit code. Raises UserError if RUN is no run, or has no such checkpoint."""
    parser = Parser(
        prog="rlinf export",
        description="The policy of a run to a folder that others load: a Hugging Face folder with the tokenizer, "
        "adapters merged, or what a simulator policy's from_pretrained reads.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, or RUN/checkpoints/step_000010")
    parser.add_argument("out", type=Path, metavar="OUT", help="an empty or new folder")
    parser.add_argument(
        "--onnx", action="store_true", help="of an actor-critic policy also OUT/policy.onnx, checked with onnxruntime"
    )
    parser.add_argument(
        "--layout",
        choices=("rlinf", "lerobot", "openvla", "groot"),
        default="rlinf",
        help="lerobot: of a SmolVLA, pi0 or pi0.5 checkpoint also OUT/lerobot, which LeRobot loads; openvla, groot: of "
        "an OpenVLA, OpenVLA-OFT or GR00T checkpoint also OUT/openvla or OUT/groot, in its own layout",
    )
    parser.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step instead of the newest")
    options = parser.parse_args(list(arguments))
    if run_of_checkpoint(options.run) is None:
        raise UserError(no_run(options.run))
    from rlinf.learners.convert import is_first_rank, require_empty

    if "RANK" in os.environ:  # torchrun: several processes write parts of one folder
        written = _write(options, options.out)
    else:
        require_empty(options.out)
        # What cannot be written so is seen in the policy alone: OUT appears when all of it is there.
        with new_folder(options.out) as aside:
            written = _write(options, aside)
    if is_first_rank():
        print(*written, sep="\n")
    return 0


def _write(options: Namespace, folder: Path) -> list[str]:
    """Write everything that was requested into ``folder``, which is or becomes ``options.out``; return lines on it."""
    from rlinf.train.export_checkpoint import export_checkpoint

    step = export_checkpoint(options.run, options.step, folder)
    written = [f"policy of step {step} written to {options.out}"]
    if options.onnx:
        written.append(_write_onnx(folder, options.out))
    if options.layout != "rlinf":
        written.append(_write_published(folder, options.layout, options.out))
    return written


def _write_published(folder: Path, layout: str, out: Path) -> str:
    from rlinf.api.policy import Policy
    from rlinf.models.vla.published.groot_policy import GrootPolicy
    from rlinf.models.vla.published.openvla_policy import OpenVlaPolicy
    from rlinf.models.vla.published.policy import PublishedPolicy

    policy = Policy.load(folder).model
    kinds = {"openvla": OpenVlaPolicy, "lerobot": PublishedPolicy, "groot": GrootPolicy}
    if isinstance(policy, (OpenVlaPolicy, PublishedPolicy, GrootPolicy)) and isinstance(policy, kinds[layout]):
        policy.write_published(folder / layout)
        return f"{out / layout}: a {policy.checkpoint.family} checkpoint in its original layout"
    key = "policy.vla.checkpoint" if layout == "openvla" else "policy.flow.checkpoint"
    raise UserError(f"--layout {layout} is for policies of {key}: this one began otherwise")


def _write_onnx(folder: Path, out: Path) -> str:
    from rlinf.api.policy import Policy
    from rlinf.models.actor_critic.onnx_file import write_onnx

    policy = Policy.load(folder)
    if not (folder / "policy.json").exists():
        raise UserError("--onnx is for actor-critic policies: this one is a language model or a vla")
    difference = write_onnx(policy.model, policy.spaces, folder / "policy.onnx")
    return f"{out / 'policy.onnx'}: onnxruntime's actions differ by at most {difference:.1e} from the policy's"

"""`rlinf check` for a published robot policy: what of its checkpoint is not read, and what acts otherwise."""

from __future__ import annotations

from rlinf.base.errors import UserError
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.fitting import unfit_tensors
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_unread import unread_of
from rlinf.models.vla.published.openvla_actions import ENDS
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint
from rlinf.models.vla.published.reading import read_flow_checkpoint
from rlinf.models.vla.published.unread import Unread

_SUBJECT, _OPENVLA = "policy.flow.checkpoint", "policy.vla.checkpoint"
_CROP = 0.9


def published_findings(config: Config, lines: list[str]) -> list[Caveat]:
    """Find what acts otherwise than the original would; ``lines`` get what else is not read."""
    if config.facts.openvla and config.policy.path is None:
        return _openvla_findings(config, lines)
    chosen = config.policy.flow.checkpoint
    if not config.facts.published or chosen.path is None:
        return []
    try:
        checkpoint = read_flow_checkpoint(chosen, config.env.num_action_chunks)
    except UserError as error:
        return [Caveat(True, str(error), subject=_SUBJECT)]
    unread = unread_of(checkpoint) if isinstance(checkpoint, GrootCheckpoint) else checkpoint.unread()
    result = _unread(checkpoint, unread, lines, _SUBJECT)
    if isinstance(checkpoint, GrootCheckpoint):
        lines.append(f"  statistics and projections of {checkpoint.embodiment} ({checkpoint.embodiment_id})")
    theirs, ours = checkpoint.carried_out, config.env.num_action_chunks
    if theirs != ours:
        message = f"it carries out {theirs} of {checkpoint.horizon} actions, and here {ours} are."
        result.append(Caveat(False, message, f"As published: env.num_action_chunks: {theirs}.", _SUBJECT))
    if chosen.steps not in (None, checkpoint.steps):
        message = f"it integrates in {checkpoint.steps} steps, and here in {chosen.steps}."
        result.append(Caveat(False, message, "As published: leave policy.flow.checkpoint.steps out.", _SUBJECT))
    return result


def _openvla_findings(config: Config, lines: list[str]) -> list[Caveat]:
    vla, chunk = config.policy.vla, config.env.num_action_chunks
    chosen = vla.checkpoint
    try:
        checkpoint = OpenVlaCheckpoint.read(str(chosen.path))
        name, _ = checkpoint.statistics_of(vla.statistics_key)
    except UserError as error:
        return [Caveat(True, str(error), subject=_OPENVLA)]
    unread = [*checkpoint.unread(), *checkpoint.unread_statistics(name, ENDS[chosen.statistics])]
    result = _unread(checkpoint, unread, lines, _OPENVLA)
    decoding = checkpoint.decoding if chosen.decoding == "auto" else chosen.decoding
    lines.append(f"  statistics of {name}; {decoding} decoding")
    if checkpoint.files and decoding == "sequential":
        message = f"it has {', '.join(checkpoint.files.values())}, whose chunks are decoded at once."
        result.append(Caveat(True, message, "Set policy.vla.checkpoint.decoding: parallel, or auto.", _OPENVLA))
    if decoding != "sequential" and chunk != chosen.horizon:
        message = f"a chunk has {chosen.horizon} actions (policy.vla.checkpoint.horizon), and {chunk} are carried out."
        result.append(Caveat(False, message, f"As published: env.num_action_chunks: {chosen.horizon}.", _OPENVLA))
    trained = chosen.trained_diffusion_steps
    if checkpoint.diffusion and chosen.diffusion_steps != trained:
        message = f"its actions lose their noise in {trained} steps as trained, and here in {chosen.diffusion_steps}."
        result.append(
            Caveat(False, message, f"As published: policy.vla.checkpoint.diffusion_steps: {trained}.", _OPENVLA)
        )
    if vla.center_crop != _CROP:
        message = f"pictures are seen to {vla.center_crop:.0%}; fine-tuned checkpoints were trained with random crops."
        result.append(Caveat(False, message, f"As published: policy.vla.center_crop: {_CROP}.", _OPENVLA))
    return result


def _unread(
    checkpoint: FlowCheckpoint | GrootCheckpoint | OpenVlaCheckpoint,
    unread: list[Unread],
    lines: list[str],
    subject: str,
) -> list[Caveat]:
    """Find what is ``unread`` and matters, and tensors that loading refuses; ``lines`` get the rest."""
    reasons: dict[str, list[str]] = {}
    for part in [part for part in unread if not part.matters]:
        reasons.setdefault(part.why, []).append(part.name)
    head = f"{checkpoint.family} checkpoint: {len(checkpoint.shapes)} tensors; not read, without effect on actions:"
    lines += [head, *(f"  {', '.join(names)} ({why})" for why, names in reasons.items())]
    result = [
        Caveat(False, f"{part.name} is not read: {part.why}.", "Actions may differ from the original's.", subject)
        for part in unread
        if part.matters
    ]
    try:
        problems = unfit_tensors(checkpoint)
    except UserError as error:
        return [*result, Caveat(True, str(error), subject=subject)]
    for problem, listed in problems.items():
        if listed:
            message = f"tensors that are {problem}: {', '.join(listed)}."
            result.append(Caveat(True, message, "Such a checkpoint is not loaded.", subject))
    return result

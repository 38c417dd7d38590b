"""`rlinf check` for a published robot policy: what of its checkpoint is not read, and what acts otherwise."""

from __future__ import annotations

from rlinf.base.errors import UserError
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.models.vla.published.checkpoint import Checkpoint, Unread

_SUBJECT = "policy.flow.checkpoint"


def published_findings(config: Config, lines: list[str]) -> list[Caveat]:
    """Find what acts otherwise than the original would; ``lines`` get what else is not read."""
    chosen = config.policy.flow.checkpoint
    if not config.facts.published or chosen.path is None:
        return []
    try:
        checkpoint = Checkpoint.read(chosen.path, chosen.backbone)
    except UserError as error:
        return [Caveat(True, str(error), subject=_SUBJECT)]
    unread = checkpoint.unread()
    lines += _lines(checkpoint, [part for part in unread if not part.matters])
    result = [
        Caveat(False, f"{part.name} is not read: {part.why}.", "Actions may differ from the original's.", _SUBJECT)
        for part in unread
        if part.matters
    ]
    theirs, ours = int(checkpoint.config["n_action_steps"]), config.env.num_action_chunks
    if theirs != ours:
        message = f"it carries out {theirs} of {checkpoint.config['chunk_size']} actions, and here {ours} are."
        result.append(Caveat(False, message, f"As published: env.num_action_chunks: {theirs}.", _SUBJECT))
    if chosen.steps not in (None, checkpoint.steps):
        message = f"it integrates in {checkpoint.steps} steps, and here in {chosen.steps}."
        result.append(Caveat(False, message, "As published: leave policy.flow.checkpoint.steps out.", _SUBJECT))
    return result


def _lines(checkpoint: Checkpoint, unread: list[Unread]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for part in unread:
        reasons.setdefault(part.why, []).append(part.name)
    head = f"{checkpoint.family} checkpoint: {len(checkpoint.shapes)} tensors; not read, without effect on actions:"
    return [head, *(f"  {', '.join(names)} ({why})" for why, names in reasons.items())]

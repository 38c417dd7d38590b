"""Vision-language models: what of a run reads pictures, and what is refused with them."""

from __future__ import annotations

from dataclasses import fields

from rlinf.config.context import Context
from rlinf.config.derived import is_text, text_only_parts
from rlinf.models.architecture_numbers import read_architecture
from rlinf.models.vision.families import FAMILIES, REFUSED
from rlinf.schema.policy import VisionConfig


def check_vision(context: Context) -> None:
    """Check that a policy that reads pictures has a sampler and a learner that do; no other reads `policy.vision`."""
    config = context.config
    if not is_text(config):
        return
    kind = read_architecture(config.policy).get("model_type")
    if kind in REFUSED:
        key = "policy.architecture.model_type" if config.policy.path is None else "policy.path"
        context.error(key, f"{key}: {kind}: {REFUSED[str(kind)]}.", f"Take one of {', '.join(FAMILIES)}.")
    elif kind in FAMILIES:
        for key, message, fix in text_only_parts(config):
            context.error(key, message, fix)
    elif config.policy.path is None:
        for name in ("evaluation.pictures", *(f"policy.vision.{item.name}" for item in fields(VisionConfig))):
            context.unread(name, "is not read: the policy is no vision-language model.", "Take it out.")

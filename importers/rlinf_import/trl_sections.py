"""Files of projects that hold TRL's arguments in sections of their own, such as `training`, `model` and `lora`."""

from __future__ import annotations

from collections.abc import Container, Mapping

from rlinf.config.tree import Located
from rlinf_import.names.trl import TRL
from rlinf_import.written import Source

_LORA: Mapping[str, str] = {
    "enabled": "use_peft",
    "use_lora": "use_peft",
    "r": "lora_r",
    "rank": "lora_r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
}
_RUN: Mapping[str, str] = {"num_epochs": "num_train_epochs", "epochs": "num_train_epochs", "lr": "learning_rate"}
_NAMED: Mapping[str, Mapping[str, str]] = {
    "lora": _LORA,
    "peft": _LORA,
    "lora_config": _LORA,
    "peft_config": _LORA,
    "training": _RUN,
    "training_args": _RUN,
    "trainer": _RUN,
    "grpo": _RUN,
    "sft": _RUN,
    "dpo": _RUN,
    "model": dict.fromkeys(("name", "path", "name_or_path", "model_name", "id"), "model_name_or_path"),
    "dataset": dict.fromkeys(("name", "path", "train_file"), "dataset_name"),
    "data": dict.fromkeys(("train_file", "train_path", "train"), "dataset_name"),
}
"""Sections that projects usually have, with their names for TRL's arguments."""
_LEAST = 3
"""Arguments of TRL in a section that is one of them."""


def lift(source: Source, names: Container[str]) -> None:
    """Move the arguments of such sections to the top; a remark names each section."""
    tree = source.tree
    for name, located in list(tree.items()):
        branch = located.branch
        own = _NAMED.get(name, {})
        if not branch or ((name in TRL or name in names) and not own):
            continue
        known = [key for key in branch if key in own or key in TRL or key in names]
        if len(known) < _LEAST and name not in _NAMED:
            continue
        for key in list(branch) if len(known) >= _LEAST else known:
            moved = own.get(key, key)
            if moved not in tree or tree[moved] is located:
                tree[moved] = branch[key]
                del branch[key]
        if own is _LORA and "lora_r" in tree:
            tree.setdefault("use_peft", Located(True, located.origin))
        if not branch and tree.get(name) is located:
            del tree[name]
        if known:
            source.remarks.append(f"{located.origin}: {name}: its keys are read as arguments of TRL")

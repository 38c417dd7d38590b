"""A TRL script's arguments: those of its trainer, its configuration, its adapters and its data. Nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, locate
from rlinf_import.python_calls import Call, Reference, Script
from rlinf_import.refusal import NotTrainingError
from rlinf_import.written import Code, Source

TRAINERS = ("GRPOTrainer", "RLOOTrainer", "AsyncGRPOTrainer")
OTHERS: Mapping[str, tuple[str, str]] = {
    "RewardTrainer": ("training of a reward model alone", "reward_model.fit_batches, on the policy's own responses"),
    "PRMTrainer": ("training of a reward model alone", "reward_model.supervision: process"),
    "PPOTrainer": ("PPO with a reward model of its own", "adv_type: gae with loss_type: actor_critic and reward_model"),
    "DistillationTrainer": ("the trainer DistillationTrainer", "adv_type: opd with teacher.path"),
    "GKDTrainer": ("the trainer GKDTrainer", "adv_type: opd with teacher.path"),
    "GOLDTrainer": ("the trainer GOLDTrainer", "adv_type: opd with teacher.path"),
    "SDFTTrainer": ("the trainer SDFTTrainer", "adv_type: opd with teacher.past_policy: current and teacher.hint"),
    "SDPOTrainer": ("the trainer SDPOTrainer", "adv_type: opd with teacher.past_policy: current and teacher.hint"),
    "MiniLLMTrainer": ("the trainer MiniLLMTrainer", "adv_type: opd with teacher.path"),
}
_PREFERENCES = "`rlinf sft` with sft.loss: dpo (docs/sft.md)"
_PEFT: Mapping[str, object] = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
"""What peft's LoraConfig does if a script leaves it out; TRL's own arguments have other defaults."""
_LORA = {"r": "lora_r", "target_modules": "lora_target_modules"}
_POSITIONS: Mapping[str, tuple[str, ...]] = {
    "GRPOTrainer": ("model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class"),
    "SFTTrainer": ("model", "args", "data_collator", "train_dataset", "eval_dataset", "processing_class"),
    "DPOTrainer": ("model", "ref_model", "args", "data_collator", "train_dataset", "eval_dataset", "processing_class"),
}
_CONFIGS: Mapping[str, tuple[str, ...]] = {
    "SFTTrainer": ("SFTConfig", "TrainingArguments"),
    "DPOTrainer": ("DPOConfig", "TrainingArguments"),
    "AsyncGRPOTrainer": ("AsyncGRPOConfig",),
}
_OF_MODELS = ("dtype", "torch_dtype", "attn_implementation", "quantization_config", "load_in_4bit")
_SEEING = ("AutoProcessor", "AutoModelForImageTextToText", "Idefics3ForConditionalGeneration")


def read(path: Path) -> Source:
    """Read the arguments of the first trainer; raise NotTrainingError for a script that builds none."""
    script = Script.read(path)
    trainer = next((call for call in script.calls_ending("Trainer") if call.name[0].isupper()), None)
    if trainer is None:
        kind = "a script that builds no trainer of TRL"
        raise NotTrainingError(path, kind, "Import the script, file or command that trains.")
    tree: Branch = {}

    def take(values: Mapping[str, object], line: int) -> None:
        tree.update({name: locate(_plain(value), Origin(str(path), line)) for name, value in values.items()})

    configs = _CONFIGS.get(trainer.name, ("GRPOConfig", "RLOOConfig"))
    for call in script.calls(*configs):
        take(({"output_dir": call.positional[0]} if call.positional else {}) | call.named, call.line)
    for call in script.calls("LoraConfig", "get_peft_model"):
        named = {_LORA.get(name, name): value for name, value in call.named.items()}
        if call.name == "get_peft_model":  # unsloth's has the arguments of LoraConfig and others
            named = {name: value for name, value in named.items() if name.startswith("lora_")}
        if named or call.name == "LoraConfig":
            take({"use_peft": True, **_PEFT} | named, call.line)
    _data(script, take)
    positions = _POSITIONS.get(trainer.name, _POSITIONS["GRPOTrainer"])
    given = {**dict(zip(positions, trainer.positional, strict=False)), **trainer.named}
    remarks = _elsewhere(path, trainer, given.pop("args", None), [*script.calls(*configs)])
    loaded = _loaded(script, given.get("model"))
    if loaded is not None:
        names = [loaded.named.get(key) for key in ("pretrained_model_name_or_path", "model_name")]
        name = next((value for value in (*loaded.positional, *names) if value is not None), None)
        given["model"] = name if isinstance(name, str) else given["model"]
        take({key: _of_torch(value) for key, value in loaded.named.items() if key in _OF_MODELS}, loaded.line)
    take({"trainer": trainer.name} | given, trainer.line)
    _assigned(script, take, configs)
    if script.imports(*_SEEING):
        take({"processor": script.imports(*_SEEING)[0]}, 1)
    pictures = _column_of_pictures(script)
    if pictures is not None:
        take({"image_column": pictures}, 1)
    _system(script, take)
    return Source(path, tree, remarks)


def _elsewhere(path: Path, trainer: Call, settings: object, configs: list[Call]) -> list[str]:
    """Return a remark if the trainer's settings are not written in the script."""
    if not isinstance(settings, Code) or configs:
        return []
    return [
        f"{path}:{trainer.line}: args: `{settings.text}` comes from the command line, or from its --config file: "
        "import that command, or that file"
    ]


def _loaded(script: Script, model: object) -> Call | None:
    """Return the call by which the script loads its model; None for adapters, whose base is another folder."""
    if not isinstance(model, Code):
        return None
    call = script.called(model.text) if model.text.isidentifier() else None
    if "from_pretrained(" in model.text:
        call = next(Script(ast.parse(model.text), "").calls("from_pretrained"), None)
    if call is not None and call.name == "get_peft_model":
        call = next((one for one in script.calls("from_pretrained") if "Model" in one.owner), None)
    return call if call is not None and call.name == "from_pretrained" and "Peft" not in call.owner else None


def _of_torch(value: object) -> object:
    """Return ``torch.bfloat16`` and its like by name."""
    return value.text.removeprefix("torch.") if isinstance(value, Code) and value.text.startswith("torch.") else value


def other_trainer(name: str) -> tuple[str, str] | None:
    """Return the feature that another trainer stands for, and the nearest that exists here; None for GRPO and RLOO."""
    if name in TRAINERS:
        return None
    return OTHERS.get(
        name, (f"the trainer {name}", _PREFERENCES if "PO" in name and "GRPO" not in name else "adv_type: grpo")
    )


def _plain(value: object) -> object:
    """Tuples of names as lists, objects of the script as code."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if not isinstance(value, Call) else Code(value.name)


def _data(script: Script, take: object) -> None:
    """Read the first data set that is loaded: its name, or the files that a format's name stands for."""
    assert callable(take)
    for call in script.calls("load_dataset"):
        name = call.positional[0] if call.positional else call.named.get("path")
        if name is None:
            continue
        files = call.named.get("data_files", call.positional[1] if len(call.positional) > 1 else None)
        if name in ("json", "csv", "parquet", "text") and files is not None:
            take({"data_files": _first(files)}, call.line)
        else:
            take({"dataset_name": name}, call.line)
            if len(call.positional) > 1:
                take({"dataset_config": call.positional[1]}, call.line)
        for theirs, ours in (("split", "dataset_train_split"), ("name", "dataset_config")):
            if theirs in call.named:
                take({ours: call.named[theirs]}, call.line)
        return


def _first(files: object) -> object:
    if isinstance(files, dict):
        return files.get("train", next(iter(files.values()), None))
    return files[0] if isinstance(files, list) and files else files


def _assigned(script: Script, take: object, configs: tuple[str, ...]) -> None:
    """Read ``training_args.NAME = value`` after the configuration was made or parsed."""
    assert callable(take)
    for name, value, line in script.attributes("training_args", "args", "config", *script.names_for(*configs)):
        take({name: value}, line)


def _column_of_pictures(script: Script) -> str | None:
    """Return the name of the column of pictures that the script reads of its rows, as in ``row["image"]``."""
    for node in script.nodes(ast.Subscript):
        assert isinstance(node, ast.Subscript)
        if isinstance(node.slice, ast.Constant) and node.slice.value in ("image", "images"):
            return str(node.slice.value)
    return None


def _system(script: Script, take: object) -> None:
    """Read the text of a system message that the script writes into its prompts."""
    assert callable(take)
    for node in script.nodes(ast.Dict):
        assert isinstance(node, ast.Dict)
        pairs = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        role = pairs.get("role")
        if isinstance(role, ast.Constant) and role.value == "system" and "content" in pairs:
            take({"system_prompt": script.value(pairs["content"])}, node.lineno)
            return


def functions(given: object) -> list[tuple[str, str]]:
    """(name, module) of reward functions; the module is empty for a name without one."""
    listed = given if isinstance(given, list) else [] if given is None else [given]
    results = []
    for function in listed:
        if isinstance(function, Reference):
            results.append((function.name, function.module))
        else:
            module, _, name = str(function.text if isinstance(function, Code) else function).rpartition(".")
            results.append((name, module))
    return results

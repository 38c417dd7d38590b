"""`rlinf check` for the policy of a text run: are its files here, does the tokenizer fit, do adapters find layers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.machine import gpu_count
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.models.checkpoint_files import twice_there
from rlinf.models.gguf import is_gguf, model_folder

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def policy_findings(config: Config) -> list[Caveat]:
    """Obstacles to loading the policy and to adding its adapters; weights are not read."""
    findings = []
    named = {
        "policy.path": config.policy.path,
        "policy.tokenizer.path": config.policy.tokenizer.path,
        "reward_model.path": config.reward_model.path,
        "teacher.path": config.teacher.path,
    }
    for key, path in named.items():
        if path is not None and local_files(path) is None:
            findings.append(_not_here(key, path))
        elif path is not None and (words := twice_there(path)) is not None:
            findings.append(Caveat(False, f"{key}: {words}", "Take one out of the folder.", "policy"))
    findings += _unfit_models(config)
    findings += _unread_templates(config)
    lora = config.policy.lora
    if lora.rank > 0 and (config.policy.path is None or local_files(config.policy.path) is not None):
        try:
            # Build the model without memory for its weights, and search for the layers that adapters are to be
            # added to.
            from rlinf.models.loading import adapter_targets, empty_causal_lm

            model = empty_causal_lm(config.policy.path, config.policy.architecture)
            adapter_targets(model, config.policy.lora.target_modules)
        except UserError as error:
            findings.append(Caveat(True, str(error), subject="policy"))
    return findings


def _unread_templates(config: Config) -> list[Caveat]:
    """Find a tokenizer with several chat templates. Damaged files are reported where it is loaded."""
    from rlinf.models.loading import unread_template

    path = config.policy.tokenizer.path or config.policy.path
    if path is None or is_gguf(path) or config.data.chat_template == "never":
        return []
    try:
        message = unread_template(path)
    except UserError:
        return []
    return [] if message is None else [Caveat(False, message, "Take all but one out.", "prompts")]


def _unfit_models(config: Config) -> list[Caveat]:
    """Find quantised weights, a teacher that is no model of text, and a reward model without a head of rewards."""
    from rlinf.models.architecture import require_text_model
    from rlinf.models.checkpoint_files import require_trainable
    from rlinf.models.loading import checkpoint_config, require_whole, reward_model_kind
    from rlinf.models.response_ends import declared_ends

    findings = []
    teacher, judge = config.teacher.path, config.reward_model.path
    try:
        require_trainable(config.policy.path)
        for path in (config.policy.path, teacher):
            if path is not None and local_files(path) is not None:
                require_whole(path)
                declared_ends(model_folder(path))
        if teacher is not None and local_files(teacher) is not None:
            require_text_model(checkpoint_config(teacher), "teacher.path")
        if judge is not None and config.reward_model.supervision != "none" and local_files(judge) is not None:
            reward_model_kind(judge)
    except UserError as error:
        findings.append(Caveat(True, str(error), subject="policy"))
    return findings


def local_files(path: str) -> Path | None:
    """Where a path, or the name of a hub repository, is read from without a download; None if it is not here.

    A GGUF file is converted for it, if that was not done yet.
    """
    if is_gguf(path):
        return Path(model_folder(path))
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        result = try_to_load_from_cache(path, "config.json")
    except HFValidationError:
        return None
    return Path(result).parent if isinstance(result, str) else None


def _not_here(key: str, path: str) -> Caveat:
    offline = next((name for name in _OFFLINE if os.environ.get(name, "").lower() in ("1", "true", "on", "yes")), None)
    if offline is not None:
        message = f"{key}: {path} is neither a folder nor in this machine's cache, and {offline} forbids the download."
        return Caveat(True, message, f"Give a folder, or unset {offline}.", "policy")
    message = f"{key}: {path} is neither a folder nor in this machine's cache."
    return Caveat(
        False, message, "Training will request it from the Hugging Face hub: check that the name exists.", "policy"
    )


def require_tokenizer_fits(config: Config, tokenizer: Any) -> None:
    """Raise PolicyError if the tokenizer has tokens that the model has no embedding for."""
    from rlinf.models.vocabulary import require_vocabulary

    written = _architecture(config)
    text = written.get("text_config", written)
    size = text.get("vocab_size") if isinstance(text, Mapping) else None
    if isinstance(size, int):
        require_vocabulary(size, tokenizer, model=config.policy.path or "policy.architecture")


def require_architecture(config: Config, tokenizer: Any) -> None:
    """Raise PolicyError if no model of text can be made of ``policy.architecture``, or ``policy.path`` has none."""
    from rlinf.models.architecture import architecture_config, require_packs, require_runs, require_text_model
    from rlinf.models.loading import checkpoint_config, empty_causal_lm
    from rlinf.models.vision.families import text_decoder
    from rlinf.samplers.vllm_cache import require_head_size

    path, architecture = config.policy.path, config.policy.architecture
    if path is not None:
        if local_files(path) is None:
            return
        made = checkpoint_config(path)
        require_text_model(made, "policy.path")
    else:
        made = architecture_config(architecture, tokenizer)
        require_text_model(made, "policy.architecture")
        require_runs(made, config.policy.attention)
        architecture = made.to_dict()
    requested = config.cluster.gpus_per_sampler or config.cluster.gpus_per_learner
    on_cpu = not requested and gpu_count() == 0  # A configuration for GPUs may be checked on a machine without.
    if config.rollout.sampler == "vllm" and on_cpu and find_spec("vllm") is not None:
        require_head_size(made)
    if config.learner.pack and config.learner.backend != "megatron":
        require_packs(text_decoder(empty_causal_lm(path, architecture)))


def require_teacher_fits(config: Config, tokenizer: Any) -> None:
    """Raise VocabularyError if the teacher, if its files are here, has another tokenizer than the policy."""
    path = config.teacher.path
    if path is None or local_files(path) is None:
        return
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.same_tokenizer import require_same_tokenizer

    require_same_tokenizer(tokenizer, load_tokenizer(path), name=path)


def _architecture(config: Config) -> Mapping[str, Any]:
    if config.policy.path is None:
        return config.policy.architecture
    folder = local_files(config.policy.path)
    try:
        written = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder is not None else {}
    except (OSError, ValueError) as error:
        raise UserError(f"policy.path: {config.policy.path} holds no readable config.json: {error}") from error
    return written if isinstance(written, Mapping) else {}

"""Policies and tokenizers from a folder, a hub name, a GGUF file, or an architecture with random weights."""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.base.machine import installed
from rlinf.base.packages import install_command
from rlinf.models.architecture import PolicyError as PolicyError
from rlinf.models.architecture import (
    architecture_config,
    in_one_line,
    model_class,
    named_config,
    random_causal_lm,
    require_runs,
    supported_attention,
)
from rlinf.models.checkpoint_files import lfs_pointers, without_weights
from rlinf.models.finite_weights import require_finite
from rlinf.models.gguf import model_folder
from rlinf.models.progress_bars import without_progress_bars
from rlinf.models.response_ends import writable
from rlinf.models.same_tokenizer import PROBE
from rlinf.models.tokenizer import train_tokenizer
from rlinf.schema.derived import Precision
from rlinf.schema.derived import activation_dtype as dtype_name

_PROBE = f"{PROBE}\n\tdef f(x):  # 1234567 \u00e9 \u65e5\u672c"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_TEMPLATE_FILE = "chat_template.jinja"
_PROCESSOR_FILES = ("chat_template.json", "processor_config.json")
ALL_LINEAR = "all-linear"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def activation_dtype(name: Precision, device: str) -> torch.dtype:
    """``auto`` is float32 on CPU and bfloat16 on a GPU."""
    return DTYPES[dtype_name(name, on_gpu=device.startswith("cuda"))]


def load_tokenizer(path: str) -> Any:
    """Load the tokenizer of a checkpoint; a pad token is set if it has none."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = model_folder(path)
    try:
        # For a folder with a qwen2 model in it, AutoTokenizer uses Qwen's own splitting rules instead of those that a
        # tokenizer trained here was saved with: other ids, and one beyond the vocabulary.
        kind = PreTrainedTokenizerFast if _is_generic(path) else AutoTokenizer
        tokenizer = kind.from_pretrained(path, trust_remote_code=False)
        if _splits_otherwise(tokenizer, path):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(path, trust_remote_code=False)
    except Exception as error:
        reason = lfs_pointers(path) or _no_files(path) or _unreadable(path) or in_one_line(error)
        raise PolicyError(f"no tokenizer could be loaded from {path!r}: {reason}") from error
    if tokenizer.eos_token_id is None:
        raise PolicyError(
            f"the tokenizer in {path!r} has no end-of-sequence token: name it as eos_token in its tokenizer_config.json"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = _chat_template(tokenizer, path)
    return tokenizer


def _chat_template(tokenizer: Any, path: str) -> Any:
    """Return a tokenizer's chat template: its own, the only one of several names, or the one of the processor.

    Processors have it in JSON files that tokenizers do not read.
    """
    from transformers.utils import cached_file

    own = tokenizer.chat_template
    if isinstance(own, dict) and len(own) == 1:
        return next(iter(own.values()))
    for name in () if own else _PROCESSOR_FILES:
        file = cached_file(
            path,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,  # the other files are in the cache
        )
        template = (read_json_file(Path(file)) or {}).get("chat_template") if file is not None else None
        if isinstance(template, str):
            return template
    return own


def unread_template(path: str) -> str | None:
    """Describe in a sentence a folder with several chat templates that differ, of which one is read; None for all
    else."""
    folder, templates = Path(path).expanduser(), dict[str, str]()
    if (folder / _TEMPLATE_FILE).is_file():
        templates[_TEMPLATE_FILE] = (folder / _TEMPLATE_FILE).read_text(encoding="utf-8")
    for name in ("tokenizer_config.json", *_PROCESSOR_FILES):
        template = (read_json_file(folder / name) or {}).get("chat_template")
        if isinstance(template, str):
            templates[name] = template
    read, *others = templates or ("",)
    differing = [name for name in others if templates[name].strip() != templates[read].strip()]
    if not differing:
        return None
    return f"{path} has a chat template in {read}, which is read, and another one in {' and '.join(differing)}."


def _no_files(path: str) -> str:
    """Describe in a sentence a folder without any file of a tokenizer; empty for all else."""
    if not os.path.isdir(path) or any((Path(path) / name).exists() for name in _TOKENIZER_FILES):
        return ""
    return (
        f"it has none of {', '.join(_TOKENIZER_FILES)}: name the model that it was made from in policy.tokenizer.path"
    )


def _unreadable(path: str) -> str:
    """Describe in a sentence a damaged JSON file of a tokenizer, or one that needs code of its own; empty for all
    else."""
    try:
        whole, settings = (read_json_file(Path(path) / name) for name in ("tokenizer.json", "tokenizer_config.json"))
    except UserError as error:
        return str(error)
    if "auto_map" in (settings or {}):
        return (
            "it is code of its own (auto_map in tokenizer_config.json), which is not run here: save it as a "
            "tokenizer.json, or name a tokenizer that has one in policy.tokenizer.path"
        )
    return "its tokenizer.json has no model" if whole is not None and "model" not in whole else ""


def _is_generic(path: str) -> bool:
    """Return whether a folder declares its tokenizer all in ``tokenizer.json``, of no model family of transformers."""
    file, model = Path(path) / "tokenizer_config.json", Path(path) / "config.json"
    if not file.exists():
        return False
    if json.loads(file.read_text()).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return True
    # Of OpenVLA: transformers would use its own Llama rules instead of the file's, and warn of the family.
    whole = (Path(path) / "tokenizer.json").exists() and model.exists()
    return whole and json.loads(model.read_text()).get("model_type") == "openvla"


def _splits_otherwise(tokenizer: Any, path: str) -> bool:
    """Return whether AutoTokenizer splits texts by other rules than ``tokenizer.json`` has.

    Some models name the class of another family (DeepSeek's that of Llama): its rules then lose every blank.
    """
    from tokenizers import Tokenizer
    from transformers.utils import cached_file

    file = cached_file(path, "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    if file is None:
        return False
    own = Tokenizer.from_file(file).encode(_PROBE, add_special_tokens=False).ids
    return bool(tokenizer.encode(_PROBE, add_special_tokens=False) != own)


def make_tokenizer(path: str | None, *, vocab_size: int, split_digits: bool, texts: Callable[[], Iterable[str]]) -> Any:
    """Load a tokenizer from ``path``, or train one on ``texts()`` if there is none."""
    if path is not None:
        return load_tokenizer(path)
    return train_tokenizer(texts(), vocab_size=vocab_size, split_digits=split_digits)


def build_causal_lm(architecture: Mapping[str, Any], tokenizer: Any, *, seed: int) -> Any:
    """Build random float32 weights for a transformers configuration.

    Vocabulary and special tokens are the tokenizer's. Raises PolicyError if no policy can be made of it
    (`require_runs`).
    """
    config = architecture_config(architecture, tokenizer)
    with torch.random.fork_rng(devices=[]):
        require_runs(config)
        torch.manual_seed(seed)
        model = random_causal_lm(config)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model.eval()


def checkpoint_config(path: str) -> Any:
    """Read the transformers configuration of a checkpoint; PolicyError if there is none."""
    from transformers import AutoConfig

    path = model_folder(path)
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    except Exception as error:
        hint = "" if os.path.isdir(path) else " (no such folder here, and no hub could give it)"
        reason = in_one_line(error)
        if "auto_map" in (read_json_file(Path(path) / "config.json") or {}):
            reason = "its model is code of its own (auto_map), which is not run here: take one that transformers has"
        raise PolicyError(f"{path!r} holds no model configuration{hint}: {reason}") from error


def empty_causal_lm(path: str | None, architecture: Mapping[str, Any]) -> Any:
    """Build the modules of a checkpoint's model, or of an architecture's, without memory for their weights."""
    config = checkpoint_config(path) if path is not None else named_config(architecture)
    with torch.device("meta"):
        return model_class(config).from_config(config, trust_remote_code=False)


def load_causal_lm(path: str, *, dtype: torch.dtype = torch.float32, attention: str = "sdpa") -> Any:
    """Load a checkpoint's model; one that is cut short or has NaN weights is a :class:`PolicyError` that names it."""
    path = model_folder(path)
    model = _loaded(path, dtype=dtype, attention=attention, device=None)
    require_finite(model.named_parameters(), f"the checkpoint in {path!r}")
    model.generation_config = writable(model.generation_config)
    return model.eval()


def require_whole(path: str) -> None:
    """Raise PolicyError as :func:`load_causal_lm` does if tensors are missing or have other shapes; reads no weights.

    transformers needs accelerate for it: without that, nothing is checked.
    """
    if installed("accelerate"):
        _loaded(model_folder(path), dtype=torch.float32, attention="sdpa", device="meta")


def _loaded(path: str, *, dtype: torch.dtype, attention: str, device: str | None) -> Any:
    # The adapter would be trained, and exported, instead of the model.
    two_models = f"{path!r} holds a model and an adapter of peft: merge them, or take adapter_config.json out"
    if all(os.path.isfile(os.path.join(path, name)) for name in ("config.json", "adapter_config.json")):
        raise PolicyError(two_models)
    try:
        with without_progress_bars():
            config = checkpoint_config(path)
            chosen = supported_attention(config, attention)
            model, report = model_class(config).from_pretrained(
                path,
                dtype=dtype,
                attn_implementation=chosen,
                device_map=device,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except Exception as error:
        hint = "" if os.path.isdir(path) else " (no such folder here, and no hub could give it)"
        wrong = without_weights(path)
        reason = in_one_line(error) if wrong is None else wrong.what
        raise PolicyError(f"no causal language model could be loaded from {path!r}{hint}: {reason}") from error
    _require_all(path, report)
    if getattr(model, "_hf_peft_config_loaded", False):  # a hub's
        raise PolicyError(two_models)
    _describe_head(model)
    return model


def _describe_head(model: Any) -> None:
    """Write into the configuration that the output layer has weights of its own, if the checkpoint has other ones.

    transformers then leaves them untied, whatever the configuration has; other readers of an export go by that.
    """
    head, described = model.get_output_embeddings(), model.config.get_text_config(decoder=True)
    own = head is not None and head.weight is not model.get_input_embeddings().weight
    for config in (model.config, described):
        if own and getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False


def _require_all(path: str, report: Mapping[str, Collection[Any]]) -> None:
    """Raise PolicyError if a checkpoint does not have all tensors of its model: transformers draws them at random."""
    for name, there, needed in report["mismatched_keys"]:
        raise PolicyError(
            f"the checkpoint in {path!r} has {name} of shape {list(there)}, and its config.json needs {list(needed)}: "
            "correct the sizes there"
        )
    missing, others = report["missing_keys"], report["unexpected_keys"]
    if not missing:
        return
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    instead = f"; it has {min(others)} instead, which the model does not have" if others else ""
    raise PolicyError(
        f"the checkpoint in {path!r} lacks {min(missing)}{more} of its model's tensors{instead}. Save it again with "
        "save_pretrained, or correct its config.json (tie_word_embeddings, sizes)."
    )


def reward_model_kind(path: str) -> Any:
    """Return the class that loads a checkpoint with a ``score`` head; PolicyError if it has no head supported here."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    named = "".join(checkpoint_config(path).architectures or [])
    kinds = {
        "SequenceClassification": AutoModelForSequenceClassification,
        "TokenClassification": AutoModelForTokenClassification,
    }
    kind = next((loader for ending, loader in kinds.items() if named.endswith(ending)), None)
    if kind is None:
        what = f"it is a {named or 'model without a named class'}, with no score head that is known here"
        raise PolicyError(f"no reward model could be loaded from {path!r}: {what}")
    return kind


def load_reward_model(path: str, *, attention: str = "sdpa") -> Any:
    """Load a checkpoint with a ``score`` head of one or two outputs; anything else is a :class:`PolicyError` about
    it."""
    kind, path = reward_model_kind(path), model_folder(path)
    try:
        with without_progress_bars():
            model, report = kind.from_pretrained(
                path,
                dtype=torch.float32,
                attn_implementation=supported_attention(checkpoint_config(path), attention),
                output_loading_info=True,
                trust_remote_code=False,
            )
    except Exception as error:
        raise PolicyError(f"no reward model could be loaded from {path!r}: {in_one_line(error)}") from error
    outputs = model.score.out_features if isinstance(getattr(model, "score", None), torch.nn.Linear) else 0
    if report["missing_keys"] or outputs not in (1, 2):
        missing = ", ".join(sorted(report["missing_keys"])) or f"a score head of 1 or 2 outputs (it has {outputs})"
        raise PolicyError(f"the reward model in {path!r} is not complete: it lacks {missing}")
    require_finite(model.named_parameters(), f"the reward model in {path!r}")
    return model.eval()


def blank_reward_model(config: Any) -> Any:
    """Build a language model's architecture with a head that scores everything 0; weights are to be adopted."""
    from transformers import AutoModelForTokenClassification

    config = copy.deepcopy(config)
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForTokenClassification.from_config(config, dtype=torch.float32, trust_remote_code=False)
    for parameter in model.score.parameters():
        torch.nn.init.zeros_(parameter)
    return model.eval()


def adapter_targets(model: torch.nn.Module, targets: Iterable[str]) -> list[str]:
    """Return the ends of the names of the layers that get adapters; PolicyError if the model does not have them.

    "all-linear" stands for the linear layers other than the output layer, as in peft.
    """
    from transformers import PreTrainedModel
    from transformers.pytorch_utils import Conv1D

    modules = dict(model.named_modules())
    if targets == ALL_LINEAR:
        kinds = (torch.nn.Linear, Conv1D)
        heads = [module.get_output_embeddings() for module in modules.values() if isinstance(module, PreTrainedModel)]
        adapted = {name: isinstance(module, kinds) and module not in heads for name, module in modules.items()}
        others = {name.rpartition(".")[2] for name, fits in adapted.items() if not fits}
        return sorted({name.rpartition(".")[2] for name, fits in adapted.items() if fits} - others)
    targets = list(targets)
    missing = [name for name in targets if not any(f".{module}".endswith(f".{name}") for module in modules)]
    if not missing:
        return targets
    layers = dict.fromkeys(
        name.rpartition(".")[2]
        for name, module in modules.items()
        if not isinstance(module, torch.nn.Embedding) and getattr(getattr(module, "weight", None), "ndim", 0) == 2
    )
    close = [match for name in missing for match in difflib.get_close_matches(name, layers, n=1)]
    meant = f" Did you mean {', '.join(close)}?" if close else ""
    raise PolicyError(
        f"policy.lora.target_modules: the model has no {', '.join(missing)}.{meant} Its layers are {', '.join(layers)} "
        f"(target_modules: {ALL_LINEAR} takes all but the output layer)."
    )


def add_lora(model: Any, *, rank: int, alpha: int, dropout: float, target_modules: Iterable[str], seed: int) -> Any:
    """Low-rank adapters on ``target_modules``; the base weights are frozen (extra: lora)."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise PolicyError(f"policy.lora needs peft: {install_command('lora')}") from error
    targets = adapter_targets(model, target_modules)
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets, task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config)

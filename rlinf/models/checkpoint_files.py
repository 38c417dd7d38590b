"""The files of a checkpoint's weights, found without reading them, and the kind of model that it declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlinf.base.errors import UserError
from rlinf.base.file_kinds import is_lfs_pointer
from rlinf.base.json_files import read_json_file
from rlinf.base.json_text import parse_json

_WHOLE = ("model.safetensors", "pytorch_model.bin")
"""Each may be cut into files that an index in the same folder lists."""
_ADAPTER, _CUT = "adapter_config.json", ("", ".index.json")
_SHARD = re.compile(r"(model-\d+-of-\d+\.safetensors|pytorch_model-\d+-of-\d+\.bin)")
_WRAPPERS = {
    "_orig_mod.": "model._orig_mod, which torch.compile",
    "module.": "model.module, which DistributedDataParallel or DeepSpeed",
    "_fsdp_wrapped_module.": "the model that FSDP",
    "base_model.model.": "model.merge_and_unload(), which peft",
}
"""How the tensors of a wrapped model begin, and what is to be saved instead."""
_LAYOUTS = {
    "model_world_size_*_rank_*.pt": "`python -m verl.model_merger merge --backend fsdp --local_dir A --target_dir B`",
    "*.distcp": "torch.distributed.checkpoint.format_utils.dcp_to_torch_save, then save_pretrained",
    "*mp_rank_*_states.pt": "zero_to_fp32.py, which DeepSpeed puts next to them, then save_pretrained",
    "consolidated.*.pth": "convert_llama_weights_to_hf.py of transformers",
    "tf_model*.h5": "from_pretrained(..., from_tf=True) of transformers 4, then save_pretrained",
    "flax_model*.msgpack": "from_pretrained(..., from_flax=True) of transformers 4, then save_pretrained",
}
"""Files of checkpoints of other layouts, and what makes a model's folder of them."""
DOWNLOAD = "Download the checkpoint again."
_SCORES = ("SequenceClassification", "TokenClassification")
_OTHER_HEADS = ("RewardModel", "QuestionAnswering", "MultipleChoice", "NextSentencePrediction", "MaskedLM")
_ENCODERS = (
    *("albert", "bert", "big_bird", "camembert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra"),
    *("ernie", "megatron-bert", "modernbert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
    *("xlm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
)
_LARGE = (".safetensors", ".bin", ".json", ".model")
"""Endings of files that repositories of models keep in Git LFS."""


def _missing_weights(folder: Path) -> list[str]:
    """List the weight files that a model's folder lacks, none if it can be loaded."""
    for name in _WHOLE:
        if (folder / name).exists():
            return []
        if (folder / f"{name}.index.json").exists():
            return sorted(part for part in _parts(folder / f"{name}.index.json") if not (folder / part).exists())
    if shards := sorted(file.name for file in folder.iterdir() if _SHARD.fullmatch(file.name)):
        return [f"{_WHOLE[shards[0].endswith('.bin')]}.index.json"]
    if any(file.suffix == ".safetensors" for file in folder.iterdir()) or (folder / "adapter_model.bin").exists():
        return []
    return [_WHOLE[0]]


class Unusable(NamedTuple):
    """Why a folder cannot be read as a model, and what to do."""

    what: str
    fix: str = DOWNLOAD


def without_weights(path: str) -> Unusable | None:
    """Describe a folder that is to be read as a model and lacks weights, or has them in another form; None for all
    else. Of weights the headers alone are read."""
    folder = Path(path).expanduser()
    pointers = lfs_pointers(path)
    if pointers is not None:
        return Unusable(pointers, "")
    if (folder / _ADAPTER).exists() and not any(
        (folder / f"{name}{more}").exists() for name in _WHOLE for more in _CUT
    ):
        what = (
            f"{path} holds an adapter of peft and no whole model: merge it first, with "
            "peft.AutoPeftModelForCausalLM.from_pretrained(...).merge_and_unload().save_pretrained(...)"
        )
        return Unusable(what, "")
    if folder.is_file() and folder.suffix != ".gguf":
        parent = Path(path).parent
        return Unusable(f"{path} is a file, and a model is a folder: name {parent}", f"Write {parent}.")
    missing = _missing_weights(folder) if folder.is_dir() else []
    if not missing:
        return _unread(folder)
    if missing == [_WHOLE[0]]:
        what = f"{path} holds no weights: {_WHOLE[0]} (or {_WHOLE[1]}) is missing"
        inside = [file.parent for file in (*folder.glob("*/config.json"), *folder.glob("snapshots/*/config.json"))]
        near = max((one for one in inside if not _missing_weights(one)), key=_counted, default=None)
        if near is not None:
            return Unusable(f"{what}; there is a model in {near}", f"Write {near}.")
        if files := sorted(file for file in folder.glob("*.gguf") if not file.name.startswith("mmproj")):
            return Unusable(f"{what}; of GGUF the file is named itself", f"Write {files[0]}.")
        other = next((how for pattern, how in _LAYOUTS.items() if any(folder.rglob(pattern))), None)
        if other is None:
            return Unusable(what)
        return Unusable(f"{what}, and it has those of another layout", f"Write a Hugging Face folder first: {other}.")
    more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
    return Unusable(f"{path} holds only a part of its weights: {missing[0]}{more} missing")


def _counted(folder: Path) -> list[str | int]:
    """Return the name of a folder in pieces that order checkpoint-100 behind checkpoint-9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", folder.name)]


def _unread(folder: Path) -> Unusable | None:
    """Describe safetensors files that are cut short, or whose tensors have names of a wrapper around the model.

    Also whole weights next to shards with other tensors."""
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    names: list[str] = []
    for file in files:
        header, size = _header(file)
        names += header
        if size > file.stat().st_size:
            return Unusable(f"{file} is cut short: it has {file.stat().st_size:,} bytes of {size:,}")
    for prefix, saved in _WRAPPERS.items():
        if names and all(name.startswith(prefix) for name in names):
            what = f"the names of all tensors of {folder} begin with {prefix!r}"
            return Unusable(what, f"Save {saved} wraps, or rename them.")
    if shards := _further_shards(folder):
        whole, cut = _header(folder / _WHOLE[0])[0], dict[str, object]()
        for shard in shards:
            cut |= _header(shard)[0]
        if differing := sorted(name for name in {*whole, *cut} if whole.get(name) != cut.get(name)):
            what = (
                f"{folder} holds two models: {_WHOLE[0]}, and {shards[0].name} with others, which differ in "
                f"{len(differing)} tensors ({differing[0]})"
            )
            return Unusable(what, "Take one of them out of the folder.")
    return None


def twice_there(path: str) -> str | None:
    """Describe in a sentence a folder that has weights in two forms, of which one is read; None for all else."""
    folder = Path(path).expanduser()
    if shards := _further_shards(folder):
        return f"{path} holds {_WHOLE[0]}, which is loaded, and {shards[0].name} with others, which is not read."
    read, other = (next((name + cut for cut in _CUT if (folder / (name + cut)).is_file()), None) for name in _WHOLE)
    if read is None or other is None:
        return None
    return f"{path} holds {read}, which is loaded, and {other}, which is not read."


def _further_shards(folder: Path) -> list[Path]:
    """List the shards of an index that stand next to whole weights, which are read instead."""
    if not (folder / _WHOLE[0]).is_file():
        return []
    named = _parts(folder / f"{_WHOLE[0]}.index.json") - {_WHOLE[0]}
    return [folder / name for name in sorted(named) if (folder / name).is_file()]


def _header(file: Path) -> tuple[dict[str, object], int]:
    """Read off a safetensors file (its tensors by name, with dtype and shape; the bytes of all); of others no names
    and 0."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        text = opened.read(size) if size < file.stat().st_size else b""
    try:
        tensors = {name: facts for name, facts in parse_json(text).items() if name != "__metadata__"}
        end = max((facts["data_offsets"][1] for facts in tensors.values()), default=0)
        return {name: (facts["dtype"], facts["shape"]) for name, facts in tensors.items()}, 8 + size + end
    except (ValueError, TypeError, AttributeError, LookupError):
        return {}, 0


def require_trainable(path: str | None) -> None:
    """Raise UserError for a folder whose config.json states that its weights are quantised."""
    file = Path(path or "").expanduser() / "config.json"
    written = read_json_file(file) or {} if path is not None and file.is_file() else {}
    settings = written.get("quantization_config", written.get("quantization"))  # the latter is MLX's
    if isinstance(settings, dict):
        method = settings.get("quant_method", "quantization_config")
        raise UserError(
            f"policy.path: {path} is quantised ({method}), and such weights are not trained: name the checkpoint that "
            "it was made from (often without -GPTQ, -AWQ, -FP8 or -4bit in its name)"
        )


def without_token_head(written: Mapping[str, object]) -> str | None:
    """Describe in a sentence the model of a ``config.json`` that does not predict next tokens; None for all else.

    >>> without_token_head({"architectures": ["LlamaForSequenceClassification"]})
    'LlamaForSequenceClassification scores texts and predicts no tokens: only reward_model.path reads such a model'
    >>> without_token_head({"architectures": ["BertModel"], "model_type": "bert"})
    'BertModel is an encoder, whose tokens read those after them: it predicts no next token'
    """
    named, kind = written.get("architectures"), str(written.get("model_type"))
    name = str(named[0]) if isinstance(named, list) and named else kind
    if name.endswith(_SCORES):
        return f"{name} scores texts and predicts no tokens: only reward_model.path reads such a model"
    if kind in _ENCODERS and not written.get("is_decoder"):
        return f"{name} is an encoder, whose tokens read those after them: it predicts no next token"
    if name.endswith(_OTHER_HEADS):
        return f"{name} has another output layer than one of next tokens"
    if written.get("is_encoder_decoder"):
        return f"{name} is an encoder with a decoder: policies are decoders alone"
    return None


def lfs_pointers(path: str) -> str | None:
    """Describe in a sentence a folder whose files are pointers of Git LFS; None for all else."""
    folder = Path(path).expanduser()
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [file.name for file in files if file.suffix in _LARGE and file.is_file() and is_lfs_pointer(file)]
    if not names:
        return None
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    return f"{path} holds pointers of Git LFS instead of {names[0]}{more}: run `git lfs pull` there"


def _parts(index: Path) -> set[str]:
    """Read the files that an index names; none if it is damaged, which loading reports."""
    try:
        named = (read_json_file(index) or {}).get("weight_map")
    except UserError:
        return set()
    return {str(name) for name in named.values()} if isinstance(named, dict) else set()

"""Writes a tokenizer so that plain ``AutoTokenizer`` splits text as it does here."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rlinf.models.response_ends import declare_ends

_MODULE = "tokenization_saved"
_CLASS = "SavedTokenizer"
_SOURCE = f'''"""The tokenizer of this folder as `tokenizer.json` describes it, whatever the kind of model."""

from transformers import PreTrainedTokenizerFast


class {_CLASS}(PreTrainedTokenizerFast):
    """All of it is in `tokenizer.json`."""
'''


def export_tokenizer(tokenizer: Any, ends: Collection[int], folder: str | Path) -> None:
    """Write into the folder of an exported policy its tokenizer, and which tokens end its responses."""
    save_tokenizer(tokenizer, folder)
    declare_ends(ends, folder)


def save_tokenizer(tokenizer: Any, folder: str | Path) -> None:
    """Write ``tokenizer`` into ``folder``, which holds the ``config.json`` of its model.

    For some kinds of model (qwen2 among them) ``AutoTokenizer`` replaces the splitting rules in
    ``tokenizer.json`` by those of that family. If it would, an ``auto_map`` entry in ``tokenizer_config.json``
    prevents this: transformers then takes the class that the file names, without code of the folder. The module
    that the entry names is there for callers who trust remote code, and has the same effect.
    """
    path = Path(folder)
    tokenizer.save_pretrained(str(path))
    if _splits_alike(tokenizer, path):
        return
    file = path / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["auto_map"] = {"AutoTokenizer": [None, f"{_MODULE}.{_CLASS}"]}
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (path / f"{_MODULE}.py").write_text(_SOURCE, encoding="utf-8")


def _splits_alike(tokenizer: Any, folder: Path) -> bool:
    """Whether ``AutoTokenizer`` reads the folder with the rules that ``tokenizer`` has; true without a fast backend."""
    from transformers import AutoTokenizer

    own = _rules(tokenizer)
    if own is None or not (folder / "config.json").exists():
        return True
    return own == _rules(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))


def _rules(tokenizer: Any) -> tuple[object, ...] | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    whole = json.loads(backend.to_str())
    return (*(whole.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")), tokenizer.get_vocab())

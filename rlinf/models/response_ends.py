"""Tokens that end a response: what a checkpoint declares, and what an exported policy declares in its turn."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file

_FILE = "generation_config.json"
_CHANGES_TOKENS = ("repetition_penalty", "no_repeat_ngram_size", "encoder_repetition_penalty", "length_penalty")
"""Also of greedy decoding."""


def declared_ends(model: str) -> set[int]:
    """``eos_token_id`` of ``config.json`` and ``generation_config.json`` (chat models list several).

    ``model``: a folder, or the hub name of a model whose files are here. Raises UserError for a damaged file, and for
    an end that is no token id.
    """
    from transformers import AutoConfig

    named: list[Any] = [getattr(AutoConfig.from_pretrained(model), "eos_token_id", None)]
    if (settings := _settings(model)) is not None:
        named.append(settings.eos_token_id)
    try:
        return listed(named)
    except (TypeError, ValueError) as error:
        message = f"{model}: eos_token_id of config.json or {_FILE} is no token id, nor a list of such: {error}"
        raise UserError(message) from error


def own_sampling(model: str) -> str:
    """List settings of a model's ``generation_config.json`` that ``generate`` applies, not rlinf; empty if none."""
    result = _settings(model)
    values = {name: getattr(result, name, None) for name in _CHANGES_TOKENS}
    return ", ".join(f"{name} {value:g}" for name, value in values.items() if value not in (None, 0, 1))


def _settings(model: str) -> Any:
    """Read the ``generation_config.json`` of a model; None without one, as many models are.

    Raises UserError for a damaged one, which transformers takes for none."""
    from transformers import GenerationConfig

    read_json_file(Path(model) / _FILE)
    with contextlib.suppress(OSError):
        return GenerationConfig.from_pretrained(model)
    return None


def writable(generation: Any) -> Any:
    """Return the settings of ``generate``, or the ends of texts alone if transformers reads them and writes none such.

    Many models set a temperature without ``do_sample``; such a setting has no effect.
    """
    from transformers import GenerationConfig

    try:
        generation.validate(strict=True)
    except ValueError:
        return GenerationConfig(bos_token_id=generation.bos_token_id, eos_token_id=generation.eos_token_id)
    return generation


def listed(named: Collection[Any]) -> set[int]:
    """Return the ids in ``named``, each of which is None, an id or a list of ids.

    >>> listed([None, 2, [2, 7]])
    {2, 7}
    """
    return {int(one) for entry in named for one in (entry if isinstance(entry, list) else [entry]) if one is not None}


def declare_ends(ends: Collection[int], folder: str | Path) -> None:
    """Write ``ends`` into the ``generation_config.json`` of ``folder``, if its files do not declare them all.

    ``generate`` of transformers and servers then stop at the tokens that the policy was trained to end with.
    """
    path = Path(folder)
    if not (path / "config.json").exists():
        return
    file = path / _FILE
    settings = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    fallback = json.loads((path / "config.json").read_text(encoding="utf-8")).get("eos_token_id")
    # generate reads config.json only where there is no generation_config.json
    declared = listed([settings.get("eos_token_id") if settings else fallback])
    if not set(ends) <= declared:
        settings["eos_token_id"] = sorted(declared | set(ends))
        settings.pop("_from_model_config", None)  # transformers may replace the settings of a file with this mark
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

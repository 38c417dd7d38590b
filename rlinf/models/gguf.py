"""GGUF files, the format of llama.cpp: de-quantised to Hugging Face folders, which everything else here reads."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.durable import first_folder
from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.models.progress_bars import without_progress_bars

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_PACKAGES = ("gguf", "accelerate")
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""Names that llama.cpp gives to splitting rules where every digit stands alone and the rest is split as by GPT-2
(``llm_tokenizer_bpe`` in its source). transformers reads these files with the rules of GPT-2 alone, which join blanks
before a number differently."""
_SAMPLE = "Tom has 12 apples.\n\n  Anna gives him 30 more. How many does he have? 12 + 30 = 42."


class GGUFError(UserError):
    """A GGUF file that cannot be read or converted; the message states what is missing."""


@dataclass(frozen=True)
class _Facts:
    """The metadata of a file: neither weights nor vocabulary."""

    quantisation: Mapping[str, int]
    splitting: str | None
    """llama.cpp's name of the tokenizer's splitting rules."""
    vocabulary: int
    begins_with_bos: bool
    """Whether every text begins with the token ``<bos>``."""


@dataclass(frozen=True)
class _Conversion:
    """The result of a conversion."""

    parameters: int
    quantisation: Mapping[str, int]
    """Name of a GGUF tensor type -> how many tensors had it."""
    chat_template: bool


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a GGUF file, by its ending."""
    return os.fspath(path).endswith(SUFFIX)


def model_folder(path: str) -> str:
    """Return the Hugging Face folder of ``path``, or for a GGUF file its conversion, made on the first call.

    ``~`` is the home folder; a name on the hub stays as it is.

    Conversions are kept in :func:`cached_folder`.

    Raises:
        GGUFError: see :func:`convert_gguf`.
    """
    if not is_gguf(path):
        return os.path.expanduser(path)
    folder = cached_folder(path)
    if not folder.is_dir():
        print(f"{path}: converting to {folder} (once)", file=sys.stderr)
        convert_gguf(Path(path).expanduser(), folder)
    return str(folder)


def cached_folder(path: str) -> Path:
    """Return the folder of a GGUF file's conversion: ``~/.cache/rlinf/models`` (or below ``XDG_CACHE_HOME``).

    A file that was written again has another folder. The folder need not exist.
    """
    file = Path(path).expanduser().resolve()
    facts = file.stat() if file.exists() else None
    mark = f"{file}:{facts.st_size}:{facts.st_mtime_ns}" if facts is not None else str(file)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rlinf" / "models"
    return cache / f"{file.stem}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}"


def convert_gguf(file: Path, out: Path) -> _Conversion:
    """Write ``file`` as a Hugging Face folder in float32: weights, configuration, tokenizer and chat template.

    The folder appears whole or not at all. Before, it is read back. Its logits on a sentence must be those of the
    model that transformers itself makes of the file, bit for bit.

    Raises:
        GGUFError: a package is missing, ``file`` is no GGUF file, or transformers lacks its architecture.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise GGUFError(f"{file}: reading it needs {' and '.join(missing)}: {install_command('gguf')}")
    _require_gguf(file)
    out.parent.mkdir(parents=True, exist_ok=True)
    facts = _facts(file)
    tokenizer = _read_tokenizer(file, facts)
    model = _read_model(file)
    with first_folder(out) as aside:
        _write(file, model, tokenizer, aside)
    return _Conversion(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        quantisation=facts.quantisation,
        chat_template=tokenizer.chat_template is not None,
    )


def _require_gguf(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise GGUFError(f"{file}: {error.strerror}") from error
    if magic == b"vers":
        raise GGUFError(f"{file} is the pointer of a file in Git LFS, not the file: fetch it (git lfs pull)")
    if magic != _MAGIC:
        raise GGUFError(f"{file} is no GGUF file: it begins with {magic!r}, not {_MAGIC!r}")


def _facts(file: Path) -> _Facts:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(str(file))
        splitting, tokens, bos, kind = (
            reader.get_field(f"tokenizer.ggml.{name}") for name in ("pre", "tokens", "add_bos_token", "model")
        )
        types = Counter(tensor.tensor_type.name for tensor in reader.tensors)
    except Exception as error:  # the package raises what it likes at a file that is cut short
        raise GGUFError(f"{file} cannot be read: {error}. Is it whole?") from error
    if tokens is None:
        raise GGUFError(f"{file} has no vocabulary (tokenizer.ggml.tokens)")
    # llama.cpp's own default: SentencePiece vocabularies, which it calls llama, begin with <bos>.
    begins = bos.contents() if bos is not None else kind is not None and kind.contents() == "llama"
    return _Facts(dict(types), splitting.contents() if splitting is not None else None, len(tokens.data), bool(begins))


def _read_tokenizer(file: Path, facts: _Facts) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, trust_remote_code=False)
    except Exception as error:  # and so does transformers
        raise GGUFError(f"no tokenizer could be read from {file}: {error}") from error
    if facts.splitting in _SINGLE_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if len(tokenizer) > facts.vocabulary:
        tokenizer = _without_additions(tokenizer, facts.vocabulary)
    if facts.begins_with_bos and tokenizer.bos_token_id is not None:
        _begin_with_bos(tokenizer)
    return tokenizer


def _begin_with_bos(tokenizer: Any) -> None:
    """Put ``<bos>`` in front of every text, which transformers does not read from the file."""
    from tokenizers import processors

    mark = tokenizer.bos_token
    template = processors.TemplateProcessing(
        single=f"{mark} $A", pair=f"{mark} $A {mark}:1 $B:1", special_tokens=[(mark, tokenizer.bos_token_id)]
    )
    before = tokenizer.backend_tokenizer.post_processor
    empty = before is None or isinstance(before, processors.TemplateProcessing)
    tokenizer.backend_tokenizer.post_processor = template if empty else processors.Sequence([before, template])


def _without_additions(tokenizer: Any, vocabulary: int) -> Any:
    """Remove what transformers adds to the tokenizer behind the vocabulary: <|endoftext|>, if a file has none."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    written = json.loads(tokenizer.backend_tokenizer.to_str())
    written["added_tokens"] = [token for token in written["added_tokens"] if token["id"] < vocabulary]
    own = {token: number for token, number in written["model"]["vocab"].items() if number < vocabulary}
    written["model"]["vocab"] = own
    named = {name: token for name, token in tokenizer.special_tokens_map.items() if token in own}
    backend = Tokenizer.from_str(json.dumps(written))
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=tokenizer.chat_template, **named)


def _read_model(file: Path) -> Any:
    """Load the model that transformers makes of the file, with weights in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    from rlinf.models.finite_weights import require_finite

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
    except Exception as error:  # likewise
        raise GGUFError(f"transformers cannot read {file} as a causal language model: {error}") from error
    model, report = loaded
    if report["missing_keys"]:
        raise GGUFError(f"{file} is not complete: it lacks {', '.join(sorted(report['missing_keys'])[:5])}")
    require_finite(model.named_parameters(), str(file))
    return model.eval()


def _write(file: Path, model: Any, tokenizer: Any, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    # A model that came from a GGUF file calls itself quantised and refuses to be saved.
    config = model.config.to_dict()
    for name in ("quantization_config", "_model_name_or_path"):
        config.pop(name, None)
    with torch.device("meta"):
        plain = type(model)(type(model.config)(**config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.generation_config = model.generation_config
    with without_progress_bars():
        plain.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    tokens = tokenizer(_SAMPLE, return_tensors="pt")["input_ids"]
    with torch.inference_mode(), without_progress_bars():
        expected = model(input_ids=tokens).logits
        result = (
            AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, trust_remote_code=False)
            .eval()(input_ids=tokens)
            .logits
        )
    if not torch.equal(expected, result):
        gap = float((expected - result).abs().max())
        raise GGUFError(f"{file}: the converted model's logits differ from those of the file by up to {gap:.3g}")

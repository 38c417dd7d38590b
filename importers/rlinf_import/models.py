"""Words that several frameworks use for attention, precision, adapters and schedules, as values of ours."""

from __future__ import annotations

import re

from rlinf_import.sheet import Sheet

ATTENTION = {
    "fa2": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "auto": "sdpa",
    "sdpa": "sdpa",
    "eager": "eager",
}
PRECISIONS = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "16-bf": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
    "32": "float32",
    "auto": "auto",
}
_HALF = ("fp16", "float16", "half", "16")
_MEGATRON_LAYERS = {
    "linear_qkv": ["q_proj", "k_proj", "v_proj"],
    "linear_proj": ["o_proj"],
    "linear_fc1": ["gate_proj", "up_proj"],
    "linear_fc2": ["down_proj"],
    "o_proj": ["o_proj"],
}
_SCHEDULES = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "linear": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
    "cosine_annealing": "cosine",
}
PICTURES = "prompts with images, sound or video"
"""The feature that a refusal names."""
SEEING = re.compile(
    r"(?i)(\b|[-_\d])vl([-_/\d]|$)|omni|vision|minicpm[-_]?[ov]|internvl|llava|vlm|multimodal|geo3k|geometry3k"
)
"""Names of models that read images, sound or video."""
_TRAINED = re.compile(r"(?i)qwen-?(2|2[._]5|3)-?vl|smolvlm|idefics3|llava-(hf/llava-)?1\.5")
"""Names of models whose pictures are read here (docs/vision.md)."""
_DATA = re.compile(r"(?i)geo3k|geometry3k")
"""Names of data sets with pictures."""


def attention(sheet: Sheet, key: str) -> None:
    """Set ``policy.attention``; an implementation that is not offered becomes PyTorch's own."""
    given = sheet.text(key)
    if not given:
        return
    sheet.put("policy.attention", ATTENTION.get(given, "sdpa"), key)
    if given not in ATTENTION:
        sheet.differ(key, "attention is sdpa, eager or flash_attention_2: sdpa computes the same")


def precision(sheet: Sheet, key: str) -> None:
    """Set ``policy.dtype``; float16 becomes bfloat16, which needs no loss scaling."""
    given = sheet.text(key).removeprefix("torch.")
    if not given:
        return
    sheet.put("policy.dtype", PRECISIONS.get(given, "bfloat16"), key)
    if given in _HALF:
        sheet.differ(key, "float32 and bfloat16 are offered: bfloat16 has the same size")
    elif given not in PRECISIONS:
        sheet.differ(key, "float32 and bfloat16 are offered: bfloat16 is set")


def adapters(
    sheet: Sheet,
    rank: str,
    alpha: str,
    targets: str,
    dropout: str | None = None,
    usual: str = "all-linear",
    scale: int | None = None,
) -> None:
    """Set ``policy.lora`` from four keys; without a rank above 0 nothing is adapted.

    ``usual``: the layers that are adapted if the file names none; ``scale``: alpha / rank if it gives no alpha.
    """
    number = sheet.count(rank)
    if not number:
        for key in (alpha, targets, dropout):
            if key:
                sheet.ignore(key, "without a rank of adapters nothing reads it")
        return
    sheet.put("policy.lora.rank", number, rank)
    given = sheet.number(alpha)
    if given is not None:
        sheet.put("policy.lora.alpha", int(given), alpha)
        if given != int(given):
            sheet.differ(alpha, f"alpha is a whole number here: {int(given)}")
    elif scale is not None:
        sheet.put("policy.lora.alpha", scale * number, rank)
    _targets(sheet, targets, usual)
    if dropout and sheet.number(dropout):
        sheet.put("policy.lora.dropout", sheet.number(dropout), dropout)


def _targets(sheet: Sheet, key: str, usual: str) -> None:
    given = sheet.take(key)
    names = given if isinstance(given, list) else re.split(r"[,\s]+", str(given or usual))
    if "all-linear" in names or "all" in names:
        sheet.put("policy.lora.target_modules", "all-linear", key)
        return
    layers = [layer for name in names for layer in _MEGATRON_LAYERS.get(str(name), [str(name)])]
    sheet.put("policy.lora.target_modules", list(dict.fromkeys(layers)), key)
    if sheet.written(key) is None:
        which = ", ".join(map(str, names))
        sheet.differ(key, f"the layers {which} of a Llama or Qwen decoder: other models name theirs otherwise")


def schedule(sheet: Sheet, key: str, ours: str = "learner.optimizer.schedule") -> None:
    """Set a schedule: that of the learner, or ``sft.schedule``."""
    given = sheet.text(key).lower()
    if not given:
        return
    chosen = _SCHEDULES.get(given)
    sheet.put(ours, chosen or "cosine", key)
    if chosen is None:
        sheet.differ(key, "schedules are constant, linear and cosine: cosine is set")


def reads_pictures(sheet: Sheet, *keys: str) -> None:
    """Refuse a language model run whose model reads images, sound or video."""
    for key in keys:
        if SEEING.search(sheet.text(key)):
            nearest = "text alone, or policy.name: vla in a simulator"
            sheet.refuse(PICTURES, nearest, key)
            return


def pictures(sheet: Sheet, model: str, data: str, field: str, *keys: str) -> None:
    """Set the field of the rows' pictures, or refuse a model that reads what is not read here.

    ``model``, ``data``: their keys of the model and of the data set; ``field``: the usual name of the column;
    ``keys``: their keys that name the column, of which the first that is written counts.
    """
    name = sheet.text(model)
    if SEEING.search(name) and not _TRAINED.search(name):
        sheet.refuse(PICTURES, "a model of docs/vision.md, such as Qwen2.5-VL", model)
        return
    named = next((key for key in keys if sheet.text(key)), None)
    if named is None and not _TRAINED.search(name) and not _DATA.search(sheet.text(data)):
        return
    cause = named or (model if _TRAINED.search(name) else data)
    sheet.put("env.kwargs.image_field", sheet.text(named) if named else field, cause)
    if not named:
        sheet.differ(cause, f"pictures of a row are read from its column `{field}`")

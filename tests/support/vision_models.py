"""Tiny vision-language models of every family that is trained here, with tokenizers that have their marks."""

from typing import Any

import numpy as np
import torch

from rlinf.data.pictures import address
from rlinf.models.architecture import architecture_config, random_causal_lm
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vision.families import FAMILIES
from rlinf.models.vision.reading import PictureReader, picture_reader
from rlinf.schema.policy import VisionConfig

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
_QWEN = {"depth": 2, "num_heads": 2, "patch_size": 7}
_VIT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}
_WIDE = {"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "text_config": _TEXT | _ROPE,
        "vision_config": _QWEN | {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2},
    },
    "qwen2_5_vl": {
        "text_config": _TEXT | _ROPE,
        "vision_config": _QWEN | _WIDE | {"fullatt_block_indexes": [1], "window_size": 28},
    },
    "qwen3_vl": {
        "text_config": _TEXT | _ROPE | {"head_dim": 16},
        "vision_config": _QWEN | _WIDE | {"deepstack_visual_indexes": [0], "num_position_embeddings": 64},
    },
    "idefics3": {"text_config": _TEXT | {"model_type": "llama"}, "vision_config": _VIT, "scale_factor": 2},
    "smolvlm": {"text_config": _TEXT | {"model_type": "llama"}, "vision_config": _VIT, "scale_factor": 2},
    "llava": {
        "text_config": _TEXT | {"model_type": "llama"},
        "vision_config": _VIT | {"model_type": "clip_vision_model", "projection_dim": 32},
    },
}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}PLACEHOLDER{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer_of(model_type: str, *, chat: bool = True) -> Any:
    """A tokenizer that has the marks of a family and a chat template, which writes its placeholder."""
    tokenizer = train_tokenizer(["Which colour is the shape on the left? red green blue yellow 1 2 3"], vocab_size=280)
    marks = FAMILIES[model_type].marks
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks, "<|im_start|>", "<|im_end|>"]})
    if chat:
        tokenizer.chat_template = CHATML.replace("PLACEHOLDER", FAMILIES[model_type].placeholder)
    return tokenizer


def tiny_vision(model_type: str, tokenizer: Any, **vision: Any) -> tuple[Any, PictureReader]:
    """(model, reader) of a family, with random weights; its configuration has the tokenizer's ids of its marks."""
    vocabulary = tokenizer.get_vocab()
    ids = {"image_token_id": vocabulary.get("<image>", vocabulary.get("<|image_pad|>"))}
    if "<|video_pad|>" in vocabulary:
        ids["video_token_id"] = vocabulary["<|video_pad|>"]
        ids["vision_start_token_id"] = vocabulary["<|vision_start|>"]
        ids["vision_end_token_id"] = vocabulary["<|vision_end|>"]
    config = architecture_config({"model_type": model_type, **ids, **ARCHITECTURES[model_type]}, tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = random_causal_lm(config).eval()
    reader = picture_reader(config, None, VisionConfig(**vision))
    assert reader is not None
    return model, reader


def picture(seed: int, height: int = 28, width: int = 28) -> str:
    """The address of a picture of noise."""
    return address(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))

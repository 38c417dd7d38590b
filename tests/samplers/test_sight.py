"""Prompts with pictures as other engines take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from vision_models import picture, tiny_vision, tokenizer_of

from rlinf.data.pictures import address, as_data, marked, opened
from rlinf.models.vision.families import FAMILIES
from rlinf.models.vision.features import PlaceError
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.sight import picture_spans, with_placeholders


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_servers_prompt_is_that_of_the_chat_template(model_type: str) -> None:
    """One placeholder a picture, where the template writes it: what a server's own processor begins with."""
    tokenizer = tokenizer_of(model_type)
    _, reader = tiny_vision(model_type, tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    uris = [picture(0, 28, 56), picture(1), picture(2)]
    ids = renderer.prompt("red" + marked(uris[0]) + marked(uris[1]) + " and " + marked(uris[2]) + "Which?")
    family = FAMILIES[model_type]
    placeholder = tokenizer.get_vocab()[family.feature]
    written = f"red{family.placeholder * 2} and {family.placeholder}Which?"
    chat = f"<|im_start|>user\n{written}<|im_end|>\n<|im_start|>assistant\n"
    found = with_placeholders(ids, uris, reader, placeholder)
    assert found == tokenizer.encode(chat, add_special_tokens=False)


def test_features_of_other_pictures_are_an_error() -> None:
    tokenizer = tokenizer_of("qwen2_vl")
    _, reader = tiny_vision("qwen2_vl", tokenizer)
    ids = PromptRenderer(tokenizer, reader=reader).prompt(marked(picture(0)) + "Which?")
    ((start, end),) = picture_spans(ids, [picture(0)], reader)
    assert list(ids[start:end]) == [token for token in ids if token < 0]
    with pytest.raises(PlaceError, match=r"4 feature tokens, and its pictures have \[8\]"):
        picture_spans(ids, [picture(0, 28, 56)], reader)


def test_a_file_is_sent_as_data(tmp_path: Path) -> None:
    opened(picture(3)).save(tmp_path / "one.png")
    sent = as_data(address(tmp_path / "one.png"))
    assert sent.startswith("data:image/png;base64,")
    assert opened(sent).tobytes() == opened(picture(3)).tobytes()

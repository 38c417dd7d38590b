"""Pictures in texts and rows: addresses, broken files, and where pictures go."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rlinf.base.errors import UserError
from rlinf.data.picture_fields import content_text, field_pictures, with_pictures
from rlinf.data.pictures import (
    PictureError,
    address,
    described,
    digest,
    has_picture,
    marked,
    observed,
    opened,
    picture_ids,
    pictures_of,
    with_other_pictures,
)

PIXELS = np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3)


def file_of(kind: str = "PNG", pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(file_of())
    return tmp_path


def test_a_picture_is_the_same_however_a_field_has_it(folder: Path) -> None:
    path, content = "a.png", file_of()
    forms: list[Any] = [path, str(folder / path), content, {"bytes": content, "path": None}]
    forms += [{"bytes": None, "path": path}, Image.fromarray(PIXELS), PIXELS, address(content)]
    for form in forms:
        (uri,) = field_pictures(form, folder)
        assert np.array_equal(np.asarray(opened(uri)), PIXELS), form
    assert len(field_pictures([path, {"bytes": content}], folder)) == 2
    assert field_pictures(None, folder) == field_pictures([], folder) == field_pictures("", folder) == []
    # Held-out questions are found by contents, wherever they are.
    assert {digest(uri) for form in forms[:5] for uri in field_pictures(form, folder)} == {digest(address(content))}


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_broken_file_is_an_error_in_words(folder: Path, kind: str, damage: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = file_of(kind, noise)
    (folder / "b").write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"<html>"}[damage])
    for value in ("b", {"bytes": (folder / "b").read_bytes()}):
        with pytest.raises(PictureError, match="no picture"):
            field_pictures(value, folder)
    assert issubclass(PictureError, UserError)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none.png", "no picture can be read from .*none.png.*No such file"),
        ("https://example.com/a.png", "is on the web"),
        ({"width": 3}, "an object with width: a picture has bytes or path"),
        (3, "int 3 is neither text nor a picture"),
        (np.zeros((2, 2), np.float32), "uint8"),
    ],
)
def test_what_is_no_picture_is_named(value: Any, message: str, folder: Path) -> None:
    with pytest.raises(PictureError, match=message):
        field_pictures(value, folder)


def test_a_file_that_changes_during_a_run_is_noticed(folder: Path) -> None:
    (uri,) = field_pictures("a.png", folder)
    (folder / "a.png").write_bytes(file_of(pixels=PIXELS + 1))
    with pytest.raises(PictureError, match="has changed since the run began"):
        opened(uri)


def test_transparent_pixels_are_white() -> None:
    clear = np.zeros((4, 4, 4), np.uint8)
    uri = address(file_of(pixels=clear))
    assert (np.asarray(opened(uri)) == 255).all()


def test_pictures_replace_their_marks_in_the_text() -> None:
    one, two = "data:,1", "data:,2"
    assert with_pictures("a <image> b <image>", [one, two]) == f"a {marked(one)} b {marked(two)}"
    assert pictures_of(with_pictures("Which?", [one, two])) == [one, two]
    assert with_pictures("Which?", []) == "Which?"
    with pytest.raises(PictureError, match="1 times, and the row has 2 pictures"):
        with_pictures("a <image>", [one, two])


def test_content_parts_are_read_with_their_pictures(folder: Path) -> None:
    parts: list[Any] = [{"type": "text", "text": "See "}, {"type": "image", "path": "a.png"}, {"type": "image"}]
    text = content_text(parts, folder)
    assert text.startswith("See ")
    assert text.endswith("<image>")
    assert len(pictures_of(text)) == 1
    with pytest.raises(PictureError, match="kind audio"):
        content_text([{"type": "audio"}], folder)


def test_observations_of_texts_and_pictures_are_texts_with_marks() -> None:
    text = observed({"question": "Which?", "picture": PIXELS})
    assert described(text) == "[picture 8x12]Which?"
    assert has_picture([["a", Image.fromarray(PIXELS)]])
    assert not has_picture({"sum": [1, 2.5], "words": "data:,"})


def test_ids_are_negative_int32_and_differ_between_pictures() -> None:
    one, two = picture_ids("data:,1", 9), picture_ids("data:,2", 9)
    assert all(-(2**31) <= token < 0 for token in one + two)
    assert not set(one) & set(two)


def test_controls_show_one_colour_or_another_tasks_picture() -> None:
    texts = [marked(address(PIXELS)) + "Which?", marked(address(PIXELS + 9)) + "Which?", "no picture"]
    blank = with_other_pictures(texts, which="blank", offset=1)
    assert len(set(blank[:2])) == 1
    assert blank[2] == texts[2]
    assert opened(pictures_of(blank[0])[0]).size == (8, 12)
    assert with_other_pictures(texts, which="swapped", offset=1)[0] == texts[1]

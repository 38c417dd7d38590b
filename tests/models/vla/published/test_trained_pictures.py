"""Pictures as OpenVLA's data sets have them: filter, crop, colours of the towers."""

from __future__ import annotations

import json

import numpy as np
import openvla_checkpoints as small
import pytest
import torch
from PIL import Image

from rlinf.data.pictures import bicubic
from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.trained_pictures import TrainedPictures, cropped, lanczos

PICTURE = small.observation(0)["front"]


@pytest.mark.parametrize("side", [96, 224, 320])
def test_the_filter_is_that_of_pillow_but_for_rounding_between_its_passes(side: int) -> None:
    soft = PICTURE // 2 + 64  # Pillow cuts what overshoots after its first pass
    theirs = np.asarray(Image.fromarray(soft).resize((side, side), Image.Resampling.LANCZOS))
    assert np.abs(lanczos(soft, side).astype(int) - theirs).max() <= 1


def test_a_crop_has_the_middle_of_the_picture_between_its_corners() -> None:
    """On a ramp the first pixel is the value at the crop's edge: (1 - sqrt(0.81)) / 2 = 0.05 of the way."""
    ramp = np.linspace(0, 250, 201).round().astype(np.uint8)
    picture = np.broadcast_to(ramp[None, :, None], (201, 201, 3)).copy()
    row = cropped(picture, 0.81, 224)[0, :, 0].astype(float)
    assert row[0] == pytest.approx(0.05 * 250, abs=1.0)
    assert row[-1] == pytest.approx(0.95 * 250, abs=1.0)
    assert np.abs(np.diff(row, 2)).max() <= 2


def test_a_picture_is_resized_and_cropped_as_by_tensorflow() -> None:
    """Golden pixels of TensorFlow 2.21, every fourteenth of a row and a column."""
    golden = json.loads((small.GOLDEN / "dataset_pictures.json").read_text())
    sized = lanczos(np.array(golden["jpeg"], dtype=np.uint8), 224)
    assert sized[::14, ::14].tolist() == golden["resized"]
    assert cropped(sized, 0.9, 224)[::14, ::14].tolist() == golden["cropped"]


def test_each_tower_has_its_own_colours_and_layouts_are_alike() -> None:
    pictures = TrainedPictures(small.preprocessor(), kind="plain", center_crop=1.0)
    last = torch.from_numpy(PICTURE)[None]
    first, second = pictures(last)
    sized = torch.from_numpy(bicubic(PICTURE, 224).copy()).movedim(-1, 0) / 255.0
    assert torch.allclose(second[0], (sized - 0.5) / 0.5, atol=1e-6)
    assert torch.allclose(first[0, 0], (sized[0] - 0.484375) / 0.228515625, atol=1e-6)
    assert torch.equal(first, pictures(last.movedim(-1, 1))[0])


@pytest.mark.parametrize("changed", [{"image_resize_strategy": "letterbox"}, {"interpolations": ["bilinear"] * 2}])
def test_another_way_of_resizing_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match=next(iter(changed))):
        TrainedPictures(small.preprocessor() | changed, kind="plain", center_crop=1.0)

"""Random shifts of images: where pixels go, what moves together, and what is left alone."""

from __future__ import annotations

import pytest
import torch

from rlinf.data.spaces import SpaceError
from rlinf.learners.off_policy.learner import RandomShift, shifted
from rlinf.learners.off_policy.replay_buffer import Transitions


@pytest.mark.parametrize(("shape", "axes"), [((6, 5), (-2, -1)), ((3, 6, 5), (-2, -1)), ((2, 6, 5, 3), (-3, -2))])
def test_it_is_a_crop_of_the_padded_image(shape, axes):
    images = torch.randint(256, (7, *shape), dtype=torch.uint8)
    offsets = torch.randint(-2, 3, (7, 2))
    got = shifted(images, offsets, axes)
    front = images.movedim(axes, (1, 2))
    for number, (down, right) in enumerate(offsets.tolist()):
        planes = front[number].reshape(6, 5, -1).permute(2, 0, 1)[None].float()
        padded = torch.nn.functional.pad(planes, (2, 2, 2, 2), mode="replicate")[0].permute(1, 2, 0)
        crop = padded[2 + down : 8 + down, 2 + right : 7 + right].to(torch.uint8)
        assert got.movedim(axes, (1, 2))[number].reshape(6, 5, -1).equal(crop)


def test_ranks_move_their_images_as_one_would_and_other_leaves_stay():
    leaves = {"observation.camera": torch.randint(256, (8, 6, 6, 3)), "observation.arm": torch.randn(8, 4)}
    whole = Transitions(leaves, torch.zeros(8, 2), torch.zeros(8), leaves, torch.ones(8))
    shift = RandomShift({"observation.camera": (-3, -2)}, pixels=2)
    alone = shift(whole, 8, torch.Generator().manual_seed(0))
    assert not alone.inputs["observation.camera"].equal(alone.next_inputs["observation.camera"])
    assert alone.inputs["observation.arm"] is leaves["observation.arm"]
    for rank in range(2):
        mine = {name: leaf[rank::2] for name, leaf in leaves.items()}
        part = Transitions(mine, torch.zeros(4, 2), torch.zeros(4), mine, torch.ones(4))
        moved = shift(part, 8, torch.Generator().manual_seed(0), rank=rank, size=2)
        assert moved.inputs["observation.camera"].equal(alone.inputs["observation.camera"][rank::2])


def test_without_images_it_is_refused():
    with pytest.raises(SpaceError, match=r"algorithm\.random_shift moves images, and the observations hold none"):
        RandomShift({}, pixels=4)

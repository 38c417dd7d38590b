"""Action tokens in OpenVLA's conventions: bins, ids and quantiles by hand, and what a run does with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_vla_policy import LANGUAGE, SPACE, VISION, WORDS, build, observe

from rlinf.config import load
from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions, VlaPolicy
from rlinf.models.vla.action_bins import VocabularyBins
from rlinf.models.vla.build import build_vla
from rlinf.models.vla.observation import tower_pixels
from rlinf.models.vla.vocabulary_actions import read_action_statistics
from rlinf.rollouts.simulator.image_augmentation import ImageAugmentation, jittered, shifted
from rlinf.train.run import run

ARM = spaces.Box(-10.0, 10.0, (3,), np.float32)
STATISTICS = {"q01": [-2.0, 0.0, 0.0], "q99": [2.0, 5.1, 1.0], "mask": [1.0, 1.0, 0.0]}


def test_bins_and_quantiles_by_hand() -> None:
    """256 edges at steps of 2/255, so number k (from 0) of the 255 middles is -1 + (2k + 1) / 255.

    x = (1, 6, -1) with q01 = (-2, 0), q99 = (2, 5.1) is (0.5, 1, -1) when clipped; the last is taken as it is.
    0.5 reaches 1 + floor(1.5 x 255 / 2) = 192 edges: id V - 192, token 191, decoded as -1 + 383 / 255 = 0.50196, which
    is 0.5 x 1.50196 x 4 - 2 = 1.00392. 1 reaches all 256: the last middle is 254 / 255, or
    0.5 x (509 / 255) x 5.1 = 5.09. -1 reaches one edge: the first middle is -254 / 255.
    (q99 - q01 has 1e-8 added before it divides, as in OpenVLA's loader: the upper quantile itself is just below 1.)
    """
    bins = VocabularyBins(ARM, STATISTICS)
    tokens = bins.tokens(np.array([1.0, 6.0, -1.0]))
    assert tokens.tolist() == [191, 255, 0]
    assert bins.numbers(tokens).tolist() == pytest.approx([4 * 383 / 510 - 2, 5.1 * 509 / 510, -254 / 255])
    # The id 256 before the end, which 1 alone meets, is decoded as the one after it.
    assert np.array_equal(bins.numbers(np.array([255] * 3)), bins.numbers(np.array([254] * 3)))
    drawn = np.random.default_rng(0).integers(0, 255, (50, 3))
    assert np.array_equal(bins.tokens(bins.numbers(drawn)), drawn)
    # Without statistics the bounds are the quantiles.
    assert VocabularyBins(ARM, None).tokens(np.array([-10.0, 0.01, 10.0])).tolist() == [0, 127, 254]
    with pytest.raises(SpaceError, match="finite bounds"):
        VocabularyBins(spaces.Box(-np.inf, np.inf, (1,)), None)
    with pytest.raises(SpaceError, match="actions of 3 numbers"):
        VocabularyBins(spaces.Box(-1, 1, (2,)), STATISTICS)


def test_statistics_are_found_in_the_files_of_openvla_and_lerobot(tmp_path: Path) -> None:
    action = {"q01": [-1.0, 0.0], "q99": [1.0, 1.0], "mask": [True, False], "mean": [0.0, 0.0]}
    several = tmp_path / "dataset_statistics.json"
    several.write_text(json.dumps({"bridge": {"action": action}, "libero": {"action": action}}))
    wanted = {"q01": [-1.0, 0.0], "q99": [1.0, 1.0], "mask": [1.0, 0.0]}
    assert read_action_statistics(str(tmp_path), "libero", []) == wanted
    with pytest.raises(PolicyError, match="statistics of bridge, libero, not of None"):
        read_action_statistics(str(several), None, [])
    meta = tmp_path / "lerobot" / "meta"
    meta.mkdir(parents=True)
    del action["mask"]
    (meta / "stats.json").write_text(json.dumps({"action": action}))
    assert read_action_statistics(str(tmp_path / "lerobot"), None, [1]) == wanted
    with pytest.raises(PolicyError, match="is no file"):
        read_action_statistics(str(tmp_path / "nowhere"), None, [])


@pytest.mark.parametrize("tied", [True, False])
def test_the_last_ids_of_a_checkpoint_decide_at_first(tmp_path: Path, tied: bool) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer: Any = train_tokenizer(WORDS, vocab_size=300, split_words=True)
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=320,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    options = VlaOptions(
        language={}, vision=VISION, action_tokens="vocabulary", action_statistics=STATISTICS, cameras=("image",)
    )
    policy = build_vla(SPACE, ARM, options, tokenizer, language_path=str(tmp_path)).eval()
    rows, end = policy.head.logits.weight, tokenizer.vocab_size
    for token in (0, 100, 255):
        assert torch.equal(rows[token], model.lm_head.weight[end - 1 - token])
    policy.save_pretrained(str(tmp_path / "policy"))
    again = VlaPolicy.from_pretrained(str(tmp_path / "policy")).eval()
    seen = observe(4)
    one, other = (made.step(seen, torch.zeros(4, 0), None)[0] for made in (policy, again))
    assert torch.equal(one, other)
    acted = again.env_actions(one.numpy())
    assert ((acted >= [-2, 0, -1]) & (acted <= [2, 5.1, 1])).all()
    assert np.array_equal(again.own_actions(acted), np.minimum(one.numpy(), 254))


def test_cameras_are_read_in_the_configured_order() -> None:
    tokenizer = train_tokenizer(WORDS, vocab_size=300, split_words=True)
    two = spaces.Dict({**SPACE.spaces, "wrist": spaces.Box(0, 255, (24, 24, 3), np.uint8)})
    swapped = build(tokenizer, two, cameras=("wrist", "image"))
    assert swapped.images is not None
    assert swapped.images.names == ("observation.wrist", "observation.image")
    one = build(tokenizer, two, cameras=("image",))
    assert one.tokens_per_decision < swapped.tokens_per_decision
    with pytest.raises(SpaceError, match="no image front in the observation, but image, wrist"):
        build(tokenizer, two, cameras=("front",))


def test_a_shift_before_a_crop_of_the_middle_is_a_crop_elsewhere() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (2, 20, 20, 3), dtype=np.uint8)
    moved = shifted(pictures, np.array([[1, -1], [-1, 0]]))
    zero, one = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)
    seen = tower_pixels(torch.from_numpy(moved), (18, 18), zero, one, 0.81)
    windows = [pictures[0, 2:20, 0:18], pictures[1, 0:18, 1:19]]
    for picture, window in zip(seen, windows, strict=True):
        torch.testing.assert_close(picture, torch.from_numpy(window).movedim(-1, 0).float() / 255.0)


def test_colours_by_hand() -> None:
    """Pixels 51 and 153 of 255 are 0.2 and 0.6, all channels alike. Brightness +0.1: 0.3 and 0.7, mean 0.5; contrast
    +50%: 0.2 and 0.8. Grey stays grey whatever the saturation; red (1, 0, 0) has the grey 0.299, and at -100% is it."""
    grey = np.array([51, 153], np.uint8)[None, None, :, None].repeat(3, axis=3)
    assert jittered(grey, np.array([[0.1, 0.5, 0.7]]))[0, 0, :, 0].tolist() == [51, 204]
    red = np.array([255, 0, 0], np.uint8)[None, None, None]
    assert jittered(red, np.array([[0.0, 0.0, -1.0]])).tolist() == [[[[76, 76, 76]]]]
    both = {"image": grey, "state": np.zeros((1, 2), np.float32)}
    drawn = [ImageAugmentation(1, 0.2)(both, np.random.default_rng(3)) for _ in range(2)]
    assert np.array_equal(drawn[0]["image"], drawn[1]["image"])
    assert drawn[0]["state"] is both["state"]
    with pytest.raises(SpaceError, match="hold none"):
        ImageAugmentation(1)({"state": both["state"]}, np.random.default_rng(0))


def test_a_run_imitates_augmented_pictures_and_goes_on_with_grpo(tmp_path: Path) -> None:
    statistics = {"action": {"q01": [-0.9, -0.9], "q99": [0.9, 0.9]}}
    (tmp_path / "statistics.json").write_text(json.dumps(statistics))
    file = tmp_path / "recipe.yaml"
    file.write_text(f"""
run: {{max_steps: 1, dir: {tmp_path / "run"}}}
env: {{id: "rlinf_envs:rlinf/Tabletop-v0", num_envs: 4, num_action_chunks: 2, kwargs: {{image_size: 16}}}}
policy:
  name: vla
  vla:
    language: {{architecture: {json.dumps(LANGUAGE)}}}
    action_tokens: vocabulary
    action_statistics: {tmp_path / "statistics.json"}
    cameras: [image]
    center_crop: 0.8
sft: {{steps: 2, batch_size: 8, demonstrations: 4, image_shift: 1, color_jitter: 0.2}}
rollout: {{batch_size: 2}}
algorithm: {{adv_type: grpo, group_size: 2}}
cluster: {{backend: local}}
evaluation: {{size: 2}}
logging: {{progress: none, tensorboard: false}}
""")
    run(load(file), report=False)
    exported = VlaPolicy.from_pretrained(str(tmp_path / "run" / "policy"))
    assert exported.options.action_statistics == {**statistics["action"], "mask": [1.0, 1.0]}
    assert exported.options.cameras == ("image",)
    assert exported.head.logits.weight.shape[0] == 256
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["sft/loss"] > 1.0

"""Vision-language-action policies: acting equals evaluating, all inputs are read, checkpoints load, exports too."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.config import load
from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.loading import PolicyError
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions, VlaPolicy
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.backbones import ConvolutionalStem, language_config, pixel_statistics, random_tower
from rlinf.models.vla.build import build_vla
from rlinf.models.vocabulary import VocabularyError
from rlinf.train.assemble.simulator_policy import make_policy

WORDS = ("touch the red disc", "touch the blue square", "push it")
SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (24, 24, 3), np.uint8),
        "state": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "mode": spaces.Discrete(3),
        "instruction": spaces.Text(32),
    }
)
ARM = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
LANGUAGE = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 8,
    "vision_use_head": False,
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(WORDS, vocab_size=300, split_words=True)


def build(tokenizer: Any, space: spaces.Space = SPACE, arm: spaces.Space = ARM, **options: Any) -> VlaPolicy:
    torch.manual_seed(3)
    usual = {"language": LANGUAGE, "vision": VISION, "action_bins": 5, "num_action_chunks": 3, "value_head": True}
    paths = {name: options.pop(name) for name in ("language_path", "vision_path") if name in options}
    return build_vla(space, arm, VlaOptions(**{**usual, **options}), tokenizer, **paths).eval()


def observe(rows: int, space: spaces.Space = SPACE, words: tuple[str, ...] = WORDS) -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(0)
    leaves = empty_leaves(space, (rows,))
    for row in range(rows):
        entries = {
            "image": draw.integers(0, 256, (24, 24, 3), dtype=np.uint8),
            "state": draw.uniform(-1, 1, 2).astype(np.float32),
            "mode": int(draw.integers(3)),
            "instruction": words[row % len(words)],
        }
        write_observation(leaves, row, {name: entries[name] for name in space})  # type: ignore[attr-defined]
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def as_positions(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: leaf[:, None] for name, leaf in inputs.items()}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_decision_is_evaluated_alike_whatever_else_is_in_the_batch(tokenizer: Any, temperature: float) -> None:
    policy, inputs = build(tokenizer, temperature=temperature), observe(7)
    tokens, output, _ = decide(policy, inputs, seed=0)
    whole = policy.evaluate(named_inputs(as_positions(inputs)), tokens[:, None], torch.ones(7, 1, dtype=torch.bool))
    assert output.entropy is not None
    assert output.values is not None
    assert whole.entropy is not None
    assert whole.values is not None
    for mine, theirs in (
        (whole.logprobs, output.logprobs),
        (whole.entropy, output.entropy),
        (whole.values, output.values),
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    for rows in (slice(0, 1), slice(2, 5)):  # instructions of other lengths are padded otherwise
        part = {name: leaf[rows] for name, leaf in inputs.items()}
        alone = policy.evaluate(
            named_inputs(as_positions(part)), tokens[rows, None], torch.ones(len(tokens[rows]), 1, dtype=torch.bool)
        )
        torch.testing.assert_close(alone.logprobs, output.logprobs[rows], atol=1e-5, rtol=1e-5)


def test_words_after_the_picture_are_another_policy_that_evaluates_as_it_acts(tokenizer: Any) -> None:
    inputs = observe(5)
    before, after = build(tokenizer), build(tokenizer, order="picture_first")
    assert before.state_dict().keys() == after.state_dict().keys()
    (_, one, _), (tokens, other, _) = decide(before, inputs, seed=0), decide(after, inputs, seed=0)
    assert float((one.logprobs - other.logprobs).abs().max()) > 1e-6
    for row in range(5):  # instructions of other lengths are padded in the middle of the sequence
        alone = after.evaluate(
            named_inputs(as_positions({name: leaf[row : row + 1] for name, leaf in inputs.items()})),
            tokens[row : row + 1, None],
            torch.ones(1, 1, dtype=torch.bool),
        )
        torch.testing.assert_close(alone.logprobs, other.logprobs[row : row + 1], atol=1e-5, rtol=1e-5)


def test_an_instruction_is_read_in_its_prompt(tokenizer: Any) -> None:
    inputs = observe(3)
    policy = build(tokenizer, prompt="touch the {instruction}", max_instruction_tokens=24)
    ids, present = policy.instructions(inputs, 3, torch.device("cpu"))
    text = tokenizer.decode(ids[0][present[0]][:-1])
    assert text.split() == ["touch", "the", *WORDS[0].split()]


@pytest.mark.parametrize("level", ["action_level", "token_level"])
def test_finer_positions_add_up_to_the_decision_without_what_was_not_carried_out(tokenizer: Any, level: Any) -> None:
    coarse, inputs = build(tokenizer), as_positions(observe(4))
    fine = build(tokenizer, reward_type="action_level", logprob_type=level, entropy_type=level)
    # A critic of actions has another shape; everything else is the same.
    fine.load_state_dict({n: t for n, t in coarse.state_dict().items() if "value_head" not in n}, strict=False)
    parts = {"action_level": 3, "token_level": 6}[level]
    tokens = torch.randint(0, 5, (4, 1, 6), generator=torch.Generator().manual_seed(0))
    inputs["executed"] = torch.tensor([[[True, True, False]]]).repeat(4, 1, 1)
    acted = torch.arange(parts) < parts * 2 // 3
    output = fine.evaluate(named_inputs(inputs), tokens, acted.repeat(4, 1))
    whole = coarse.evaluate(named_inputs(inputs), tokens, torch.ones(4, 1, dtype=torch.bool))
    torch.testing.assert_close(output.logprobs.sum(1), whole.logprobs[:, 0])
    assert output.logprobs.shape == (4, parts)
    assert not output.logprobs[:, parts * 2 // 3 :].any()
    assert decide(fine, observe(4))[1].logprobs.shape == (4, parts)


def test_frequencies_of_drawn_tokens_are_the_probabilities(tokenizer: Any) -> None:
    policy = build(tokenizer)
    logits = torch.tensor([[[0.0, 1.0, 2.0, -1.0, 0.5]]]).expand(20_000, 1, 5)
    drawn = policy.head.sample(logits, torch.rand(20_000, 1, generator=torch.Generator().manual_seed(2)))
    frequency = torch.bincount(drawn[:, 0], minlength=5) / 20_000
    torch.testing.assert_close(frequency, logits[0, 0].softmax(-1), atol=0.012, rtol=0.0)
    assert int(policy.head.sample(logits[:1], torch.tensor([[0.99999999]]))[0, 0]) == 4


def test_masked_positions_cost_nothing_and_give_nothing(tokenizer: Any) -> None:
    policy, inputs = build(tokenizer), observe(6)
    rows = {name: leaf.unflatten(0, (2, 3)) for name, leaf in inputs.items()}
    tokens = torch.zeros(2, 3, policy.head.count, dtype=torch.int64)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    full = policy.evaluate(named_inputs(rows), tokens, torch.ones(2, 3, dtype=torch.bool))
    some = policy.evaluate(named_inputs(rows), tokens, mask)
    torch.testing.assert_close(some.logprobs[mask], full.logprobs[mask], atol=1e-5, rtol=1e-5)
    assert not some.logprobs[~mask].any()
    assert policy.costs(named_inputs(rows), mask).lengths.tolist() == [
        2 * policy.tokens_per_decision,
        policy.tokens_per_decision,
    ]
    nothing = policy.evaluate(named_inputs(rows), tokens, mask & False)
    assert not nothing.logprobs.any()


def test_the_instruction_the_image_and_the_state_are_read(tokenizer: Any) -> None:
    policy, inputs = build(tokenizer), observe(1)
    logits, _ = policy.read(inputs)
    changes = {
        "observation.instruction": observe(1, words=("touch the blue square",))["observation.instruction"],
        "observation.image": 255 - inputs["observation.image"],
        "observation.state": -inputs["observation.state"],
        "observation.mode": (inputs["observation.mode"] + 1) % 3,
    }
    for name, changed in changes.items():
        other, _ = policy.read({**inputs, name: changed})
        assert not torch.equal(other, logits), name


def test_bins_span_the_bounds_and_come_back(tokenizer: Any) -> None:
    policy = build(tokenizer)
    tokens = np.array([[0, 0, 4, 4, 2, 1]])
    actions = policy.env_actions(tokens)
    assert actions.shape == (1, 3, 2)
    assert actions[0].tolist() == [[-1.0, 0.0], [1.0, 4.0], [0.0, 1.0]]
    assert policy.own_actions(actions).tolist() == tokens.tolist()
    assert policy.own_actions(np.full((1, 3, 2), 9.0)).tolist() == [[4] * 6]


def test_discrete_actions_of_different_sizes_draw_only_what_exists(tokenizer: Any) -> None:
    arm = spaces.MultiDiscrete([2, 5], start=[1, -2])
    policy, inputs = build(tokenizer, arm=arm, num_action_chunks=1), observe(64)
    tokens, output, _ = decide(policy, inputs, seed=0)
    assert int(tokens[:, 0].max()) == 1
    assert all(arm.contains(action) for action in policy.env_actions(tokens.numpy()))
    assert bool(torch.isfinite(output.logprobs).all())
    assert output.entropy is not None
    assert bool(torch.isfinite(output.entropy).all())
    assert np.array_equal(policy.own_actions(policy.env_actions(tokens.numpy())), tokens.numpy())


def test_the_entropy_of_discrete_actions_of_different_sizes_has_a_gradient() -> None:
    """The tokens that the smaller one does not have are minus infinity, whose product with 0 is no number."""
    head = ActionTokens(4, spaces.MultiDiscrete([2, 3]), bins=8, chunk=1, temperature=1.0)
    entropy = head.entropy(head(torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))))
    assert entropy[:, 0].max() <= np.log(2) + 1e-6
    entropy.sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in head.parameters())


def test_without_text_the_configured_task_is_the_instruction(tokenizer: Any) -> None:
    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(ValueError, match=r"policy\.vla\.task"):
        build(tokenizer, space)
    policy = build(tokenizer, space, task="push it")
    assert policy.images is None
    tokens, _, _ = decide(policy, {"observation": torch.zeros(4, 2)})
    assert tokens.shape == (4, 6)


def test_a_long_instruction_and_endless_bounds_are_reported(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="max_instruction_tokens is 3"):
        decide(build(tokenizer, max_instruction_tokens=3), observe(1))
    with pytest.raises(ValueError, match="finite bounds"):
        build(tokenizer, arm=spaces.Box(-np.inf, np.inf, (2,), np.float32))


def test_an_export_comes_back_whole(tokenizer: Any, tmp_path: Path) -> None:
    policy, inputs = build(tokenizer, normalize_observations=True), observe(5)
    policy.observe(named_inputs(as_positions(inputs)), torch.ones(5, 1, dtype=torch.bool))
    policy.save_pretrained(str(tmp_path / "out"))
    loaded = VlaPolicy.from_pretrained(str(tmp_path / "out"))
    mine, theirs = policy.read(inputs), loaded.read(inputs)
    assert torch.equal(mine[0], theirs[0])
    warmer = VlaPolicy.from_pretrained(str(tmp_path / "out"), temperature=2.0)
    torch.testing.assert_close(warmer.read(inputs)[0] * 2, mine[0])


def test_an_export_goes_on_in_no_other_environment(tokenizer: Any, tmp_path: Path) -> None:
    build(tokenizer).save_pretrained(str(tmp_path / "out"))
    file = tmp_path / "vla.yaml"
    file.write_text(
        f"policy: {{name: vla, path: {tmp_path / 'out'}}}\nalgorithm: {{adv_type: grpo, group_size: 2}}\n"
        "env: {id: CartPole-v1, num_action_chunks: 3}\nrollout: {batch_size: 2}\n"
    )
    config = load(file)
    parts = dict(SPACE.spaces)
    # An environment of another interpreter does not declare which characters its texts have.
    make_policy(config, spaces.Dict({**parts, "instruction": spaces.Text(32, charset="ab")}), ARM)
    for name, other in {"image": spaces.Box(0, 255, (32, 32, 3), np.uint8), "instruction": spaces.Text(40)}.items():
        with pytest.raises(UserError, match=f"its observation.{name} space is "):
            make_policy(config, spaces.Dict({**parts, name: other}), ARM)
    with pytest.raises(UserError, match=r"its observation\.sonar space is missing"):
        make_policy(config, spaces.Dict({**parts, "sonar": spaces.Discrete(2)}), ARM)
    with pytest.raises(UserError, match=r"decides on 3 actions at a time, and env\.num_action_chunks is 1"):
        make_policy(load(file, ["env.num_action_chunks=1"]), SPACE, ARM)


def test_towers_come_from_hugging_face_folders(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    from rlinf.models.architecture import architecture_config

    whole = AutoModelForCausalLM.from_config(architecture_config(LANGUAGE, tokenizer))
    whole.save_pretrained(tmp_path / "language")
    eyes = {**VISION, "image_size": 32}
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    both = AutoConfig.for_model("siglip", vision_config=eyes, text_config=text)
    two_towers = AutoModel.from_config(both)
    two_towers.save_pretrained(tmp_path / "vision")
    (tmp_path / "vision" / "preprocessor_config.json").write_text(
        '{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 2]}'
    )
    paths = {"language_path": str(tmp_path / "language"), "vision_path": str(tmp_path / "vision")}
    policy = build(tokenizer, **paths, freeze_vision=True)
    assert policy.images is not None
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(policy.language.state_dict()[name], tensor), name
    ours = {name.rpartition("vision_model.")[2]: tensor for name, tensor in policy.images.tower.state_dict().items()}
    theirs = {name.rpartition("vision_model.")[2]: t for name, t in two_towers.vision_model.state_dict().items()}
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert pixel_statistics(paths["vision_path"]) == ((0.1, 0.2, 0.3), (1, 1, 2))
    assert not any(parameter.requires_grad for parameter in policy.images.tower.parameters())
    # Pictures of 24 pixels are brought to the tower's 32.
    assert decide(policy, observe(2))[0].shape == (2, 6)
    with pytest.raises(PolicyError, match="holds no model configuration"):
        build(tokenizer, language_path=str(tmp_path / "nowhere"))
    with pytest.raises(PolicyError, match="no vision tower"):
        build(tokenizer, vision_path=str(tmp_path / "language"))


def test_attention_of_the_small_language_tower_does_not_start_uniform(tokenizer: Any) -> None:
    """With the 0.02 of wide models its logits differ by 0.04, and pictures have no effect for hundreds of steps."""
    torch.manual_seed(3)
    tower = random_tower(language_config(None, {}, tokenizer))
    hidden = torch.randn(256, tower.config.hidden_size)
    for layer in tower.layers:
        heads = (len(hidden), tower.config.num_attention_heads, -1)
        queries, keys = (part(hidden).view(heads) for part in (layer.self_attn.q_proj, layer.self_attn.k_proj))
        logits = torch.einsum("ahd,bhd->hab", queries, keys) / queries.shape[-1] ** 0.5
        assert 0.5 < logits.std().item() < 2.0


def test_a_tokenizer_larger_than_the_tower_is_refused(tokenizer: Any) -> None:
    with pytest.raises(VocabularyError, match=r"the tokenizer has .* tokens, and .* embeds 10"):
        build(tokenizer, language={**LANGUAGE, "vocab_size": 10})


def test_film_conditions_the_tower_on_the_instruction(tokenizer: Any) -> None:
    """It starts as no change; then what the tower sees depends on the words, of every row on its own."""
    policy, plain = build(tokenizer, conditioning="film"), build(tokenizer)
    assert policy.images is not None
    assert policy.images.film is not None
    inputs = observe(3)
    inputs = {name: leaf[:1].expand_as(leaf) if "instruction" not in name else leaf for name, leaf in inputs.items()}
    words = torch.randn(3, LANGUAGE["hidden_size"])  # type: ignore[call-overload]
    with torch.no_grad():
        plain_output = policy.images(inputs, words)
        assert torch.equal(plain_output, plain.images(inputs, words)) if plain.images is not None else False
        for layer in policy.images.film.layers:
            layer.weight.normal_(std=0.3)  # type: ignore[operator]
        conditioned = policy.images(inputs, words)
        assert not torch.allclose(conditioned[0], conditioned[1])
        alone = policy.images({name: leaf[1:2] for name, leaf in inputs.items()}, words[1:2])
        assert torch.allclose(alone[0], conditioned[1], atol=1e-5)
        logits, _ = policy.read(inputs)
    assert not torch.allclose(logits[0], logits[1])


def test_a_copy_uses_its_own_weights(tokenizer: Any) -> None:
    """The reference policy is a copy: training must not reach into it."""
    policy = build(tokenizer, conditioning="film")
    reference, inputs = copy.deepcopy(policy), observe(2)
    with torch.no_grad():
        before, _ = reference.read(inputs)
        assert policy.images is not None
        assert policy.images.film is not None
        for weight in policy.images.film.parameters():
            weight.add_(1.0)
        assert torch.equal(reference.read(inputs)[0], before)
        assert not torch.equal(policy.read(inputs)[0], before)


def test_a_position_independent_patch_embedding_reads_colour_wherever_it_lies(tokenizer: Any) -> None:
    """A spot of four pixels at any position of a patch: its codes are alike, and were not."""
    alike = {}
    for start in ("random", "position_independent"):
        policy = build(tokenizer, patch_init=start)
        assert policy.images is not None
        pixels = torch.zeros(36, 3, 24, 24)
        for row in range(36):
            pixels[row, 0, row // 6 : row // 6 + 2, row % 6 : row % 6 + 2] = 3.0
        conv = next(part for part in policy.images.tower.modules() if isinstance(part, torch.nn.Conv2d))
        with torch.no_grad():
            codes = (conv(pixels) - conv(torch.zeros_like(pixels)))[:, :, 0, 0]
        spread = codes.std(dim=0).mean() / codes.mean(dim=0).abs().mean()
        alike[start] = float(spread)
    assert alike["position_independent"] < 0.5 < 2.0 < alike["random"]


def test_convolutions_see_the_same_wherever_it_lies(tokenizer: Any, tmp_path: Path) -> None:
    """What the convolutions see moves with the picture; a policy with them is trained and comes back whole."""
    policy, inputs = build(tokenizer, stem="convolutions"), observe(2)
    assert policy.images is not None
    stem = next(part for part in policy.images.tower.modules() if isinstance(part, ConvolutionalStem))
    pixels = torch.randn(2, 3, 24, 24)
    assert stem(pixels).shape == stem.patches(pixels).shape
    moved = torch.zeros(1, 3, 40, 40)
    moved[..., 8:32, 8:32] = pixels[:1]
    with torch.no_grad():
        first, second = (stem.stack[:1](torch.roll(moved, by, dims=(2, 3))) for by in ((0, 0), (2, 4)))
    torch.testing.assert_close(torch.roll(first, (1, 2), dims=(2, 3)), second)
    policy.read(inputs)[0].sum().backward()
    assert all(weight.grad is not None for weight in stem.parameters())
    policy.save_pretrained(str(tmp_path))
    with torch.no_grad():
        assert torch.equal(VlaPolicy.from_pretrained(str(tmp_path)).eval().read(inputs)[0], policy.read(inputs)[0])
    with pytest.raises(PolicyError, match="patch_size of 2, 4, 8"):
        build(tokenizer, stem="convolutions", vision={**VISION, "patch_size": 6})


def test_an_export_from_before_there_was_a_choice_loads(tokenizer: Any, tmp_path: Path) -> None:
    policy = build(tokenizer)
    policy.save_pretrained(str(tmp_path))
    written = json.loads((tmp_path / "vla.json").read_text())
    for name in ("conditioning", "patch_init", "stem"):
        del written[name]
    (tmp_path / "vla.json").write_text(json.dumps(written))
    earlier, inputs = VlaPolicy.from_pretrained(str(tmp_path)).eval(), observe(2)
    with torch.no_grad():
        assert torch.equal(earlier.read(inputs)[0], policy.read(inputs)[0])

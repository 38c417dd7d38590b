"""Both reference vocabularies, alone and together with ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from config_cases import QUICKSTART, Write, mistakes

from rlinf.config import Config, load, resolve
from rlinf.config.compat.aliases import FLAT, UNDER_ALGORITHM, VALUES
from rlinf.config.compat.semantics import adopt, roll_origin
from rlinf.config.names import leaves
from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, get, locate

# The keys of the two published GRPO pages.
FLAT_BLOCK = """
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 2048
response_length: 4096
adv_estimator: "grpo"
ppo_epochs: 1
use_kl_loss: true
kl_loss_coef: 0.001
loss_agg_mode: "seq-mean-token-mean"
whiten_advantages: true
advantage_clip: 2.0
dual_clip_loss: true
reward_clip: 10
norm_mean_type: ~
norm_std_type: ~
add_token_level_kl: false
"""
# The block of ROLL's page on GRPO, as it stands there.
ROLL_GRPO = """
# grpo
rollout_batch_size: 64  # prompt
num_return_sequences_in_group: 8
prompt_length: 2048
response_length: 4096

adv_estimator: "grpo"
ppo_epochs: 1
use_kl_loss: true
kl_loss_coef: 0.001
loss_agg_mode: "seq-mean-token-mean"

# ppo related
# advantage
whiten_advantages: true
advantage_clip: 2.0
dual_clip_loss: true
# clip
reward_clip: 10
# normalize
reward_norm: null
reward_shift: false
reward_scale: false

# reward
add_token_level_kl: false
"""
ALGORITHM_BLOCK = """
algorithm:
  adv_type: math_grpo
  loss_type: math_ppo_actor
  loss_agg_func: "token-mean"
  group_size: 16
  kl_beta: 0.0
  kl_penalty_type: low_var_kl
  ratio_clip_eps: 0.2
  calculate_entropy: False
  entropy_bonus: 0.0
  normalize_advantages: True
  early_stop_imp_ratio: 5.0
  use_valid_token_scale: False
"""


def test_the_table_names_real_keys() -> None:
    known = {*leaves(), "algorithm.reward_norm.mean", "algorithm.reward_norm.std"}
    assert set(FLAT.values()) | set(UNDER_ALGORITHM.values()) | set(VALUES) <= known


def test_the_flat_block_pasted_into_quickstart(tmp_path: Path) -> None:
    path = tmp_path / "pasted.yaml"
    path.write_text(QUICKSTART.read_text() + FLAT_BLOCK)
    resolved = resolve(path)
    config = resolved.config
    assert (config.rollout.batch_size, config.algorithm.group_size) == (64, 8)
    assert (config.data.max_prompt_length, config.rollout.max_new_tokens) == (2048, 4096)
    assert config.algorithm.kl_beta == 0.001
    assert config.algorithm.clip_ratio_c == pytest.approx(1.4)
    assert config.algorithm.loss_agg_func == "seq-mean-token-mean"
    assert (config.algorithm.advantage_clip, config.algorithm.reward_clip) == (2.0, 10.0)
    assert config.algorithm.normalize_advantages
    for name in ("adv_estimator", "ppo_epochs", "use_kl_loss", "dual_clip_loss", "whiten_advantages"):
        assert sum(f": {name}" in note for note in resolved.notes) == 1
    assert any("rollout_batch_size: 64 replaces rollout.batch_size: 32" in note for note in resolved.notes)


def test_the_algorithm_block_pasted_into_quickstart(tmp_path: Path) -> None:
    path = tmp_path / "pasted.yaml"
    path.write_text(QUICKSTART.read_text() + ALGORITHM_BLOCK)
    algorithm = load(path).algorithm
    assert (algorithm.adv_type, algorithm.loss_type, algorithm.group_size) == ("grpo", "actor", 16)
    assert algorithm.normalize_advantages
    assert algorithm.early_stop_imp_ratio == 5.0


def test_the_algorithm_block_instead_of_ours(tmp_path: Path) -> None:
    ours = [line for line in QUICKSTART.read_text().splitlines() if not line.startswith("algorithm:")]
    path = tmp_path / "replaced.yaml"
    path.write_text("\n".join(ours) + ALGORITHM_BLOCK)
    assert load(path).algorithm.group_size == 16


def test_sampling_parameters_under_algorithm(write: Write) -> None:
    text = "algorithm: {sampling_params: {do_sample: true, temperature: 0.9, top_k: 1000000, top_p: 0.95}}"
    rollout = load(write(text)).rollout
    assert (rollout.temperature, rollout.top_k, rollout.top_p) == (0.9, 0, 0.95)


def test_nested_training_arguments(write: Write) -> None:
    text = "actor_train: {training_args: {learning_rate: 1.0e-6, warmup_steps: 20, per_device_train_batch_size: 1}}"
    resolved = resolve(write(text))
    assert resolved.config.learner.optimizer.lr == 1e-6
    assert resolved.config.learner.optimizer.warmup_steps == 20
    assert any("per_device_train_batch_size is not needed" in note for note in resolved.notes)


def test_the_command_line_wins_under_either_name(write: Write) -> None:
    path = write(FLAT_BLOCK)
    assert load(path, ["rollout.batch_size=16"]).rollout.batch_size == 16
    assert load(path, ["num_return_sequences_in_group=4"]).algorithm.group_size == 4
    assert load(path, ["algorithm.kl_beta=0.5"]).algorithm.kl_beta == 0.5
    assert load(path, ["use_kl_loss=false"]).algorithm.kl_beta == 0.0
    assert load(path, ["kl_loss_coef=0.01"]).algorithm.kl_beta == 0.01


def test_dual_clip_follows_the_clip_range(write: Write) -> None:
    path = write("algorithm: {dual_clip_loss: true, ratio_clip_eps: 0.1}")
    assert load(path).algorithm.clip_ratio_c == pytest.approx(1.2)
    assert load(write("dual_clip_loss: false")).algorithm.clip_ratio_c is Config().algorithm.clip_ratio_c


def test_two_names_with_two_values_are_an_error(write: Write) -> None:
    found = mistakes(write("algorithm:\n  adv_type: grpo\n  adv_estimator: rloo\n"))
    assert "run.yaml:4: algorithm.adv_estimator and algorithm.adv_type are two names for one thing" in found
    assert "Keep algorithm.adv_type." in found
    found = mistakes(write("use_kl_loss: true\nkl_loss_coef: 0.1\nalgorithm: {kl_beta: 0.2}\n"))
    assert "means algorithm.kl_beta: 0.1, but" in found


def test_two_names_with_one_value_are_fine(write: Write) -> None:
    assert load(write("algorithm: {adv_type: rloo, adv_estimator: rloo}")).algorithm.adv_type == "rloo"


def test_use_kl_loss_needs_its_weight(write: Write) -> None:
    assert "use_kl_loss: true needs the weight of the KL term. Add kl_loss_coef: 0.001." in mistakes(
        write("use_kl_loss: true")
    )


def test_strict_is_accepted_at_the_top(write: Write) -> None:
    resolved = resolve(write("strict: false\nalgorithm: {gae_lambda: 0.9}\n"))
    assert any("algorithm.gae_lambda is not read" in warning for warning in resolved.warnings)


def test_rolls_own_block_means_what_it_means_there(write: Write) -> None:
    resolved = resolve(write(ROLL_GRPO))
    algorithm = resolved.config.algorithm
    assert (algorithm.adv_type, algorithm.reward_norm, algorithm.reward_shift) == ("grpo", None, False)
    assert (algorithm.loss_agg_func, algorithm.reward_clip) == ("seq-mean-token-mean", 10.0)
    assert algorithm.clip_after_norm
    assert not algorithm.kl_after_norm
    assert any("clip_after_norm: true is set: ROLL normalises by group, then clips." in n for n in resolved.notes)
    assert resolved.warnings == []


def test_what_rolls_block_leaves_out_has_rolls_default(write: Write) -> None:
    resolved = resolve(write("adv_estimator: grpo\nadd_token_level_kl: true\ninit_kl_coef: 0.1\n"))
    algorithm = resolved.config.algorithm
    assert (algorithm.loss_agg_func, algorithm.kl_after_norm) == ("seq-mean-token-mean", True)
    assert not algorithm.clip_after_norm
    assert any("loss_agg_func: seq-mean-token-mean is set: ROLL's default." in note for note in resolved.notes)


ROLL_KL = "adv_estimator: grpo\nadd_token_level_kl: true\n"
EMBODIED = "algorithm: {adv_type: embodied_grpo, loss_type: embodied_grpo}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROLL_KL, {"kl_coef": 0.2, "token_kl_type": "kl", "kl_penalty_type": "low_var_kl", "kl_controller": "fixed"}),
        (f"{ROLL_KL}init_kl_coef: 0.1\nkl_penalty: mse", {"kl_coef": 0.1, "token_kl_type": "mse"}),
        (f"{ROLL_KL}target_kl: 0.3\nkl_horizon: 50", {"kl_controller": "adaptive", "target_kl": 0.3}),
        (f"{ROLL_KL}target_kl: null\nkl_horizon: 50", {"kl_controller": "fixed", "target_kl": 0.1}),
        ("adv_estimator: grpo\ntarget_kl: ~\nkl_penalty: kl", {"token_kl_type": None, "kl_coef": 0.0}),
        ("adv_estimator: grpo\nloss_agg_mode: seq-mean-token-sum-norm", {"sum_norm_divide_by_batch": False}),
        ("adv_estimator: grpo\nloss_agg_mode: token-mean", {"sum_norm_divide_by_batch": True}),
        ("algorithm: {adv_type: grpo}", {"loss_agg_func": "token-mean", "token_kl_type": None}),
        ("algorithm: {adv_type: math_grpo}", {"loss_agg_func": "token-mean", "value_coef": 0.5}),
    ],
)
def test_what_a_key_means_in_its_vocabulary(write: Write, text: str, expected: dict[str, object]) -> None:
    algorithm = load(write(text)).algorithm
    assert {name: getattr(algorithm, name) for name in expected} == expected


def adopted(text: str) -> Branch:
    """A file with what its vocabulary means, before anything is checked."""
    tree = locate(yaml.safe_load(text), Origin("file.yaml", 1)).branch
    assert tree is not None
    adopt(tree, roll_origin([tree]), [])
    return tree


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("", None),
        ("{auto_reset: false}", "seq-mean-token-mean"),
        ("{auto_reset: false, ignore_terminations: true}", None),
    ],
)
def test_rlinfs_robots_have_its_mean_of_episodes(env: str, expected: str | None) -> None:
    tree = adopted(f"{EMBODIED}env: {env}" if env else EMBODIED)
    found = get(tree, "algorithm.loss_agg_func")
    assert (None if found is None else found.value) == expected


def test_rlinfs_critic_counts_in_full() -> None:
    tree = adopted("algorithm: {adv_type: embodied_gae, loss_type: embodied_actor_critic}")
    found = get(tree, "algorithm.value_coef")
    assert found is not None
    assert found.value == 1.0


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (
            "adv_estimator: grpo\nreward_clip: 1\nalgorithm: {clip_after_norm: false}",
            [],
            ("seq-mean-token-mean", False),
        ),
        ("adv_estimator: rloo\nreward_clip: 1", [], ("seq-mean-token-mean", False)),
        ("adv_estimator: rloo\nalgorithm: {loss_agg_func: token-mean}", [], ("token-mean", False)),
        # A name on the command line is not a file in another vocabulary.
        ("algorithm: {reward_clip: 1}", ["adv_estimator=grpo"], ("token-mean", False)),
        ("algorithm: {adv_type: grpo, reward_clip: 1}", [], ("token-mean", False)),
    ],
)
def test_what_a_file_sets_itself_is_left_alone(
    write: Write, text: str, overrides: list[str], expected: tuple[str, bool]
) -> None:
    algorithm = load(write(text), overrides).algorithm
    assert (algorithm.loss_agg_func, algorithm.clip_after_norm) == expected


@pytest.mark.parametrize(("adv_type", "scale"), [("math_grpo", "global"), ("grpo", "row")])
def test_valid_token_scale_is_as_in_the_vocabulary_of_the_file(write: Write, adv_type: str, scale: str) -> None:
    text = f"algorithm: {{adv_type: {adv_type}, use_valid_token_scale: true}}"
    assert load(write(text)).algorithm.token_scale == scale
    other = f"algorithm: {{adv_type: {adv_type}, use_valid_token_scale: true, loss_agg_func: seq-mean-token-mean}}"
    assert load(write(other)).algorithm.token_scale == "row"


def test_names_of_another_vocabulary_resolve_inside_of_values(write: Write) -> None:
    path = write(
        "exp_name: first\nresponse_length: 96\nnum_return_sequences_in_group: 4\nnum_gpus_per_node: 8\n"
        "output_dir: runs/${exp_name}_${num_gpus_per_node}\nprompt_length: ${response_length}\n"
        "actor_infer: {generating_args: {max_new_tokens: '${response_length}', "
        "num_return_sequences: '${num_return_sequences_in_group}'}}\n"
    )
    config = load(path)
    assert (config.rollout.max_new_tokens, config.data.max_prompt_length, config.algorithm.group_size) == (96, 96, 4)
    assert config.run.dir == "runs/first_8"


def test_a_name_inside_of_a_value_means_what_counts_in_the_end(write: Write) -> None:
    path = write("response_length: 96\nprompt_length: ${response_length}\nrollout: {top_k: '${rollout_batch_size}'}\n")
    config = load(path, ["rollout.max_new_tokens=48"])
    assert (config.rollout.max_new_tokens, config.data.max_prompt_length) == (48, 48)
    assert config.rollout.top_k == 32  # written as rollout.batch_size


def test_a_value_that_is_overridden_need_not_resolve(write: Write) -> None:
    assert load(write("response_length: ${nothing}\n"), ["rollout.max_new_tokens=48"]).rollout.max_new_tokens == 48


def test_arithmetic_of_the_other_vocabulary(write: Write) -> None:
    path = write(
        "data: {max_prompt_length: 64}\n"
        "algorithm: {sampling_params: {max_new_tokens: '${subtract:${algorithm.group_size},${run.seed}}'}, "
        "normalize_advantages: '${not:${data.shuffle}}'}\n"
    )
    config = load(path)
    assert config.rollout.max_new_tokens == 8
    assert config.algorithm.normalize_advantages is False


def test_a_name_that_means_itself_is_an_error(write: Write) -> None:
    found = mistakes(write("rollout: {max_new_tokens: '${response_length}'}\n"))
    assert "rollout.max_new_tokens: ${response_length} does not resolve:" in found


def test_a_transport_that_is_no_choice_any_more_is_read_as_auto(write: Write) -> None:
    resolved = resolve(write("rollout: {weight_transport: object_store}"))
    assert resolved.config.rollout.weight_transport == "auto"
    assert any("rollout.weight_transport: object_store is read as auto" in note for note in resolved.notes)

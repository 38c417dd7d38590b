"""Corrections for samplers, as verl, ROLL, TRL and RLinf write them: the same weights and bounds in our section."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from rlinf_import.page import mapping, problems
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

from rlinf.algorithms.kl import kl_divergence
from rlinf.algorithms.losses.rollout_correction import correction_of, correction_weight
from rlinf.config import ConfigErrors, load_mapping

VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=4 "
VERL += "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.model.path=m "
ROLL = """
adv_estimator: grpo
pretrain: m
num_return_sequences_in_group: 4
rewards: {math: {worker_cls: MathRuleRewardWorker}}
actor_train: {device_mapping: "list(range(0,1))"}
actor_infer: {device_mapping: "list(range(0,1))", strategy_args: {strategy_name: vllm}}
"""
GAP = torch.tensor([[0.0, 0.5, -0.5], [0.2, 0.1, 0.0], [1.2, 0.9, 0.0], [-0.9, -0.2, 0.0]])
"""old - sampler log-probabilities; the last position of the last two rows is padding."""
VALID = torch.tensor([[True, True, True], [True, True, True], [True, True, False], [True, True, False]])


def verl(tmp_path: Path, **options: object) -> Sheet:
    script = tmp_path / "run.sh"
    words = [f"algorithm.rollout_correction.{name}={value}" for name, value in options.items()]
    script.write_text(VERL + " ".join(words) + "\n")
    return checked(imported("verl", script, (), Options(rows=64)))


def roll(tmp_path: Path, correction: str) -> Sheet:
    file = tmp_path / "run.yaml"
    file.write_text(f"{ROLL}train_infer_correction: {correction}\n")
    return checked(imported("roll", file))


def trl(tmp_path: Path, arguments: str) -> Sheet:
    script = tmp_path / "train.py"
    script.write_text(
        "from trl import GRPOConfig, GRPOTrainer\nfrom trl.rewards import accuracy_reward\n"
        f"args = GRPOConfig(use_vllm=True, max_steps=4, {arguments})\n"
        "GRPOTrainer(model='m', reward_funcs=accuracy_reward, args=args)\n"
    )
    return checked(imported("trl", script))


def checked(sheet: Sheet) -> Sheet:
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    return sheet


def section(sheet: Sheet) -> dict[str, object]:
    begin = "algorithm.rollout_correction."
    return {
        key.removeprefix(begin): one.value
        for key, one in sheet.settings.items()
        if key.startswith(begin) and key != f"{begin}preset"
    }


def weights(sheet: Sheet) -> torch.Tensor:
    """What the imported section makes of ``GAP``, read as a run reads it."""
    nested = mapping(sheet)
    try:
        option = load_mapping(nested).algorithm.rollout_correction
    except ConfigErrors:  # paths of models and data; the section by itself is whole
        option = correction_of(section(sheet))
    assert option is not None
    return correction_weight(torch.where(VALID, GAP, 0.0), torch.zeros_like(GAP), VALID, option) * VALID


def rows(difference: torch.Tensor) -> torch.Tensor:
    return (difference * VALID).sum(1, keepdim=True)


def test_verl_s_truncated_weights(tmp_path: Path) -> None:
    token = verl(tmp_path, rollout_is="token", rollout_is_threshold=1.5)
    assert section(token) == {"level": "token", "mode": "truncate", "cap": 1.5}
    torch.testing.assert_close(weights(token), GAP.exp().clamp(max=1.5) * VALID)
    whole = verl(tmp_path, rollout_is="sequence")
    assert section(whole) == {"level": "sequence", "mode": "truncate", "cap": 2.0}
    torch.testing.assert_close(weights(whole), rows(GAP).exp().clamp(max=2.0) * VALID)


def test_verl_s_two_bounds_leave_out_what_lies_outside(tmp_path: Path) -> None:
    sheet = verl(tmp_path, rollout_is="token", rollout_is_threshold="0.7_1.5")
    assert section(sheet) == {"level": "token", "mode": "mask", "cap": 1.5, "floor": 0.7}
    ratio = GAP.exp()
    torch.testing.assert_close(weights(sheet), torch.where((ratio >= 0.7) & (ratio <= 1.5), ratio, 0.0) * VALID)


@pytest.mark.parametrize("name", ["seq_mean_k1", "geometric"])
def test_verl_s_geometric_rejection(tmp_path: Path, name: str) -> None:
    """verl keeps a response whose mean of -log r lies between the logarithms of the bounds."""
    sheet = verl(tmp_path, rollout_is="token", rollout_rs=name, rollout_rs_threshold=1.15)
    bound = math.log(1.15)
    assert section(sheet)["reject_by"] == "k1"
    assert section(sheet)["reject_above"] == pytest.approx(bound, rel=1e-3)
    kept = (rows(GAP) / VALID.sum(1, keepdim=True)).abs() <= bound
    torch.testing.assert_close(weights(sheet), GAP.exp().clamp(max=2.0) * VALID * kept)
    assert any("still count" in line for line in sheet.differs)


def test_verl_s_rejection_by_k3(tmp_path: Path) -> None:
    sheet = verl(tmp_path, rollout_rs="seq_mean_k3", rollout_rs_threshold=0.05)
    assert section(sheet) == {"reject_above": 0.05, "reject_by": "k3"}
    divergence = rows(GAP.exp() - 1 - GAP) / VALID.sum(1, keepdim=True)
    torch.testing.assert_close(weights(sheet), (divergence <= 0.05).float() * VALID)


def test_verl_s_masked_sequences(tmp_path: Path) -> None:
    """Seq-MIS: weights of sequences up to 2, and rejection outside 0.5 to 2 of the same ratio."""
    sheet = verl(tmp_path, rollout_is="sequence", rollout_rs="seq_sum_k1", rollout_rs_threshold="0.5_2.0")
    assert section(sheet) == {"level": "sequence", "mode": "mask", "cap": 2.0, "floor": 0.5}
    ratio = rows(GAP).exp()
    torch.testing.assert_close(weights(sheet), torch.where((ratio >= 0.5) & (ratio <= 2), ratio, 0.0) * VALID)


def test_bounds_that_are_not_symmetric_are_named(tmp_path: Path) -> None:
    older = verl(tmp_path, rollout_rs="geometric", rollout_rs_threshold=1.2, rollout_rs_threshold_lower=0.99)
    assert section(older)["reject_above"] == pytest.approx(math.log(1.2), rel=1e-3)
    assert any("one bound holds in both directions" in line for line in older.differs)


@pytest.mark.parametrize(
    ("name", "threshold"), [("token_k1,seq_max_k2", "0.6_1.6,2.5"), ("seq_max_k3", "2.5"), ("token_k1", "0.5_2.0")]
)
def test_verl_s_other_rejections_are_refused(tmp_path: Path, name: str, threshold: str) -> None:
    with pytest.raises(NotOfferedError, match="rollout_rs") as error:
        verl(tmp_path, rollout_rs=f"'{name}'", rollout_rs_threshold=f"'{threshold}'")
    assert "reject_above" in str(error.value)


def test_verl_s_bypass_mode(tmp_path: Path) -> None:
    """With REINFORCE the weights apply; with the clipped loss verl measures them and does not apply them."""
    plain = verl(tmp_path, rollout_is="sequence", bypass_mode="true", loss_type="reinforce")
    assert (plain.value("algorithm.loss_type"), section(plain)["level"]) == ("reinforce", "sequence")
    clipped = verl(tmp_path, rollout_is="sequence", bypass_mode="true")
    assert (clipped.value("algorithm.loss_type"), section(clipped)) == ("actor", {})


def test_roll_s_weights_and_filters(tmp_path: Path) -> None:
    sheet = roll(tmp_path, "{is_weight: {enabled: true, weight_type: geometric}}")
    assert section(sheet) == {"level": "geometric", "mode": "truncate", "cap": 1.2}
    mean = (rows(GAP) / VALID.sum(1, keepdim=True)).exp()
    torch.testing.assert_close(weights(sheet), mean.clamp(max=1.2) * VALID)
    assert section(roll(tmp_path, "{is_weight: {enabled: false, weight_type: token}}")) == {}
    filtered = roll(tmp_path, "{filters: [{enabled: true, agg_type: geometric, ratio_low: 0.9, ratio_high: 1.1111}]}")
    assert section(filtered) == {"reject_above": 0.1054, "reject_by": "k1"}
    both = "{is_weight: {enabled: true, upper_bound: 5.0}, filters: [{enabled: true, ratio_low: 0.5, ratio_high: 5.0}]}"
    assert section(roll(tmp_path, both)) == {"level": "token", "mode": "mask", "cap": 5.0, "floor": 0.5}


@pytest.mark.parametrize(
    "correction",
    [
        "{filters: [{enabled: true, agg_type: segment}]}",
        "{filters: [{enabled: true, agg_type: geometric, diff_enabled: true}]}",
        "{is_weight: {enabled: true, weight_type: segment}}",
    ],
)
def test_roll_s_other_filters_are_refused(tmp_path: Path, correction: str) -> None:
    with pytest.raises(NotOfferedError, match="train_infer_correction"):
        roll(tmp_path, correction)


def test_trl_s_bounds(tmp_path: Path) -> None:
    usual = trl(tmp_path, "num_generations=4")
    assert section(usual) == {"level": "sequence", "mode": "mask", "cap": 3.0}
    both = "vllm_importance_sampling_mode='token_truncate', vllm_importance_sampling_clip_min=0.8"
    sheet = trl(tmp_path, f"{both}, vllm_importance_sampling_clip_max=1.5")
    assert section(sheet) == {"level": "token", "mode": "truncate", "cap": 1.5, "floor": 0.8}
    torch.testing.assert_close(weights(sheet), GAP.exp().clamp(0.8, 1.5) * VALID)
    unbounded = trl(tmp_path, f"{both}, vllm_importance_sampling_clip_max=None")
    assert float(str(section(unbounded)["cap"])) == 1e9
    assert section(trl(tmp_path, "vllm_importance_sampling_cap=4.0"))["cap"] == 4.0
    assert section(trl(tmp_path, "vllm_importance_sampling_correction=False")) == {}


def test_rlinf_s_truncated_weights_and_decoupled_critic(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "runner: {task_type: reasoning, max_steps: 4, seq_length: 512}\n"
        "data: {max_prompt_length: 256, rollout_batch_size: 8}\n"
        "algorithm: {adv_type: grpo, group_size: 4, importance_sampling_fix: True, importance_sampling_clip: 1.0}\n"
        "reward: {reward_type: math}\n"
    )
    assert section(checked(imported("rlinf", file))) == {"level": "token", "mode": "truncate", "cap": 1.0}
    file.write_text(
        "runner: {task_type: embodied, max_epochs: 4}\n"
        "algorithm: {adv_type: gae, loss_type: decoupled_actor_critic, behave_weight_threshold: 2, "
        "staleness_threshold: 3}\n"
        "env: {train: {env_type: maniskill, init_params: {id: PickCube-v1}, total_num_envs: 8, "
        "max_steps_per_rollout_epoch: 16}}\n"
        "actor: {model: {model_type: mlp_policy}}\n"
    )
    sheet = checked(imported("rlinf", file))
    assert section(sheet) == {"level": "token", "mode": "mask", "cap": 2.0}
    assert (sheet.value("algorithm.loss_type"), sheet.value("rollout.staleness")) == ("actor_critic", 3)


@pytest.mark.parametrize(
    ("arguments", "estimate"),
    [
        ("", "mse"),
        ("use_bias_correction_kl=False, ", "low_var_kl"),
        ("importance_sampling_level='sequence', ", "low_var_kl"),
    ],
)
def test_trl_weights_the_kl_by_the_ratio(tmp_path: Path, arguments: str, estimate: str) -> None:
    sheet = trl(tmp_path, f"{arguments}beta=0.1")
    assert sheet.value("algorithm.kl_penalty_type") == estimate
    named = [line for line in sheet.differs if "use_bias_correction_kl" in line]
    assert len(named) == (0 if "False" in arguments else 1)


def test_k3_times_the_ratio_has_the_gradient_of_k2() -> None:
    logprobs = torch.tensor([-1.0, -0.2, -3.0], requires_grad=True)
    reference = torch.tensor([-1.5, -0.9, -1.0])
    ratio = (logprobs - logprobs.detach()).exp()
    (of_trl,) = torch.autograd.grad((ratio * kl_divergence("low_var_kl", logprobs, reference)).sum(), logprobs)
    (ours,) = torch.autograd.grad(kl_divergence("mse", logprobs, reference).sum(), logprobs)
    torch.testing.assert_close(of_trl, ours)


def test_trl_normalises_rewards_one_by_one_as_gdpo(tmp_path: Path) -> None:
    sheet = trl(tmp_path, "multi_objective_aggregation='normalize_then_sum', scale_rewards='none'")
    assert sheet.value("algorithm.adv_type") == "gdpo"
    assert sheet.value("algorithm.normalize_by_std") is None


def test_the_kl_in_rewards_keeps_its_own_estimate(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    both = "algorithm.use_kl_in_reward=True algorithm.kl_penalty=abs actor_rollout_ref.actor.use_kl_loss=True "
    script.write_text(f"{VERL}{both}actor_rollout_ref.actor.kl_loss_type=low_var_kl\n")
    of_verl = checked(imported("verl", script, (), Options(rows=64)))
    file = tmp_path / "run.yaml"
    file.write_text(f"{ROLL}add_token_level_kl: true\nkl_penalty: abs\nuse_kl_loss: true\nkl_loss_coef: 0.01\n")
    for sheet in (of_verl, checked(imported("roll", file))):
        assert sheet.value("algorithm.kl_beta")
        assert sheet.value("algorithm.token_kl_type") == "abs"
        assert sheet.value("algorithm.kl_penalty_type") in ("low_var_kl", None)

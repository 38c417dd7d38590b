"""A rank that is sent its own rows alone makes, bit for bit, the update that it makes of the whole batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_cases import MICRO_BATCH_TOKENS, make_batch, make_stage, policy_of, tiny_model
from torch import Tensor

from rlinf.algorithms.aggregation import LossCounts
from rlinf.algorithms.by_row import with_advantages
from rlinf.algorithms.catalog import AGGREGATIONS
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.algorithms.scan import shift_back
from rlinf.batch_share import BatchShare
from rlinf.config.schema import AlgorithmConfig
from rlinf.learners.partition import DataPlace
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.row_records import RecordLayout
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import TextPlan
from rlinf.types import Batch, BatchError

RANKS = (1, 2, 8)


def prepared() -> Batch:
    """Two groups of five have one reward, and so no advantage; one row has no response."""
    batch = make_batch(groups=5, group_size=4)
    advantages = torch.where(batch.group_ids < 2, 0.0, torch.arange(20) / 7 - 1)[:, None] * batch.mask
    inputs: Any = batch.inputs
    lengths = inputs.response_lengths.clone()
    lengths[9] = 0
    mask = batch.mask & (torch.arange(20) != 9)[:, None]
    return batch.replace(
        mask=mask, advantages=advantages * mask, returns=advantages, inputs=replace(inputs, response_lengths=lengths)
    )


def plain_stage(*, epochs: int = 1, minibatches: int = 1) -> Stage:
    """Nothing is asked about rows that can't move the weights."""
    return replace(make_stage(epochs=epochs, minibatches=minibatches), objective=Objective.of("actor"))


def plan_of(stage: Stage, *, skips_unanswered: bool = False) -> TextPlan:
    return TextPlan([stage], seed=3, skips_unanswered=skips_unanswered, packed=True)


def updated(stage: Stage, rank: int, size: int, batch: Batch | BatchShare) -> dict[str, Tensor]:
    """The weights after an update whose gradient is this rank's part alone."""
    learner = TorchLearner(
        policy_of(tiny_model(layers=1)),
        stages=[stage],
        seed=3,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        rank=rank,
        size=size,
    )
    learner.update(batch, step=2)
    return learner.policy.state_dict()


@pytest.mark.parametrize("size", RANKS)
def test_an_update_of_own_rows_is_that_of_the_whole_batch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.learners.torch.sum_gradients", lambda parameters, ranks: None)
    stage = plain_stage(epochs=2, minibatches=3)
    batch, plan = prepared(), plan_of(stage)
    facts = plan.facts(batch)
    rows = plan.updated(facts, size, stage=stage.name, step=2)
    assert rows is not None
    for rank in sorted({0, size // 2, size - 1}):
        layout = RecordLayout.of(batch, ("actions", "mask", "rollout_logprobs", "advantages"))
        own = BatchShare(layout.batch(layout.records(batch, rows)[rank]), facts, rows[rank])
        whole, alone = updated(stage, rank, size, batch), updated(stage, rank, size, own)
        assert all(torch.equal(whole[name], alone[name]) for name in whole)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_weights_of_some_rows_are_those_of_the_whole_step(name: str) -> None:
    mask = prepared().mask
    objective = Objective.of("actor", loss_agg_func=name, max_response_length=8)
    counts = LossCounts.of(mask.sum(dim=1))
    whole, rows = objective.weights(mask), torch.tensor([11, 2, 9])
    assert torch.equal(objective.weights(mask[rows], counts=counts), whole[rows])


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("skips", [False, True])
def test_every_row_is_evaluated_once_and_nobody_is_without_one(size: int, skips: bool) -> None:
    batch, plan = prepared(), plan_of(make_stage(), skips_unanswered=skips)
    facts = plan.facts(batch)
    rows = plan.evaluated(facts, size)
    assert all(len(one) for one in rows)
    assert set(torch.cat(rows).tolist()) == set(range(20)) - ({9} if skips else set())


def test_rows_of_other_ranks_are_refused() -> None:
    batch, plan = prepared(), plan_of(make_stage())
    share = BatchShare(batch.select([4, 1]), plan.facts(batch), torch.tensor([4, 1]))
    assert share.select(torch.tensor([1])).actions.equal(batch.actions[1:2])
    assert not share.blank().mask.any()
    with pytest.raises(BatchError, match=r"rows \[3\] of the batch are on other ranks"):
        share.select(torch.tensor([1, 3]))


def test_facts_travel_in_few_bytes() -> None:
    facts = plan_of(make_stage()).facts(prepared())
    narrow, wide = facts.narrow(), facts.narrow().wide()
    assert narrow.tokens.dtype == narrow.costs.lengths.dtype == torch.int16
    assert wide.tokens.dtype == wide.costs.lengths.dtype == torch.int32
    assert wide.costs.lengths.equal(facts.costs.lengths)
    assert replace(facts, tokens=facts.tokens + (1 << 15)).narrow().tokens.dtype == torch.int32


class Ranks:
    """Keeps what each rank is sent."""

    name = "learner"

    def __init__(self, size: int, sharers: int) -> None:
        self.size, self.sharers, self.sent = size, sharers, []

    def call(self, method: Any) -> list[Any]:
        assert method == "data_place"
        return [DataPlace(rank // self.sharers, self.size // self.sharers) for rank in range(self.size)]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> Any:
        assert method == "update"
        self.sent = per_rank

    def gather(self, handles: Any) -> list[Any]:
        return [{"loss": 0.0}] * self.size


class InPlace:
    def share(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("sharers", [1, 2])
def test_a_rank_is_sent_its_share(sharers: int) -> None:
    stage, batch = plain_stage(), prepared()
    ranks: Any = Ranks(4, sharers)
    pool = LearnerPool(ranks, InPlace(), plan=plan_of(stage))  # type: ignore[arg-type]
    pool.update(batch, step=0)
    sent = [one.parts for (one,) in ranks.sent]
    sizes = [len(one[2]) for one in sent[::sharers]]
    # Two groups without an advantage and a row without a response can't move the weights: nobody needs them.
    assert sum(sizes) == 11
    pairs = zip(sent[::sharers], sent[sharers - 1 :: sharers], strict=True)
    assert all(one[2].equal(other[2]) for one, other in pairs)
    for records, common, rows in sent:
        held = common.layout.batch(records)
        assert held.advantages is not None
        assert held.advantages.equal(batch.select(rows).advantages)  # type: ignore[arg-type]
        lengths = batch.select(rows).inputs.response_lengths  # type: ignore[attr-defined]
        a_position = 4 + 1 + 4 + 4  # tokens, mask, log-probabilities, advantages
        assert len(records) == len(rows) * common.layout.width + a_position * int(lengths.sum())
        assert held.inputs.prompt_ids.equal(batch.select(rows).inputs.prompt_ids)  # type: ignore[attr-defined]


class KeepsBatches:
    """A rank of a learner that updates nothing."""

    def update(self, batch: Batch | BatchShare, *, step: int) -> dict[str, float]:
        self.batch = batch
        return {}


class Working(Ranks):
    """Ranks in this process."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 1)
        self.learners = [KeepsBatches() for _ in range(size)]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> Any:
        workers = [LearnerWorker(learner, rank=rank) for rank, learner in enumerate(self.learners)]  # type: ignore[arg-type]
        given = [one.of(lambda part: part) if hasattr(one, "of") else one for (one,) in per_rank]
        return [getattr(worker, method)(one, **options) for worker, one in zip(workers, given, strict=True)]

    def gather(self, handles: Any) -> list[Any]:
        return list(handles)


OF_TURNS = ("gigpo", "grpo_turn")


def begins_of_turns(mask: Tensor, random: torch.Generator) -> Tensor:
    """[B, T]: a row's first valid token, and some more, begin a turn."""
    first = mask.int().cumsum(1) == 1
    return mask & (first | (torch.rand(mask.shape, generator=random) < 0.3))


def last_of_turns(begins: Tensor, mask: Tensor) -> Tensor:
    return mask & ((shift_back(begins.double(), mask, fill=1.0)) > 0)


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize(
    "options",
    [
        {"adv_type": "gae"},
        {"adv_type": "gae", "normalize_advantages": True, "max_len_mask": True},
        {"adv_type": "reinforce", "gamma": 0.9},
        {"adv_type": "reinforce_pp", "kl_coef": 0.1},
        {"adv_type": "opd"},
        {"adv_type": "gae", "whiten_rewards": True, "normalize_advantages": True, "keep_zero_groups": True},
        {"adv_type": "reinforce_pp_baseline", "kl_coef": 0.1, "gamma": 0.9, "keep_zero_groups": True},
        {"adv_type": "grpo_process", "difficulty_mask": True},
        {"adv_type": "grpo", "normalize_advantages": True, "keep_zero_groups": True, "use_valid_token_scale": True},
        {"adv_type": "grpo", "opd_coef": 0.1, "reward_clip": 0.4},
        {"adv_type": "opo"},
        {"adv_type": "grpo", "reward_clip": 0.4, "advantage_clip": 0.9, "difficulty_mask": True},
        {"adv_type": "gigpo", "gamma": 0.9, "step_weight": 0.5, "difficulty_mask": True},
        {"adv_type": "gigpo", "normalize_advantages": True, "keep_zero_groups": True},
        {"adv_type": "grpo_turn", "gamma": 0.9, "advantage_clip": 0.9},
        {"adv_type": "grpo_turn", "opd_coef": 0.1, "max_len_mask": True},
    ],
)
def test_ranks_make_the_advantages_of_their_rows_bit_for_bit(size: int, options: dict[str, Any]) -> None:
    random, batch = torch.Generator().manual_seed(5), prepared().replace(advantages=None, returns=None)
    columns: tuple[str, ...] = ("old_values", "ref_logprobs", "teacher_logprobs", "old_logprobs")
    of_turns = options["adv_type"] in OF_TURNS
    if (of_turns or options["adv_type"] in ("grpo", "opo")) and "opd_coef" not in options:
        columns = ("old_logprobs",)  # a teacher's part is one of tokens
    elif of_turns:
        columns = ("teacher_logprobs", "old_logprobs")
    made = {name: torch.randn(batch.mask.shape, generator=random) for name in columns}
    last = batch.mask.int().cumsum(1).argmax(1)[:, None] == torch.arange(batch.num_positions)
    ended = {"terminated": last & batch.mask, "truncated": (last & batch.mask)[:3].repeat(7, 1)[:20] & False}
    steps = torch.where(torch.rand(batch.mask.shape, generator=random) < 0.4, made["old_logprobs"], torch.nan)
    rewards = torch.arange(20) % 3 / 2.0
    batch = batch.replace(rewards=rewards, step_rewards=steps, **made, **ended)
    if of_turns:
        begins = begins_of_turns(batch.mask, random)
        batch = batch.replace(
            anchor_ids=torch.where(begins, batch.group_ids[:, None], -1),
            rewards=torch.where(last_of_turns(begins, batch.mask), rewards[:, None], 0.0),
        )
    algorithm = AlgorithmConfig(**options)
    ranks: Any = Working(size)
    pool = LearnerPool(ranks, InPlace(), plan=plan_of(plain_stage()))  # type: ignore[arg-type]
    whole, expected = prepare_batch(batch, algorithm, AlgorithmState.of(algorithm))
    left, metrics = prepare_batch(batch, algorithm, AlgorithmState.of(algorithm), look=pool.look)
    assert left.advantages is None
    assert metrics == pytest.approx(expected)
    pool.update(left, step=2)
    assert whole.advantages is not None
    assert left.moving is not None
    assert left.moving.equal((whole.mask & (whole.advantages != 0)).any(dim=1))
    for learner in ranks.learners:
        share = learner.batch
        held, rows = (share.held, share.rows) if isinstance(share, BatchShare) else (share, torch.arange(20))
        assert held.advantages.equal(whole.advantages[rows])
    made_here = with_advantages(left)
    assert made_here.advantages is not None
    assert made_here.advantages.equal(whole.advantages)
    assert made_here.returns is not None
    assert whole.returns is not None
    assert of_turns or made_here.returns.equal(whole.returns)

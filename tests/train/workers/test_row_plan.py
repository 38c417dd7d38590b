"""A rank that is sent its own rows alone makes, bit for bit, the update that it makes of the whole batch."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from learner_cases import MICRO_BATCH_TOKENS, SAMPLING, make_batch, make_stage, policy_of, tiny_model
from torch import Tensor

from rlinf.algorithms.advantages.distributed import complete
from rlinf.algorithms.catalog import AGGREGATIONS
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch, prepare_rows
from rlinf.algorithms.scan import shift_back
from rlinf.cluster import WorkerError
from rlinf.cluster.batch_calls import BatchCall
from rlinf.cluster.local import LocalHandle
from rlinf.cluster.packing import pack
from rlinf.data.advantage_spec import PreparedRows
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput
from rlinf.data.shards import DataParallelRank, LossCounts, RankBatch
from rlinf.data.wire import RowFormat
from rlinf.learners.scorer import Scorer
from rlinf.learners.stage import Stage
from rlinf.learners.step_plan import evaluation_plan
from rlinf.learners.torch import TorchLearner
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.schema import AlgorithmConfig
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import TextPlan, text_facts

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


def plan_of(stage: Stage) -> TextPlan:
    return TextPlan([stage], seed=3, packed=True)


def updated(stage: Stage, rank: int, size: int, batch: Batch | RankBatch) -> tuple[dict[str, Tensor], Metrics]:
    """Weights and metrics of an update whose gradient is this rank's part alone."""
    learner = TorchLearner(
        policy_of(tiny_model(layers=1)),
        stages=[stage],
        seed=3,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        rank=rank,
        size=size,
    )
    metrics = learner.update(batch, step=2)
    return learner.policy.state_dict(), metrics


@pytest.mark.parametrize("size", RANKS)
def test_an_update_of_own_rows_is_that_of_the_whole_batch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.learners.torch.sum_gradients", lambda parameters, ranks: None)
    stage = plain_stage(epochs=2, minibatches=3)
    batch, plan = prepared(), plan_of(stage)
    facts, place = plan.facts(batch), DataParallelRank(0, size, MICRO_BATCH_TOKENS)
    made = plan.updated(facts, place, stage=stage.name, step=2)
    assert made is not None
    own = made.by_share(facts)
    layout = RowFormat.of(batch, ("actions", "mask", "rollout_logprobs", "advantages"))
    records = layout.records(batch, [one.rows for one in own])
    for rank in sorted({0, size // 2, size - 1}):
        share = RankBatch(layout.read(records[rank], None)[0], own[rank].parts, made.steps)
        (whole, expected), (alone, metrics) = (updated(stage, rank, size, given) for given in (batch, share))
        assert all(torch.equal(whole[name], alone[name]) for name in whole)
        assert metrics == expected


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
    batch, place = prepared(), DataParallelRank(0, size, MICRO_BATCH_TOKENS, answered_only=skips, alike=skips)
    facts = plan_of(make_stage()).facts(batch)
    own = evaluation_plan(facts, place).by_share(facts)
    assert all(len(one.rows) for one in own)
    computed = [one.rows[places.long()] for one in own for places in one.parts[0].micro_batches]
    assert sorted(torch.cat(computed).tolist()) == sorted(set(range(20)) - ({9} if skips else set()))
    passes = [one.parts[0].passes for one in own]
    assert min(passes) == max(passes) or not skips


def test_a_rank_without_rows_takes_part_with_a_row_in_which_nothing_counts() -> None:
    batch, place = prepared(), DataParallelRank(0, 32, MICRO_BATCH_TOKENS)
    facts = plan_of(make_stage()).facts(batch)
    idle = [one for one in evaluation_plan(facts, place).by_share(facts) if not one.parts[0].micro_batches]
    assert len(idle) >= 12
    share = RankBatch(batch.select(idle[0].rows), idle[0].parts)
    ((blank, _),) = share.passes(share.parts[0])
    assert blank.num_rows == 1
    assert not blank.mask.any()


class Ranks:
    """Keeps what each rank is sent."""

    name = "learner"

    def __init__(self, size: int, sharers: int) -> None:
        self.size, self.sharers, self.sent = size, sharers, []

    def call(self, method: Any) -> list[Any]:
        assert method in ("data_rank", "teacher_place")
        shares = self.size // self.sharers
        return [DataParallelRank(rank // self.sharers, shares, MICRO_BATCH_TOKENS) for rank in range(self.size)]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> Any:
        assert method == "update"
        self.sent = per_rank

    def gather(self, handles: Any) -> list[Any]:
        return [{"loss": 0.0}] * self.size

    def shares(self) -> list[RankBatch]:
        """What each rank was given."""
        return [one.of(lambda part: part) for (one,) in self.sent]


class InPlace:
    def share(self, value: Any) -> Any:
        return value


def bytes_of(value: Any) -> int:
    """Of a value as it travels."""
    packed = pack(value)
    return len(packed.head) + sum(buffer.raw().nbytes for buffer in packed.buffers)


@pytest.mark.parametrize("sharers", [1, 2])
def test_a_rank_is_sent_its_share(sharers: int) -> None:
    stage, batch = plain_stage(), prepared()
    ranks: Any = Ranks(4, sharers)
    pool = LearnerPool(ranks, InPlace(), plan=plan_of(stage))  # type: ignore[arg-type]
    pool.update(batch, step=0)
    given = ranks.shares()
    # Two groups without an advantage and a row without a response can't move the weights: nobody needs them.
    assert sum(share.batch.num_rows for share in given[::sharers]) == 11
    pairs = zip(given[::sharers], given[sharers - 1 :: sharers], strict=True)
    assert all(one.batch.actions.equal(other.batch.actions) for one, other in pairs)
    numbers = {tuple(tokens): row for row, tokens in enumerate(batch.actions.tolist())}
    for share, ((records, *_), common) in zip(given, [one.parts for (one,) in ranks.sent], strict=True):
        expected = batch.select([numbers[tuple(tokens)] for tokens in share.batch.actions.tolist()])
        assert share.batch.advantages is not None
        assert share.batch.advantages.equal(expected.advantages)  # type: ignore[arg-type]
        lengths = expected.inputs.response_lengths  # type: ignore[attr-defined]
        a_position = 4 + 1 + 4 + 4  # tokens, mask, log-probabilities, advantages
        assert len(records) == len(lengths) * common.layout.width + a_position * int(lengths.sum())
        assert share.batch.inputs.prompt_ids.equal(expected.inputs.prompt_ids)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (2, 3)])
def test_what_a_rank_is_sent_does_not_grow_with_the_rows_of_others(epochs: int, minibatches: int) -> None:
    stage = plain_stage(epochs=epochs, minibatches=minibatches)

    def beyond_rows(times: int) -> int:
        """The most bytes that one of ``4 * times`` ranks is sent beside its records, with as many rows to each."""
        ranks: Any = Ranks(4 * times, 1)
        LearnerPool(ranks, InPlace(), plan=plan_of(stage)).update(  # type: ignore[arg-type]
            make_batch(groups=5 * times), step=0
        )
        sent = [one.parts for (one,) in ranks.sent]
        return max(sum(map(bytes_of, parts)) - len(parts[0][0]) for parts in sent)

    assert abs(beyond_rows(16) - beyond_rows(1)) < 100


class KeepsBatches:
    """A rank of a learner that updates nothing, and says of a token its number."""

    def update(self, batch: Batch | RankBatch, *, step: int) -> dict[str, float]:
        self.batch = batch
        return {}

    def evaluate(self, batch: RankBatch, *, reference: bool) -> tuple[Tensor, PolicyOutput]:
        places = batch.parts[0].micro_batches
        rows = torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)
        return rows, PolicyOutput(batch.select(rows).actions.float())


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


def test_what_ranks_say_is_in_the_order_of_the_batch() -> None:
    ranks: Any = Working(8)
    pool = LearnerPool(ranks, InPlace(), plan=plan_of(plain_stage()))  # type: ignore[arg-type]
    batch = make_batch()
    assert pool.evaluate(batch).logprobs.equal(batch.actions.float())


def test_a_row_that_no_rank_evaluates_is_missed_if_it_has_a_valid_position() -> None:
    group, batch = Ranks(2, 1), make_batch()
    rows = [torch.arange(6), torch.arange(7, 12)]
    said = [(torch.arange(len(own)), PolicyOutput(torch.ones(len(own), 8))) for own in rows]
    group.gather = lambda handles: said  # type: ignore[method-assign]
    handle: Any = LocalHandle(group.name, 0, "evaluate", None, None)
    call = BatchCall(group, [handle], batch, rows)  # type: ignore[arg-type]
    with pytest.raises(WorkerError, match="left rows out"):
        call.outputs()
    quiet = batch.replace(mask=batch.mask & (torch.arange(12) != 6)[:, None])
    assert replace(call, batch=quiet).outputs().logprobs.sum(dim=1).tolist() == [8.0] * 6 + [0.0] + [8.0] * 5


class Teaching(Working):
    """Ranks whose teacher is a real one, beside a learner."""

    def __init__(self, size: int, *, packed: bool) -> None:
        super().__init__(size)
        model = tiny_model(layers=1)
        self.workers = [
            LearnerWorker(
                KeepsBatches(),  # type: ignore[arg-type]
                rank=rank,
                teacher=Scorer(
                    CausalLMPolicy(model, sampling=SAMPLING, pack_rows=packed),
                    micro_batch_tokens=MICRO_BATCH_TOKENS,
                    rank=rank,
                    size=size,
                ),
            )
            for rank in range(size)
        ]

    def call(self, method: Any) -> list[Any]:
        return [getattr(worker, method)() for worker in self.workers]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> Any:
        self.sent = [one.of(lambda part: part) if hasattr(one, "of") else one for (one,) in per_rank]
        return [getattr(worker, method)(one) for worker, one in zip(self.workers, self.sent, strict=True)]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("size", RANKS)
def test_a_teacher_scores_the_rows_that_its_rank_is_sent_as_it_does_with_all(size: int, packed: bool) -> None:
    """Bit for bit; a rank is sent nobody else's rows, whatever advantages there are."""
    batch, ranks = prepared(), Teaching(size, packed=packed)
    expected = torch.zeros_like(batch.rollout_logprobs)
    for worker in ranks.workers:
        rows, output = worker.teach(batch)
        expected[rows] = output.logprobs
    pool = LearnerPool(
        ranks,  # type: ignore[arg-type]
        InPlace(),  # type: ignore[arg-type]
        plan=plan_of(plain_stage()),
        teacher_facts=functools.partial(text_facts, packed=packed),
    )
    assert pool.teach(batch).equal(expected)
    if size > 1:
        assert sum(share.batch.num_rows for share in ranks.sent) == batch.num_rows


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
        {"adv_type": "gdpo", "difficulty_mask": True},
        {"adv_type": "gdpo", "normalize_advantages": True, "use_valid_token_scale": True},
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
    if options["adv_type"] == "gdpo":
        terms = torch.stack([rewards, torch.rand(20, generator=random)], dim=1)
        batch = batch.replace(reward_terms=terms, reward_weights=torch.tensor([[1.0, 0.3]]).expand(20, 2))
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
    left, metrics = prepare_rows(batch, algorithm, AlgorithmState.of(algorithm), pool)
    assert isinstance(left, PreparedRows) == (size > 1)
    assert metrics == pytest.approx(expected)
    pool.update(left, step=2)
    assert whole.advantages is not None
    gradient = (whole.mask & (whole.advantages != 0)).any(dim=1)
    assert pool._plan is not None
    assert pool._plan.facts(left).has_gradient.equal(gradient)
    numbers = {tuple(tokens): row for row, tokens in enumerate(whole.actions.tolist())}
    for learner in ranks.learners:
        share = learner.batch
        held = share.batch if isinstance(share, RankBatch) else share
        rows = [numbers[tuple(tokens)] for tokens in held.actions.tolist()]
        assert held.advantages.equal(whole.advantages[rows])
    made_here = complete(left)
    assert made_here.advantages is not None
    assert made_here.advantages.equal(whole.advantages)
    assert made_here.returns is not None
    assert whole.returns is not None
    assert of_turns or made_here.returns.equal(whole.returns)

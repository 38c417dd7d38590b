"""Conversations of several turns, greedy baselines and anchor states, over a real sampler and over scripted ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import text_envs
import torch
from answering import AtOnce
from letters import EOS, PAD, Letters

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.base.errors import RunFailed, UserError
from rlinf.config import Config
from rlinf.data.batch import Batch, concatenate
from rlinf.data.messages import Completion, Metrics, SampleRequest, SamplingParams, WeightUpdate
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.rollouts.text.conversation import Feedback, Response, Row, Turn
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.to_batch import reward_terms
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig

VOCABULARY = 128


class Echo:
    """Answers every response with its length for ``turns - 1`` times; the reward is 1 for an even length."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.turn: Counter[int] = Counter()

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        return [f"task {task}" for task in task_ids]

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        self.turn.clear()
        count = len(task_ids)
        return self.prompts(split, task_ids), {"domain": ["echo"] * count, "answer": [""] * count}

    busy_s = 0.0

    def answers(self) -> AtOnce:
        return AtOnce(self.answer)

    def answer(self, response: Response) -> Feedback:
        index, answer, *_ = response
        self.turn[index] += 1
        reward, over = float(len(answer) % 2 == 0), self.turn[index] >= self.turns
        return Feedback(index, str(len(answer) % 3), reward, over, {})


class Script:
    """A sampler that returns, turn by turn, the lines that it was given."""

    def __init__(self, lines: Sequence[str], greedy: str = "") -> None:
        self.lines, self.greedy = lines, greedy

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [self._completion(request, request.first_sample + i) for request in requests for i in range(request.n)]

    def _completion(self, request: SampleRequest, sample: int) -> Completion:
        line = self.greedy if request.params.temperature == 0.0 else self.lines[request.key[-1]]
        tokens = (*map(ord, line), EOS)
        return Completion(request.request_id, sample, tokens, (-1.0,) * len(tokens), "stop", (0,) * len(tokens))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        yield from self.sample(requests)

    def session(self) -> ScriptSession:
        return ScriptSession(self)

    def load(self, update: WeightUpdate) -> Metrics:
        return {}

    def sleep(self) -> None: ...

    def wake(self) -> None: ...


class ScriptSession:
    """All completions arrive at once."""

    def __init__(self, script: Script) -> None:
        self.script, self.done = script, list[Completion]()

    @property
    def open(self) -> int:
        return len(self.done)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        self.done += self.script.sample(requests)

    def poll(self, max_s: float) -> list[Completion]:
        done, self.done = self.done, []
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        return []

    def close(self) -> None: ...


def rollout(sampler: Any, envs: Any, *, turns: int, tasks: int = 5, adv_type: str = "grpo", **more: Any) -> TextRollout:
    limits: dict[str, Any] = {"batch_size": 2, "max_new_tokens": 80, **more}
    limits.setdefault("max_conversation_tokens", turns * limits["max_new_tokens"] + 40)
    algorithm = AlgorithmConfig(adv_type=adv_type, group_size=limits.pop("group_size", 2))
    config = Config(
        env=EnvConfig(max_turns=turns),
        data=DataConfig(max_prompt_length=200),
        rollout=RolloutConfig(**limits),
        algorithm=algorithm,
    )
    return TextRollout(sampler, envs, [TextMixtureEnv("", PromptRenderer(Letters()), tasks, turns)], config.collection)


def tiny() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special: dict[str, Any] = {"eos_token_id": EOS, "pad_token_id": PAD}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCABULARY, **sizes, **heads, **special)).eval()


def test_sampler_and_learner_agree_in_every_turn() -> None:
    model = tiny()
    sampler = HFSampler(
        model, eos_token_ids=[EOS], pad_token_id=PAD, seed=7, generation_batch_size=8, max_model_len=400
    )
    batch, metrics = rollout(sampler, Echo(turns=3), turns=3, max_new_tokens=120).collect(0)
    policy = CausalLMPolicy(model, sampling=SamplingParams(max_new_tokens=120))
    with torch.no_grad():
        logprobs = policy.evaluate(batch.inputs, batch.actions, batch.mask).logprobs
    spoken = batch.mask.sum(1)
    assert bool((batch.inputs.response_lengths > spoken).any()), "some response must have been answered"
    assert float(torch.where(batch.mask, logprobs - batch.rollout_logprobs, 0.0).abs().max()) < 1e-4
    assert float(batch.rollout_logprobs[~batch.mask].abs().max()) == 0.0
    assert batch.rewards.shape == batch.mask.shape
    assert not bool((batch.rewards != 0)[~batch.mask].any())
    assert metrics["rollout/tokens"] == float(batch.inputs.response_lengths.sum())


@pytest.fixture
def sums(tmp_path: Path) -> str:
    path = tmp_path / "sums.jsonl"
    rows = [{"question": f"What is 3 + {n}?", "answer": str(3 + n)} for n in (4, 4, 4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tool_loop(path: str, max_turns: int) -> TextEnvWorker:
    kwargs = {"path": path, "eval_fraction": 0.0}
    return TextEnvWorker("rlinf_envs:rlinf/MathToolLoop-v0", {"train": kwargs}, max_turns=max_turns)


def test_a_calculator_is_called_and_answers(sums: str) -> None:
    script = Script(["<calc>3 + 4</calc>", "\\boxed{7}"])
    batch, metrics = rollout(script, tool_loop(sums, 3), turns=3, tasks=1, batch_size=1).collect(0)
    first, observed, last = len(script.lines[0]) + 1, len("\n<result>7</result>\n"), len(script.lines[1]) + 1
    assert batch.mask[0].tolist() == [True] * first + [False] * observed + [True] * last
    assert batch.rewards[0].nonzero().tolist() == [[first + observed + last - 1]]
    assert batch.terminated is not None
    assert batch.terminated[0].nonzero().tolist() == [[first + observed + last - 1]]
    assert batch.metadata["verdict"] == ["correct"] * 2
    assert metrics["rollout/accuracy"] == 1.0


def test_the_last_turn_is_graded_though_the_policy_goes_on_calling(sums: str) -> None:
    script = Script(["<calc>3 + 4</calc>"] * 2)
    batch, _ = rollout(script, tool_loop(sums, 2), turns=2, tasks=1, batch_size=1).collect(0)
    assert batch.metadata["verdict"] == ["wrong"] * 2
    with pytest.raises(UserError, match=r"set env\.max_turns: 8"):
        tool_loop(sums, 1).facts("train")


def test_a_greedy_response_is_the_baseline_of_its_group() -> None:
    """Two letters give 1, three give 0; the end-of-sequence token is no letter."""
    lucky = rollout(Script(["ab"], greedy="abc"), Echo(1), turns=1, adv_type="remax")
    batch, metrics = lucky.collect(0)
    assert batch.num_rows == 4
    assert batch.reward_details.greedy_rewards.tolist() == [0.0] * 4
    assert metrics["rollout/tokens"] == 4 * 3 + 2 * 4
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="remax"), AlgorithmState.of(AlgorithmConfig()))
    assert prepared.advantages is not None
    assert prepared.advantages[prepared.mask].tolist() == [1.0] * 12
    assert rollout(Script(["ab"]), Echo(1), turns=1).collect(0)[0].reward_details.greedy_rewards is None


class LosesGreedy(Echo):
    """An environment that fails at the response of three letters to its first task."""

    def answer(self, response: Response) -> Feedback:
        if response[0] == 0 and len(response[1]) == 3:
            return Feedback.lost_row(0, "timeout", "no answer within 1 s")
        return super().answer(response)


def test_a_group_whose_greedy_conversation_is_lost_has_no_advantage() -> None:
    """A lost conversation earned 0, which is no baseline: two letters would have the advantage 1."""
    batch, metrics = rollout(Script(["ab"], greedy="abc"), LosesGreedy(1), turns=1, adv_type="remax").collect(0)
    assert batch.mask.any(dim=1).tolist() == [False, False, True, True]
    assert metrics["rollout/greedy_reward"] == 0.0
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="remax"), AlgorithmState.of(AlgorithmConfig()))
    assert prepared.advantages is not None
    assert prepared.advantages[prepared.mask].tolist() == [1.0] * 6


class Graded(Echo):
    """A reward of two terms: whether the length is even, and the length itself, which counts by a hundredth."""

    weights = {"even": 1.0, "letters": -0.01, "unused": 0.0}  # noqa: RUF012 (a test's)

    def answer(self, response: Response) -> Feedback:
        found = super().answer(response)
        values = {"letters": float(len(response.content)), "even": found.reward, "unused": 5.0}
        facts = {f"reward/{name}": value for name, value in values.items()}
        facts |= {f"reward_weight/{name}": weight for name, weight in self.weights.items()}
        return replace(found, reward=found.reward - 0.01 * values["letters"], facts=facts)


def test_terms_of_a_reward_come_with_their_weights_where_an_estimator_reads_them() -> None:
    talk = rollout(Uneven([]), Graded(1), turns=1, batch_size=1, adv_type="gdpo")
    batch, _ = talk.collect(0)
    assert batch.reward_details.reward_terms is not None
    assert batch.reward_details.reward_terms.tolist() == [[1.0, 2.0], [0.0, 5.0]]
    assert batch.reward_details.reward_weights is not None
    torch.testing.assert_close(batch.reward_details.reward_weights, torch.tensor([[1.0, -0.01]] * 2))
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="gdpo"), AlgorithmState.of(AlgorithmConfig()))
    assert prepared.advantages is not None
    torch.testing.assert_close(prepared.advantages[:, 0], torch.tensor([0.7071, -0.7071]), atol=1e-4, rtol=0)
    assert rollout(Uneven([]), Graded(1), turns=1, batch_size=1).collect(0)[0].reward_details.reward_terms is None


def test_a_reward_that_is_no_sum_of_terms_stops_the_run() -> None:
    with pytest.raises(RunFailed, match=r"adv_type: gdpo .* add up to 0, its reward being 1\. .*reward_weight/NAME"):
        rollout(Script(["ab"]), Echo(1), turns=1, adv_type="gdpo").collect(0)


def test_lost_rows_and_rows_that_were_never_graded_have_terms_too() -> None:
    def row(group: int, facts: dict[str, Any], reward: float, terms: dict[str, float], **more: Any) -> Row:
        made = Row.imitated(group, 0, ("", ""), prompt_ids=(1,), tokens=[5], mask=[True])
        made.facts, made.rewards = facts, {0: reward}
        made.turns.append(Turn("policy", None, "", 1, reward=reward, reward_terms=terms))
        return replace(made, **more)

    weights = {"reward_weight/b": 2.0, "reward_weight/a": 1.0}
    rows = [
        row(0, weights, 7.0, {"a": 1.0, "b": 3.0}),
        row(0, {}, 0.0, {}),  # cut by the limit of the conversation before it was graded
        row(1, {"reward_weight/c": 1.0}, 0.0, {"c": float("inf")}),  # quarantined
        row(2, {}, 0.0, {}, lost=True),
    ]
    values, counts = reward_terms(rows)
    assert values[:2].tolist() == [[1.0, 3.0], [0.0, 0.0]]
    assert bool(values[2:].isnan().all())
    assert counts.tolist() == [[1.0, 2.0], [1.0, 2.0], [1.0, 0.0], [0.0, 0.0]]


class Uneven(Script):
    """Member 0 of a group writes "ab" and then "ab", the others "abcde" and then "abc"; observations are equal."""

    def _completion(self, request: SampleRequest, sample: int) -> Completion:
        self.lines = ["ab", "ab"] if sample == 0 else ["abcde", "abc"]
        return super()._completion(request, sample)


def test_turns_that_begin_in_the_same_state_are_compared() -> None:
    talk = rollout(Uneven([]), Echo(2), turns=2, batch_size=1, adv_type="gigpo")
    first, _ = talk.collect(0)
    anchors = [[anchor for anchor in row if anchor >= 0] for row in first.turn_credit.anchor_ids.tolist()]
    assert anchors[0] == anchors[1]
    longer, _ = talk.collect(1)
    batch: Batch = concatenate([first, longer.replace(group_ids=longer.group_ids + 1)])
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="gigpo"), AlgorithmState.of(AlgorithmConfig()))
    assert prepared.advantages is not None
    # Rewards 1, 1 against 0, 0: both turns of the first row are better by 0.7071, and so is the whole of it.
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None].expand_as(batch.mask)[batch.mask]
    torch.testing.assert_close(prepared.advantages[batch.mask], 1.4142 * signs, atol=1e-3, rtol=0)


def test_the_environment_reads_which_responses_the_length_limit_ended() -> None:
    received: list[Response] = []

    class Receiving(Echo):
        def answer(self, response: Response) -> Feedback:
            received.append(response)
            return super().answer(response)

    class Halved(Script):
        def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
            for done in self.sample(requests):
                yield replace(done, finish_reason="length") if done.sample_index else done

    rollout(Halved(["ab"]), Receiving(1), turns=1).collect(0)
    assert [response.cut for response in sorted(received)] == [False, True] * 2


@pytest.mark.parametrize(
    ("line", "turns", "limits", "reason", "spoken"),
    [
        ("abc", 1, {"max_new_tokens": 9}, "stop", [4]),
        ("abc?", 3, {"max_new_tokens": 9}, "turns", [5, 5, 5]),
        ("abc?", 3, {"max_new_tokens": 9, "max_conversation_tokens": 17}, "conversation_length", [5]),
        ("abc?", 3, {"max_new_tokens": 9, "max_conversation_tokens": 13}, "conversation_length", [5]),
    ],
)
def test_a_limit_that_ends_a_conversation_is_named(
    tmp_path: Path, line: str, turns: int, limits: dict[str, int], reason: str, spoken: list[int]
) -> None:
    envs = TextEnvWorker(text_envs.ID, {"train": {**text_envs.lines(tmp_path), "max_turns": turns}}, max_turns=turns)
    batch, metrics = rollout(Cut([line] * turns), envs, turns=turns, batch_size=1, **limits).collect(0)
    assert batch.metadata["finish_reason"] == [reason] * 2
    assert int(batch.mask[0].sum()) >= sum(spoken)
    assert metrics["rollout/cut_by_length"] == float(reason == "conversation_length")
    assert metrics["rollout/cut_by_turns"] == float(reason == "turns")
    assert batch.truncated is not None
    assert bool(batch.truncated.any()) == (reason == "conversation_length")


class Cut(Script):
    """Keeps to the limit of the request, as every sampler does."""

    def _completion(self, request: SampleRequest, sample: int) -> Completion:
        whole = super()._completion(request, sample)
        count = request.params.max_new_tokens
        if len(whole.token_ids) <= count:
            return whole
        return Completion(
            whole.request_id, sample, whole.token_ids[:count], whole.logprobs[:count], "length", (0,) * count
        )


def test_the_limit_of_a_turn_is_not_shared_by_the_turns(tmp_path: Path) -> None:
    envs = TextEnvWorker(text_envs.ID, {"train": {**text_envs.lines(tmp_path), "max_turns": 3}}, max_turns=3)
    batch, _ = rollout(Cut(["abcd?"] * 3), envs, turns=3, batch_size=1, max_new_tokens=6).collect(0)
    assert int(batch.mask[0].sum()) == 18
    assert batch.metadata["finish_reason"] == ["turns"] * 2


class Deaf(Echo):
    """Hangs over the responses of some conversations."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(1)
        self.indices = indices

    def answer(self, response: Response) -> Feedback:
        lost = response.row_index in self.indices
        return Feedback.lost_row(response.row_index, "timeout", "") if lost else super().answer(response)


def test_a_lost_conversation_is_masked_and_counts_in_no_group() -> None:
    settings: dict[str, Any] = {"turns": 1, "batch_size": 2, "group_size": 3}
    batch, metrics = rollout(Script(["ab"]), Deaf([1]), **settings).collect(0)
    assert batch.mask.any(1).tolist() == [True, False, True, True, True, True]
    assert batch.group_ids.tolist() == [0, 2, 0, 1, 1, 1]
    assert batch.metadata["finish_reason"][1] == "env_timeout"
    assert metrics["reward/mean"] == 0.0 if len("ab") % 2 else 1.0
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="grpo"), AlgorithmState.of(AlgorithmConfig()))
    assert prepared.advantages is not None
    alone, _ = rollout(Script(["ab"]), Deaf([0, 2]), **settings).collect(0)
    assert alone.mask.any(1).tolist() == [False] * 3 + [True] * 3, "one row alone has nothing to be compared with"
    nothing, _ = rollout(Script(["ab"]), Deaf(range(6)), **settings).collect(0)
    assert not nothing.mask.any()

"""Conversations as rows of a batch: where rewards, steps, ends and states stand."""

import math

import pytest
import torch

from rlinf.algorithms import compute_advantages
from rlinf.data.messages import Completion
from rlinf.rollouts.text.conversation import Feedback, Row
from rlinf.rollouts.text.members import summary
from rlinf.rollouts.text.to_batch import batch_of
from rlinf.rollouts.text.tokens.decoding import _first_true
from rlinf.rollouts.text.tokens.prompts import PromptRenderer

NAN = math.nan
EOS, END = 1, b""
PIECES = {2: b"1 + 1", 3: b" = 2\n", 4: b"2 + 1", 5: b" = 4", 6: b"a; b", 7: b"; c", 8: b"\xc3", 9: b"\xa4", 10: b"ok"}


class Tokenizer:
    """Token ids with the bytes they stand for; words of the environment are bytes from 100 on."""

    chat_template = None
    pad_token_id = 0

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        text = b"".join(PIECES.get(token, END) if token < 100 else bytes([token - 100]) for token in tokens)
        return text.decode(errors="replace")

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [100 + byte for byte in text.encode()]


RENDERER = PromptRenderer(Tokenizer())


def start(group: int = 0) -> Row:
    return Row(group, 0, 0, "sums", "3", "prompt", (100, 101))


def respond(row: Row, *tokens: int, reason: str = "stop") -> Row:
    row.append_response(Completion(0, 0, tokens, (-0.5,) * len(tokens), reason, (3,) * len(tokens)), RENDERER)
    return row


def end(row: Row, reward: float = 0.0, **facts: object) -> Row:
    row.read(Feedback(0, "", reward, True, facts), RENDERER)
    return row


def steps_of(row: Row) -> list[float]:
    batch = batch_of([row], pad_token_id=0, multi_turn=False)
    assert batch.reward_details.step_rewards is not None
    return batch.reward_details.step_rewards[0].tolist()


def same(found: list[float], expected: list[float]) -> bool:
    return found == pytest.approx(expected, nan_ok=True)


def test_a_step_ends_in_the_token_that_completes_it_and_the_last_one_with_the_turn() -> None:
    row = respond(start(), 2, 3, 4, 5, EOS)
    assert row.answers == ["1 + 1 = 2\n2 + 1 = 4"]
    found = steps_of(end(row, step_ends=[9, 19], step_rewards=[1.0, 0.0]))
    assert same(found, [NAN, 1.0, NAN, NAN, 0.0])


def test_steps_within_one_token_add_up_and_those_without_a_score_leave_no_trace() -> None:
    row = end(respond(start(), 6, 7, EOS), step_ends=[1, 4, 7], step_rewards=[1.0, 0.5, NAN])
    assert same(steps_of(row), [1.5, NAN, NAN])


def test_a_character_of_two_tokens_is_complete_with_the_second() -> None:
    row = end(respond(start(), 8, 9, 10, EOS), step_ends=[1, 3], step_rewards=[1.0, 2.0])
    assert row.answers == ["äok"]
    assert same(steps_of(row), [NAN, 1.0, NAN, 2.0])


def test_the_blank_step_of_an_empty_response_stands_at_its_end() -> None:
    assert same(steps_of(end(respond(start(), EOS), step_ends=[0], step_rewards=[0.0])), [0.0])


def test_the_column_is_there_whenever_the_environment_splits_responses() -> None:
    scored = end(respond(start(), 10, EOS), step_ends=[2], step_rewards=[NAN])
    assert same(steps_of(scored), [NAN, NAN])
    assert batch_of([end(respond(start(), 10))], pad_token_id=0, multi_turn=False).reward_details.step_rewards is None


def test_process_supervision_of_placed_steps_by_hand() -> None:
    """Steps 1, 0 | 1, 1: mean 3/4, std 1/2, so 1/2 and -3/2; a timestep gets what still comes. The reward plays no
    part."""
    rows = [
        end(respond(start(), 2, 3, 4, 5, EOS), reward=9.0, step_ends=[9, 19], step_rewards=[1.0, 0.0]),
        end(respond(start(), 2, 3, 10, EOS), reward=0.0, step_ends=[9, 12], step_rewards=[1.0, 1.0]),
    ]
    batch = batch_of(rows, pad_token_id=0, multi_turn=False)
    found = compute_advantages(
        "grpo_process",
        rewards=batch.rewards,
        mask=batch.mask,
        group_ids=batch.group_ids,
        step_rewards=batch.reward_details.step_rewards,
    ).advantages
    expected = torch.tensor([[-1.0, -1.0, -1.5, -1.5, -1.5], [1.0, 1.0, 0.5, 0.5, 0.0]])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def conversation(first: str = "7", length_cut: bool = False) -> Row:
    """Two turns with ``first`` between them."""
    row = respond(start(), 2, EOS)
    row.read(Feedback(0, first, 0.25, False, {"verdict": ""}), RENDERER)
    if length_cut:
        row.cut("length")
        return row
    return end(respond(row, 10, EOS), reward=1.0, verdict="correct")


def test_the_words_of_the_environment_stand_under_a_false_mask() -> None:
    row = conversation()
    batch = batch_of([row], pad_token_id=0, multi_turn=True)
    words = [100 + byte for byte in b"\n7\n"]
    assert batch.actions[0].tolist() == [2, EOS, *words, 10, EOS]
    assert batch.mask[0].tolist() == [True, True, False, False, False, True, True]
    assert batch.rollout_logprobs[0].tolist() == [-0.5, -0.5, 0.0, 0.0, 0.0, -0.5, -0.5]
    assert batch.rewards[0].tolist() == [0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert batch.terminated is not None
    assert batch.terminated[0].tolist() == [False] * 6 + [True]
    assert row.total_reward == 1.25


def test_a_conversation_of_several_turns_keeps_the_speaker_of_each() -> None:
    row = conversation()
    batch = batch_of([row], pad_token_id=0, multi_turn=True)
    (turns,) = batch.metadata["turns"]
    assert [(turn["speaker"], turn["role"], turn["text"], turn["tokens"]) for turn in turns] == [
        ("policy", None, row.answers[0], 2),
        ("environment", None, "7", 3),
        ("policy", None, row.answers[1], 2),
    ]
    spoken = [turn["speaker"] == "policy" for turn in turns for _ in range(turn["tokens"])]
    assert spoken == row.mask
    assert "turns" not in batch_of([row], pad_token_id=0, multi_turn=False).metadata


def test_the_chat_template_gives_the_turns_their_roles() -> None:
    class Chat(Tokenizer):
        chat_template = "{messages}"

    assert [PromptRenderer(Chat()).role(speaker) for speaker in ("policy", "environment")] == ["assistant", "user"]


def test_a_conversation_without_room_for_an_answer_ends_where_the_policy_spoke_last() -> None:
    batch = batch_of([conversation(length_cut=True)], pad_token_id=0, multi_turn=True)
    assert batch.terminated is not None
    assert batch.truncated is not None
    assert batch.terminated[0].tolist() == batch.truncated[0].tolist() == [False, True, False, False, False]


def test_anchors_are_equal_for_equal_observations() -> None:
    rows = [conversation(text) for text in ("7", "7", "8")]
    anchor_ids = batch_of(rows, pad_token_id=0, multi_turn=True, needs=("anchor_ids",)).turn_credit.anchor_ids
    assert anchor_ids is not None
    one, same_words, other = anchor_ids.tolist()
    assert one == same_words
    assert [timestep for timestep, anchor in enumerate(one) if anchor >= 0] == [0, 5]
    assert one[0] == other[0]
    assert one[5] != other[5]


@pytest.mark.parametrize("size", [0, 1, 2, 7, 20])
def test_the_first_that_holds_is_found_from_any_guess_within_the_range(size: int) -> None:
    for first in range(size + 1):
        for guess in range(size + 2):
            tried = []

            def holds(number: int, first: int = first, tried: list[int] = tried) -> bool:
                tried.append(number)
                return number >= first

            assert _first_true(holds, guess, size) == first
            assert all(0 <= number < size for number in tried)
            assert len(tried) <= 2 or guess != first, "a right guess is confirmed at once"


def test_metrics_of_steps_are_of_the_steps_that_have_a_score() -> None:
    rows = [
        end(respond(start(), 2, 3, 4, 5, EOS), step_ends=[9, 14, 19], step_rewards=[1.0, NAN, 0.0]),
        end(respond(start(), 2, 3, 10, EOS), step_ends=[9, 12], step_rewards=[1.0, 1.0]),
    ]
    metrics = summary(rows)
    assert (metrics["reward_steps/mean"], metrics["reward_steps/scored"]) == (0.75, 2.0)
    assert not any(name.startswith("reward_steps") for name in summary([end(respond(start(), 10))]))

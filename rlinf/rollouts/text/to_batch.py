"""Rows of conversations as the columns of a batch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from rlinf.base.errors import RunFailed
from rlinf.data.batch import Batch
from rlinf.data.columns import RewardDetails, TurnCredit
from rlinf.data.inputs import TextInputs, picture_column
from rlinf.data.ragged import LOGPROBS, TOKENS, RemoteArray
from rlinf.data.remote_rows import RemoteColumns, RemoteRows
from rlinf.rollouts.text.conversation import Row

_WEIGHT = "reward_weight/"


def rows_of_batch(
    rows: Sequence[Row], *, pad_token_id: int, multi_turn: bool, needs: Collection[str] = ()
) -> Batch | RemoteRows:
    """Make the batch of conversations; if their tokens are in row stores, they stay there (record 0025).

    ``needs``: the further columns that the estimator reads.
    """
    columns = None if multi_turn else _remote_columns(rows)
    if columns is None:
        return batch_of(rows, pad_token_id=pad_token_id, multi_turn=multi_turn, needs=needs)
    positions = max(1, *(len(row.tokens) for row in rows))
    return RemoteRows(
        inputs=_inputs(rows, pad_token_id),
        lengths=torch.tensor([0 if row.lost else len(row.tokens) for row in rows]),
        rewards=_outcomes(rows),
        group_ids=torch.tensor([row.group for row in rows]),
        truncated=torch.tensor([row.cut_by_length for row in rows]),
        policy_version=torch.tensor([_version(row) for row in rows], dtype=torch.int32),
        num_positions=positions,
        columns=(columns,),
        reward_details=_reward_details(rows, positions, needs),
        turn_credit=TurnCredit(_anchor_ids(rows, positions, needs)),
        domains=[row.domain for row in rows],
        metadata=_metadata(rows, [row.text for row in rows]),
    )


def batch_of(rows: Sequence[Row], *, pad_token_id: int, multi_turn: bool, needs: Collection[str] = ()) -> Batch:
    """Make a batch [B, T] with T the longest row; rewards are [B] for one turn and [B, T] for several."""
    count, positions = len(rows), max(1, *(len(row.tokens) for row in rows))
    actions = torch.full((count, positions), pad_token_id)
    logprobs = torch.zeros(count, positions)
    mask, terminated, truncated = (torch.zeros(count, positions, dtype=torch.bool) for _ in range(3))
    versions = torch.zeros(count, positions, dtype=torch.int32)
    episodes = [row.episode for row in rows if row.episode is not None]
    turn_ids = torch.full((count, positions), -1) if episodes else None
    columns = [(mask, "mask"), (actions, "tokens"), (logprobs, "logprobs"), (versions, "versions")]
    if turn_ids is not None:
        columns.append((turn_ids, "turn_ids"))
    arrays = [(column.numpy(), name) for column, name in columns]
    for index, row in enumerate(rows):
        for column, name in arrays:
            column[index, : len(row.tokens)] = getattr(row, name).array
        acted = row.mask.array
        if acted.any():
            # A response that ran out of room was graded as it stands, so its episode is over either way. It ends where
            # the policy acted last: the environment may have spoken after that.
            last = len(acted) - 1 - int(acted[::-1].argmax())
            terminated[index, last] = True
            truncated[index, last] = row.cut_by_length
    rewards = _sparse([row.rewards for row in rows], positions, 0.0) if multi_turn else _outcomes(rows)
    return Batch(
        inputs=_inputs(rows, pad_token_id),
        actions=actions,
        mask=mask,
        rollout_logprobs=logprobs,
        rewards=rewards,
        group_ids=torch.tensor([row.group for row in rows]),
        policy_version=versions,
        turn_credit=TurnCredit(
            _anchor_ids(rows, positions, needs), turn_ids, torch.tensor(episodes) if episodes else None
        ),
        terminated=terminated,
        truncated=truncated,
        reward_details=_reward_details(rows, positions, needs),
        domains=[row.domain for row in rows],
        metadata={
            **_metadata(rows, [str(row.text) for row in rows]),
            **({"turns": [[asdict(turn) for turn in row.turns] for row in rows]} if multi_turn else {}),
            **({"episode": episodes, "branch": [row.branch for row in rows]} if episodes else {}),
        },
    )


def _inputs(rows: Sequence[Row], pad_token_id: int) -> TextInputs:
    """Build the prompts of rows and the lengths of all, with the teacher's prompts if a row has one."""
    prompts, prompt_lengths = _padded([row.prompt_ids for row in rows], pad_token_id)
    hinted, hinted_lengths = _padded([row.hinted_ids for row in rows], pad_token_id)
    is_hinted = bool(hinted_lengths.any())
    return TextInputs(
        prompts,
        prompt_lengths=prompt_lengths,
        response_lengths=torch.tensor([len(row.tokens) for row in rows]),
        pictures=picture_column([row.pictures for row in rows]) if any(row.pictures for row in rows) else None,
        hinted_ids=hinted if is_hinted else None,
        hinted_lengths=hinted_lengths if is_hinted else None,
        routes=_routes(rows),
    )


def _routes(rows: Sequence[Row]) -> torch.Tensor | None:
    """Return the experts of each row's tokens [B, L, E] int16, -1 behind the last; None if none are recorded."""
    recorded = [row.routes for row in rows if row.routes is not None]
    if not recorded:
        return None
    experts = recorded[0].shape[1]
    result = torch.full((len(rows), max(map(len, recorded)), experts), -1, dtype=torch.int16)
    for index, row in enumerate(rows):
        if row.routes is not None:
            result[index, : len(row.routes)] = torch.from_numpy(row.routes)
    return result


def _padded(prompts: Sequence[Sequence[int]], pad_token_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prompts [B, P], padded on the right, and their lengths [B]."""
    ids = torch.full((len(prompts), max(1, *map(len, prompts))), pad_token_id)
    columns = ids.numpy()
    for index, prompt in enumerate(prompts):
        columns[index, : len(prompt)] = prompt
    return ids, torch.tensor(list(map(len, prompts)))


def _anchor_ids(rows: Sequence[Row], positions: int, needs: Collection[str]) -> torch.Tensor | None:
    """Return for each position the state that a turn begins from there, or -1; None if no estimator reads them."""
    return _sparse([row.anchors for row in rows], positions, -1) if "anchor_ids" in needs else None


def _reward_details(rows: Sequence[Row], positions: int, needs: Collection[str]) -> RewardDetails:
    """Collect the verdicts, process rewards if the environment grades steps, and the reward terms that are needed."""
    # By what the environment can do, not by its grades: a batch without one right step has the column too.
    graded = any("step_ends" in row.facts for row in rows)
    terms, weights = reward_terms(rows) if "reward_terms" in needs else (None, None)
    return RewardDetails(
        step_rewards=_sparse([row.step_rewards for row in rows], positions, math.nan) if graded else None,
        reward_terms=terms,
        reward_weights=weights,
        correct=torch.tensor([row.verdict == "correct" for row in rows]),
    )


def _metadata(rows: Sequence[Row], responses: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Collect the facts of each row for reports, with the text of its response."""
    return {
        "prompt": [row.prompt_text for row in rows],
        "response": responses,
        "answer": [row.answer for row in rows],
        "task_id": [row.task_id for row in rows],
        "verdict": [row.verdict for row in rows],
        "extracted": [row.facts.get("extracted") for row in rows],
        "finish_reason": [row.finish_reason for row in rows],
    }


def imitation_batch(rows: Sequence[Row], *, pad_token_id: int) -> Batch:
    """Build the batch of :meth:`Row.imitated` rows: with advantage 1 the policy loss is the cross-entropy."""
    batch = batch_of(rows, pad_token_id=pad_token_id, multi_turn=False)
    return batch.replace(advantages=torch.ones_like(batch.rollout_logprobs))


def reward_terms(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values and the weights of each row's reward terms, float32 [B, K].

    K is the largest number of terms that an environment has. The rows of a group are of one environment, and have
    its terms in the order of their names; those of weight 0 are left out. Behind the last one, and in lost rows,
    values are NaN and weights 0. A value that is not finite becomes NaN; a conversation that ended before its
    environment graded it earned 0 by each term.

    Raises:
        RunFailed: the weighted terms of a row are not its reward.
    """
    of_groups: dict[int, Mapping[str, float]] = {}
    for row in rows:
        of_groups[row.group] = of_groups.get(row.group) or _weights(row)
    most = max(1, *(len(weights) for weights in of_groups.values()))
    values, counts = torch.full((len(rows), most), math.nan), torch.zeros(len(rows), most)
    for index, row in enumerate(rows):
        weights = of_groups[row.group]
        if row.lost:
            continue
        earned = [sum(turn.reward_terms.get(name, 0.0) for turn in row.turns) for name in weights]
        _require_sum(row, weights, earned)
        values[index, : len(weights)] = torch.tensor([value if math.isfinite(value) else math.nan for value in earned])
        counts[index, : len(weights)] = torch.tensor(list(weights.values()))
    return values, counts


def _weights(row: Row) -> dict[str, float]:
    """Return the weights of the terms that a row's environment reported, by name."""
    reported = {name.removeprefix(_WEIGHT): float(row.facts[name]) for name in row.facts if name.startswith(_WEIGHT)}
    return {name: reported[name] for name in sorted(reported) if reported[name] != 0}


def _require_sum(row: Row, weights: Mapping[str, float], earned: Sequence[float]) -> None:
    """Raise RunFailed if a reward has a part that is no term: nothing would be learned from it."""
    parts = [weight * value for weight, value in zip(weights.values(), earned, strict=True)]
    if not row.tokens or not all(map(math.isfinite, parts)):
        return
    if abs(sum(parts) - row.total_reward) > 1e-3 * max(1.0, sum(map(abs, parts))):
        raise RunFailed(
            f"adv_type: gdpo learns from the terms of a reward, and those of task {row.task_id} ({row.domain}) add up "
            f"to {sum(parts):g}, its reward being {row.total_reward:g}. The environment must report reward/NAME and "
            "reward_weight/NAME of every term in the infos of step(). Otherwise choose adv_type: grpo."
        )


def _sparse(entries: Sequence[Mapping[int, float]], positions: int, fill: float) -> torch.Tensor:
    """[B, T] with each row's numbers at their positions: float32, or int64 if ``fill`` is an int."""
    column = torch.full((len(entries), positions), fill)
    for index, row in enumerate(entries):
        for position, number in row.items():
            column[index, position] = number
    return column


def _outcomes(rows: Sequence[Row]) -> torch.Tensor:
    """[B] float32: the sum of each row's rewards."""
    return torch.tensor([row.total_reward for row in rows], dtype=torch.float32)


def _version(row: Row) -> int:
    """Return the version of the weights that chose all tokens of a row."""
    return next((version for version, _ in row.versions.runs()), 0)


def _remote_columns(rows: Sequence[Row]) -> RemoteColumns | None:
    """Return the tokens of all rows, if all are in row stores and each row is of one version; otherwise None."""
    tokens = [row.tokens for row in rows]
    if not any(tokens) or any(len(own) and not isinstance(own, RemoteArray) for own in tokens):
        return None
    if any(len(row.versions.runs()) > 1 for row in rows):
        return None
    stored = [(own.source, own.row) if isinstance(own, RemoteArray) else None for own in tokens]
    return RemoteColumns.of({TOKENS: torch.int64, LOGPROBS: torch.float32}, stored)

import pytest
import torch

from rlinf.data.batch import Batch, concatenate
from rlinf.data.inputs import BatchError, ObservationInputs, TextInputs


def make_batch(rows: int = 3, positions: int = 4, **columns: object) -> Batch:
    mask = torch.ones(rows, positions, dtype=torch.bool)
    given = {
        "inputs": ObservationInputs({"observation": torch.arange(rows * positions).view(rows, positions, 1).float()}),
        "actions": torch.arange(rows * positions).view(rows, positions),
        "mask": mask,
        "rollout_logprobs": torch.zeros(rows, positions),
        "rewards": torch.arange(rows).float(),
        "group_ids": torch.arange(rows),
        "policy_version": torch.zeros(rows, positions, dtype=torch.int32),
        "metadata": {"name": [f"row {i}" for i in range(rows)]},
    }
    return Batch.of_flat({**given, **columns})


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"mask": torch.ones(3, 4)}, "mask"),
        ({"rollout_logprobs": torch.zeros(3, 5)}, "rollout_logprobs"),
        ({"rewards": torch.zeros(4)}, "rewards"),
        ({"group_ids": torch.zeros(3)}, "group_ids"),
        ({"inputs": ObservationInputs({"x": torch.zeros(2)})}, "inputs"),
        ({"greedy_rewards": torch.zeros(2)}, "greedy_rewards"),
        ({"reward_terms": torch.zeros(3)}, "reward_terms"),
        ({"domains": ["math"]}, "domains"),
        ({"metadata": {"name": ["a"]}}, "metadata"),
        ({"actions": torch.zeros(3, 2)}, "actions"),
    ],
)
def test_a_column_of_the_wrong_shape_is_named(columns: dict[str, object], named: str) -> None:
    with pytest.raises(BatchError, match=named):
        make_batch(**columns)


def test_select_keeps_rows_with_their_metadata() -> None:
    picked = make_batch().select([2, 0])
    assert picked.rewards.tolist() == [2.0, 0.0]
    assert list(picked.metadata["name"]) == ["row 2", "row 0"]
    assert picked.inputs.observations["observation"][0, 0, 0] == 8.0


def test_split_and_concatenate_give_the_batch_back() -> None:
    batch = make_batch(rows=5)
    again = concatenate([part for part in batch.split(3) if part.num_rows])
    assert torch.equal(again.actions, batch.actions)
    assert list(again.metadata["name"]) == list(batch.metadata["name"])


def test_concatenate_pads_to_the_longest_row() -> None:
    joined = concatenate([make_batch(positions=2), make_batch(positions=4)])
    assert joined.mask.sum().item() == 3 * 2 + 3 * 4
    assert not joined.mask[0, 2:].any()


def test_a_column_that_only_some_have_is_refused() -> None:
    with pytest.raises(BatchError, match="old_values"):
        concatenate([make_batch(), make_batch(old_values=torch.zeros(3, 4))])


def test_positions_become_rows_in_order() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    batch = make_batch(rows=2, positions=2, mask=mask, advantages=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    flat = batch.decisions_as_rows()
    assert flat.num_rows == 3
    assert flat.num_positions == 1
    assert flat.advantages is not None
    assert flat.advantages[:, 0].tolist() == [1.0, 3.0, 4.0]
    assert flat.inputs.observations["observation"].shape == (3, 1, 1)
    assert flat.group_ids.tolist() == [0, 1, 1]


def test_columns_of_rows_follow_their_rows() -> None:
    columns = {"greedy_rewards": torch.tensor([0.0, 1.0, 2.0]), "domains": ["math", "code", "math"]}
    terms = {"reward_terms": torch.ones(3, 2), "reward_weights": torch.ones(3, 2)}
    narrow = {name: column[:, :1] for name, column in terms.items()}
    both = concatenate([make_batch(**narrow).select([0]), make_batch(**terms).select([1, 2])])
    assert both.reward_details.reward_terms is not None
    assert both.reward_details.reward_terms.isnan().tolist() == [[False, True], [False, False], [False, False]]
    assert both.reward_details.reward_weights is not None
    assert both.reward_details.reward_weights[0].tolist() == [1.0, 0.0]
    one, two = make_batch(**columns).select([2, 1]), make_batch(anchor_ids=None, **columns).select([0])
    joined = concatenate([one, two])
    assert joined.reward_details.greedy_rewards is not None
    assert joined.reward_details.greedy_rewards.tolist() == [2.0, 1.0, 0.0]
    assert joined.domains == ["math", "code", "math"]


def test_credit_of_turns_is_padded_and_selected_with_its_rows() -> None:
    anchors = torch.tensor([[7, -1], [-1, 8]])
    turns = make_batch(rows=2, positions=2, anchor_ids=anchors, episode_ids=torch.tensor([3, 4]))
    longer = make_batch(rows=1, positions=3, anchor_ids=torch.tensor([[1, 2, 3]]), episode_ids=torch.tensor([5]))
    credit = concatenate([turns, longer]).select([2, 0]).turn_credit
    assert credit.anchor_ids is not None
    assert credit.anchor_ids.tolist() == [[1, 2, 3], [7, -1, -1]]
    assert credit.episode_ids is not None
    assert credit.episode_ids.tolist() == [5, 3]
    with pytest.raises(BatchError, match="episode_ids is present in some"):
        concatenate([turns, make_batch(anchor_ids=torch.zeros(3, 4, dtype=torch.int64))])


def test_columns_of_groups_have_their_own_names() -> None:
    batch = make_batch(correct=torch.tensor([True, False, True]))
    again = Batch.of_flat(batch.flat())
    assert again.reward_details.correct is batch.reward_details.correct
    assert again.flat().keys() == batch.flat().keys() > {"correct", "anchor_ids", "mask"}
    changed = batch.replace(greedy_rewards=torch.ones(3)).reward_details
    assert set(changed.tensors()) == {"correct", "greedy_rewards"}
    with pytest.raises(BatchError, match=r"greedy_rewards must be \[B=3\]"):
        batch.replace(greedy_rewards=torch.ones(2))


def test_the_positions_of_a_decision_follow_from_the_shapes() -> None:
    observation = {"observation": torch.zeros(3, 2, 1)}
    chunks = make_batch(actions=torch.zeros(3, 2), inputs=ObservationInputs(observation), positions_per_reward=2)
    assert (chunks.positions_per_decision, chunks.by_reward().positions_per_decision) == (2, 1)
    assert chunks.decided.shape == (3, 2)
    with pytest.raises(BatchError, match="positions_per_reward = 3"):
        chunks.replace(positions_per_reward=3)
    text = TextInputs(torch.ones(3, 1, dtype=torch.int64), torch.ones(3).long(), torch.ones(3).long())
    with pytest.raises(BatchError, match="actions must lead with"):
        make_batch(actions=torch.zeros(3, 2), inputs=text)


def test_prompts_are_padded_to_the_widest_and_observations_to_the_longest() -> None:
    lengths = torch.tensor([1])
    narrow, wide = (TextInputs(torch.ones(1, width, dtype=torch.int64), lengths, lengths) for width in (2, 4))
    assert TextInputs.join([narrow, wide]).prompt_ids.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    starts = ObservationInputs({"observation": torch.ones(1, 2, 3)}, executed=torch.ones(1, 2, 2, dtype=torch.bool))
    assert starts.fit(3).named()["executed"].sum() == 4
    with pytest.raises(BatchError, match="executed is present in some"):
        ObservationInputs.join([starts, ObservationInputs(starts.observations)])
    with pytest.raises(BatchError, match="reads TextInputs, and the batch has ObservationInputs"):
        TextInputs.of(starts)

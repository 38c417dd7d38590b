"""Nothing that lies on a disk is unpickled: a checkpoint or an exported policy cannot run code."""

from __future__ import annotations

import ast
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from damage import copied
from gymnasium import spaces
from stopped_run import Stopped

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion
from rlinf.data.space_description import read_spaces, write_spaces
from rlinf.data.token_array import TokenArray
from rlinf.models.actor_critic.export import load_spaces, save_spaces
from rlinf.train.checkpoints import write_manifest
from rlinf.train.plain_state import PickledStateError, load_plain, save_plain

ROOT = Path(__file__).parents[2]
# Messages between the run's own processes are pickles, as Ray's are; files of VecNormalize and LIBERO are read by
# unpicklers that make arrays only.
UNPICKLES = {
    "rlinf/cluster/packing.py",
    "rlinf/data/vec_normalize.py",
    "envs/rlinf_envs/sim/libero_files.py",
}


class Payload:
    """What a pickle of an attacker does."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def calls(name: str) -> list[tuple[str, ast.Call]]:
    """(file, call) of every call of a dotted name in the source."""
    found = []
    for path in sorted([*(ROOT / "rlinf").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                found.append((path.relative_to(ROOT).as_posix(), node))
    return found


def test_torch_loads_weights_only() -> None:
    loads = calls("torch.load")
    assert loads
    for file, call in loads:
        safe = {keyword.arg: keyword.value for keyword in call.keywords}.get("weights_only")
        assert isinstance(safe, ast.Constant), file
        assert safe.value is True, file


def test_nothing_else_unpickles() -> None:
    users = set()
    for path in sorted([*(ROOT / "rlinf").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            unpickles = isinstance(node, ast.Attribute) and ast.unparse(node) in (
                "pickle.load",
                "pickle.loads",
                "pickle.Unpickler",
                "cloudpickle.load",
                "cloudpickle.loads",
            )
            if unpickles or {"dill", "joblib", "shelve"} & {*named, module}:
                users.add(path.relative_to(ROOT).as_posix())
    assert users == UNPICKLES


def test_a_payload_in_a_checkpoint_does_not_run(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mark = copied(stopped.folder, tmp_path / "run"), tmp_path / "ran"
    checkpoint = folder / "checkpoints" / "step_000002"
    torch.save({"rollout": Payload(mark)}, checkpoint / "driver.pt")
    write_manifest(checkpoint)  # an attacker writes the checksums too
    for command in (["train", str(stopped.file(folder))], ["eval", str(folder)]):
        assert main(command) == 2
        output = capsys.readouterr().err
        assert "driver.pt holds objects that would have to be unpickled" in output
        assert "Traceback" not in output
    assert not mark.exists()


@pytest.fixture
def earlier_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the classes of messages the module that earlier versions had them in."""
    module = ModuleType("rlinf.types")
    for kind in (Batch, Completion):
        monkeypatch.setattr(kind, "__module__", module.__name__)
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("earlier_module")
def test_batches_of_earlier_versions_load_under_the_columns_new_names(tmp_path: Path) -> None:
    """`rollout_logprobs` was `logprobs` and `old_values` was `values`, in plain files and in pickles before them."""
    logprobs, values = torch.randn(1, 2), torch.randn(1, 2)
    earlier = {
        "inputs": {},
        "actions": torch.zeros(1, 2, dtype=torch.int64),
        "mask": torch.ones(1, 2, dtype=torch.bool),
        "logprobs": logprobs,
        "values": values,
        "rewards": torch.zeros(1),
        "group_ids": torch.zeros(1, dtype=torch.int64),
        "policy_version": torch.zeros(1, 2, dtype=torch.int32),
    }
    pickled = object.__new__(Batch)
    vars(pickled).update(earlier)
    torch.save({"plain": {"$kind": "Batch", "fields": earlier}, "pickled": pickled}, tmp_path / "state.pt")
    for batch in load_plain(tmp_path / "state.pt").values():
        assert batch.rollout_logprobs.equal(logprobs)
        assert batch.old_values.equal(values)


def test_columns_that_were_fields_of_the_batch_load_into_their_groups(tmp_path: Path) -> None:
    """Reward details and ids of turns were fields of the batch, with a number that shapes give."""
    details = {
        "step_rewards": torch.tensor([[0.5, float("nan")]]),
        "reward_terms": torch.ones(1, 3),
        "reward_weights": torch.ones(1, 3),
        "greedy_rewards": torch.ones(1),
        "correct": torch.tensor([True]),
    }
    credit = {
        "anchor_ids": torch.tensor([[4, -1]]),
        "episode_ids": torch.tensor([6]),
        "turn_ids": torch.tensor([[0, 0]]),
    }
    earlier = {
        "inputs": {"observation": torch.zeros(1, 1, 3)},
        "actions": torch.zeros(1, 1),
        "mask": torch.ones(1, 2, dtype=torch.bool),
        "rollout_logprobs": torch.zeros(1, 2),
        "rewards": torch.zeros(1),
        "group_ids": torch.zeros(1, dtype=torch.int64),
        "policy_version": torch.zeros(1, 2, dtype=torch.int32),
        "positions_per_decision": 2,
        "positions_per_reward": 2,
        **details,
        **credit,
    }
    torch.save({"$kind": "Batch", "fields": earlier}, tmp_path / "batch.pt")
    batch = load_plain(tmp_path / "batch.pt")
    assert (batch.positions_per_decision, batch.positions_per_reward) == (2, 2)
    assert batch.reward_details.tensors().keys() == details.keys()
    assert batch.turn_credit.tensors().keys() == credit.keys()
    save_plain(batch, tmp_path / "again.pt")
    again = load_plain(tmp_path / "again.pt")
    for name, column in (details | credit).items():
        torch.testing.assert_close(again.flat()[name], column, equal_nan=True, rtol=0, atol=0)


def test_the_drivers_state_is_plain_data(tmp_path: Path) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    batch = Batch(
        inputs=TextInputs(torch.zeros(2, 4, dtype=torch.int64), torch.tensor([4, 2]), torch.tensor([3, 3])),
        actions=torch.zeros(2, 3, dtype=torch.int64),
        mask=mask,
        rollout_logprobs=torch.randn(2, 3),
        rewards=torch.randn(2),
        group_ids=torch.zeros(2, dtype=torch.int64),
        policy_version=torch.zeros(2, 3, dtype=torch.int32),
        metadata={"verdict": ["correct", None]},
    )
    state = {
        "batch": batch,
        "done": Completion(1, 0, (3, 4), (-0.5, -0.25), "stop", (7, 7)),
        "arrays": [np.arange(6.0).reshape(2, 3).T, np.array(3, np.int8), np.zeros((0, 2), bool)],
        "numbers": {3: np.float32(0.5), "none": None, "text": "ü"},
        "pair": (1, [2.5]),
    }
    path = tmp_path / "state.pt"
    save_plain(state, path)
    torch.load(path, weights_only=True)
    back = load_plain(path)
    assert back["done"] == state["done"]
    assert back["numbers"] == {3: 0.5, "none": None, "text": "ü"}
    assert back["pair"] == (1, [2.5])
    for before, after in zip(state["arrays"], back["arrays"], strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert isinstance(back["batch"], Batch)
    assert back["batch"].rollout_logprobs.equal(batch.rollout_logprobs)
    assert back["batch"].metadata == batch.metadata
    assert all(map(torch.equal, back["batch"].inputs.named().values(), batch.inputs.named().values()))
    with pytest.raises(TypeError, match=r"state\.what: a object has no plain form"):
        save_plain({"what": object()}, path)


@pytest.mark.usefixtures("earlier_module")
def test_what_earlier_versions_pickled_is_read_where_it_is_numbers(tmp_path: Path) -> None:
    path = tmp_path / "driver.pt"
    done = Completion(1, 0, (3,), (-0.5,), "stop", (7,))
    earlier = object.__new__(Completion)
    vars(earlier).update(
        {name: tuple(value) if isinstance(value, TokenArray) else value for name, value in vars(done).items()}
    )
    torch.save({"arrays": np.arange(3, dtype=np.float32), "number": np.float64(2.5), "done": earlier}, path)
    back = load_plain(path)
    np.testing.assert_array_equal(back["arrays"], [0, 1, 2])
    assert back["done"] == done
    torch.save({"it": Payload(tmp_path / "ran")}, path)
    with pytest.raises(PickledStateError):
        load_plain(path)
    assert not (tmp_path / "ran").exists()


SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([np.inf, 0.7], np.float32)),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3], start=[1, 0]),
    spaces.MultiBinary([2, 2]),
    spaces.Dict({"z": spaces.Discrete(2), "a": spaces.Tuple([spaces.Box(0, 1, (), np.float64), spaces.Discrete(3)])}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_spaces_are_the_same_after_json(space: spaces.Space, tmp_path: Path) -> None:
    write_spaces(tmp_path / "spaces.json", observation=space)
    back = read_spaces(tmp_path / "spaces.json")["observation"]
    assert back == space
    if isinstance(space, spaces.Dict):
        assert list(back) == list(space)  # type: ignore[call-overload]


def test_spaces_of_an_export_are_not_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, acted = SPACES[0], SPACES[3]
    mark = tmp_path / "ran"
    (tmp_path / "spaces.pkl").write_bytes(pickle.dumps((Payload(mark), acted)))
    with pytest.raises(UserError, match="no exported policy"):
        load_spaces(tmp_path)
    assert main(["convert", str(tmp_path)]) == 2
    assert f"rlinf convert {tmp_path} OUT: name a new folder to write into" in capsys.readouterr().err
    assert not mark.exists()
    save_spaces(tmp_path, (seen, acted))
    (tmp_path / "spaces.json").write_text("{}")
    with pytest.raises(UserError, match="no exported policy"):
        load_spaces(tmp_path)

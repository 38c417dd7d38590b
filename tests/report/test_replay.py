"""A recorded group is generated again from the checkpoint before it."""

import json
from pathlib import Path

import pytest
from tiny_runs import config

from rlinf.report.conversations import token_decoder
from rlinf.report.replay import ReplayError, differences, main, replay
from rlinf.report.runs import read_run
from rlinf.train import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "run"
    several = {"group_size": 4, "num_minibatches": 2}
    run(config(folder, checkpoint={"every": 1, "keep": 9}, algorithm=several), report=False)
    return folder


def test_every_recorded_group_is_what_it_was(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 3):
        for group in (0, 1):
            assert main([str(finished), "--step", str(step), "--group", str(group)]) == 0
            assert "Equal: all 4 rows" in capsys.readouterr().out


def test_other_weights_are_noticed(finished: Path) -> None:
    recorded = read_run(finished).samples[3][:4]
    assert differences(recorded, replay(finished, 2, 0))


def test_a_step_without_its_checkpoint_is_refused_with_those_there_are(finished: Path) -> None:
    with pytest.raises(ReplayError, match="Steps to replay: 1, 2, 3, 4"):
        replay(finished, 9, 0)
    with pytest.raises(ReplayError, match="groups are"):
        replay(finished, 1, 99)


def test_samples_tell_what_the_update_did(finished: Path) -> None:
    row = json.loads((finished / "samples" / "step_000001.jsonl").read_text().splitlines()[0])
    assert len(row["updated_logprobs"]) == len(row["logprobs"]) == len(row["tokens"])


def test_token_texts_joined_are_the_response(finished: Path) -> None:
    decode = token_decoder(finished)
    assert decode is not None
    for row in read_run(finished).samples[3]:
        text = "".join(decode(row["tokens"]))
        assert text.replace("<eos>", "").rstrip("\ufffd") == row["response"].rstrip("\ufffd")

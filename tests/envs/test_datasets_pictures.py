"""`image_field` of data sets, tools that show pictures, and dialogues that do."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from rlinf_envs.dialogue import Dialogue, End, Reply
from rlinf_envs.errors import DatasetError
from rlinf_envs.math.env import MathEnv
from rlinf_envs.prompts_env import PromptsEnv
from rlinf_envs.splits import eval_share
from rlinf_envs.tools.calls import written
from rlinf_envs.tools.toolbox import Toolbox

from rlinf.data.pictures import address, marked, opened, pictures_of

PIXELS = np.random.default_rng(0).integers(0, 255, (20, 40, 3), dtype=np.uint8)


def png(shift: int = 0) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS + np.uint8(shift)).save(file, "PNG")
    return file.getvalue()


def test_parquet_of_the_layout_of_geometry_sets_is_read(tmp_path: Path) -> None:
    rows = [
        {"images": [{"bytes": png(number), "path": None}], "problem": "<image>Find x.", "answer": str(number)}
        for number in range(3)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train-00000-of-00001.parquet")
    env = MathEnv(path=str(tmp_path), image_field="images", split="train", eval_fraction=0.0)
    prompts = [env.prompt(task) for task in range(env.num_tasks)]
    assert [len(pictures_of(prompt)) for prompt in prompts] == [1, 1, 1]
    assert len(set(prompts)) == 3  # the words are the same
    assert env.prompt(0).startswith(marked(address(png())))
    assert env.prompt(0).endswith("Find x.")
    assert env.data_notes == {}


def test_a_dataset_of_the_datasets_library_is_read_undecoded(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a.jpg").write_bytes(png())
    table = datasets.Dataset.from_dict(
        {
            "image": [str(tmp_path / "a.jpg")],
            "images": [[str(tmp_path / "a.jpg")] * 2],
            "problem": ["?"],
            "answer": ["1"],
        },
        features=datasets.Features(
            {
                "image": datasets.Image(),
                "images": datasets.Sequence(datasets.Image()),
                "problem": datasets.Value("string"),
                "answer": datasets.Value("string"),
            }
        ),
    )
    table.save_to_disk(str(tmp_path / "saved"))
    for name, count in (("image", 1), ("images", 2)):
        env = MathEnv(path=str(tmp_path / "saved"), image_field=name)
        assert pictures_of(env.prompt(0)) == [address(png())] * count or len(pictures_of(env.prompt(0))) == count


def test_a_folder_of_pictures_has_metadata_for_each_split(tmp_path: Path) -> None:
    for split, shift in (("train", 0), ("test", 1)):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.png").write_bytes(png(shift))
        row = {"file_name": "a.png", "question": "How many?", "answer": "2"}
        (tmp_path / split / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    shown = [
        pictures_of(MathEnv(path=str(tmp_path), image_field="file_name", split=split).prompt(0))[0]
        for split in ("train", "eval")
    ]
    assert [uri.startswith("file://") for uri in shown] == [True, True]
    assert opened(shown[0]).tobytes() != opened(shown[1]).tobytes()


def test_the_split_of_a_question_does_not_depend_on_where_its_picture_is(tmp_path: Path) -> None:
    shares = set()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(png())
        shares.add(eval_share(marked(address(tmp_path / name)) + "Which?"))
    assert shares == {eval_share(marked(address(png())) + "Which?")}
    assert eval_share(marked(address(png(1))) + "Which?") not in shares


@pytest.mark.parametrize("env", ["math", "prompts"])
def test_rows_with_broken_pictures_are_named_or_left_out_and_counted(tmp_path: Path, env: str) -> None:
    (tmp_path / "good.png").write_bytes(png())
    (tmp_path / "cut.png").write_bytes(png()[:900])
    rows = [{"image": name, "prompt": "Which?", "answer": "1"} for name in ("good.png", "cut.png", "none.png")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def made(on_bad_row: Any) -> MathEnv | PromptsEnv:
        path = str(tmp_path / "rows.jsonl")
        if env == "math":
            return MathEnv(path=path, image_field="image", on_bad_row=on_bad_row, eval_fraction=0.0)
        options: dict[str, Any] = {"reward": {"exact": 1.0}, "answer_field": "answer", "eval_fraction": 0.0}
        return PromptsEnv(path=path, image_field="image", on_bad_row=on_bad_row, **options)

    with pytest.raises(DatasetError, match=r"rows.jsonl:2: the image field 'image': .* no picture"):
        made("error")
    left = made("skip")
    assert left.num_tasks == 1
    assert left.skipped_rows == 2
    assert "none.png" in left.complaints[1]


def test_a_message_of_parts_is_a_question_with_its_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    parts = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "Which?"}]
    row = {"prompt": [{"role": "user", "content": parts}], "answer": "1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    prompt = MathEnv(path=str(tmp_path / "rows.jsonl")).prompt(0)
    assert len(pictures_of(prompt)) == 1
    assert prompt.endswith("Which?")


def test_zoom_shows_parts_of_any_picture_of_the_conversation() -> None:
    tools = Toolbox([{"zoom": {"pixels": 80}}])
    tools.begin(0, marked(address(PIXELS)) + "Which?")
    tools.begin(1, "no picture")
    result = tools.answer(0, written("zoom", {"left": 0, "top": 0, "right": 0.5, "bottom": 0.5}))
    assert result is not None
    assert result.startswith("picture 2: ")
    assert opened(pictures_of(result)[0]).size == (80, 40)
    again = tools.answer(0, written("zoom", {"left": 0, "top": 0, "right": 1, "bottom": 1, "picture": 2}))
    assert pictures_of(str(again)) == pictures_of(result)
    for row, arguments, message in (
        (0, {"left": 0.5, "top": 0, "right": 0.5, "bottom": 1}, "left below right"),
        (1, {"left": 0, "top": 0, "right": 1, "bottom": 1}, "picture 1 is not there: the conversation has 0 pictures"),
    ):
        assert message in str(tools.answer(row, written("zoom", arguments)))


def plot(size: int) -> list[Any]:
    """Draws something.

    Args:
        size: pixels of a side.
    """
    return ["x" * 5000, Image.new("RGB", (size, size))]


def test_words_of_a_tool_are_cut_and_its_pictures_are_not() -> None:
    result = str(Toolbox([plot]).answer(0, written("plot", {"size": 3})))
    assert "1000 more characters" in result
    assert opened(pictures_of(result)[0]).size == (3, 3)


class PictureTwice(Dialogue):
    """Two pictures at first, and a third in its second turn."""

    max_turns = 2

    def begin(self) -> list[Any]:
        return ["Compare ", PIXELS, " and ", PIXELS + np.uint8(1)]

    def reply(self, response: str) -> Reply | End:
        return Reply(["And this? ", PIXELS + np.uint8(2)]) if response == "go on" else End(1.0)


def test_a_dialogue_shows_pictures_at_first_and_later() -> None:
    from rlinf.data.pictures import observed

    env = PictureTwice()
    first, _ = env.reset(seed=0)
    second = env.step("go on")[0]
    assert [len(pictures_of(observed(one))) for one in (first, second)] == [2, 1]

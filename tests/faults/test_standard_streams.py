"""Standard streams that are closed, full or without a reader, and what the machine refuses: no traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlinf import cli
from rlinf.commands.closed_pipes import outlasting_readers

COMMAND = f"{sys.executable} -m rlinf.cli list losses"
OUTLASTS = """
import sys
from rlinf.commands.closed_pipes import open_standard_streams, outlasting_readers
open_standard_streams()
with outlasting_readers(), open(sys.argv[1], "w") as file:
    for number in range(3):
        print("line", number, flush=True)
        print("line", number, file=sys.stderr, flush=True)
    file.write("whole")
"""


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&- <&-", "> /dev/full", "2> /dev/full", "| true"])
def test_what_goes_on_without_its_output_writes_its_files(tmp_path: Path, redirection: str) -> None:
    file = tmp_path / "file"
    done = shell(f"{sys.executable} -c '{OUTLASTS}' {file} {redirection}")
    assert done.returncode == 0
    assert file.read_text() == "whole"
    assert "Traceback" not in done.stderr
    if redirection == "> /dev/full":
        assert "standard output: No space left on device; going on without it\n" in done.stderr


@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [(">&-", 0, ""), ("> /dev/full", 1, "No space left on device"), ("| head -n 1 > /dev/null", 0, "")],
)
def test_a_list_is_complete_or_ends_with_a_sentence(redirection: str, code: int, words: str) -> None:
    done = shell(f"{COMMAND} {redirection}")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert words in done.stderr


def test_a_folder_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path} && mkdir gone && cd gone && rmdir ../gone && {COMMAND}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "the current folder does not exist any more: cd to another one"


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES])
def test_what_the_machine_refuses_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def refuse(_what: str) -> str:
        raise OSError(number, os.strerror(number), "/data/rows")

    monkeypatch.setattr("rlinf.commands.listing.listing", refuse)
    assert cli.main(["list", "losses"]) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"/data/rows: {os.strerror(number)}")
    assert "Traceback" not in output


def test_other_streams_are_left_alone() -> None:
    before = sys.stdout
    with outlasting_readers():
        assert sys.stdout is before or isinstance(before, type(sys.__stdout__))

"""Supervised and preference files of verl, ROLL and TRL: `rlinf sft` files with the peers' batches and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from rlinf_import.account import unaccounted
from rlinf_import.page import mapping, page, problems
from rlinf_import.reading import imported
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

FILES = Path(__file__).parent / "peers"
CASES = {
    "verl_sft.sh": ("verl", Options(rows=1000)),
    "roll_sft.yaml": ("roll", Options()),
    "roll_dpo.yaml": ("roll", Options()),
    "trl_sft.py": ("trl", Options(rows=1000)),
    "trl_dpo.sh": ("trl", Options()),
}


def sheet_of(name: str, *words: str) -> Sheet:
    peer, options = CASES[name]
    return imported(peer, FILES / name, words, options)


def values(sheet: Sheet, *keys: str) -> tuple[object, ...]:
    return tuple(sheet.value(key) for key in keys)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_passes_its_check_and_names_every_key(name: str) -> None:
    sheet = sheet_of(name)
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []
    assert unaccounted(sheet) == []
    assert yaml.safe_load(page(sheet)) == mapping(sheet)


def test_verl() -> None:
    sheet = sheet_of("verl_sft.sh")
    assert values(sheet, "sft.batch_size", "sft.epochs", "sft.lr", "sft.schedule") == (64, 2.0, 2e-5, "cosine")
    # A tenth of 2 x 1000 / 64 steps.
    assert values(sheet, "sft.warmup_steps", "learner.num_workers", "learner.backend") == (3, 4, "fsdp")
    assert any("optim.min_lr_ratio: 0.1" in line for line in sheet.differs)
    other = sheet_of("verl_sft.sh", "BACKEND=megatron")
    assert values(other, "learner.backend", "learner.megatron.tensor_parallel") == ("megatron", 2)


def test_roll() -> None:
    sheet = sheet_of("roll_sft.yaml")
    # 2 x 16 conversations on each of 8 / (2 x 2) data-parallel ranks.
    assert values(sheet, "sft.batch_size", "sft.epochs", "sft.schedule") == (64, 1.0, "linear")
    pairs = sheet_of("roll_dpo.yaml")
    assert values(pairs, "sft.loss", "sft.dpo_beta", "sft.batch_size", "sft.steps") == ("dpo", 0.2, 128, 500)
    assert any("rejected_key: worse" in line for line in pairs.decide)


def test_trl() -> None:
    sheet = sheet_of("trl_sft.py")
    assert values(sheet, "sft.batch_size", "sft.lr", "sft.warmup_steps") == (16, 2e-5, 6)
    assert values(sheet, "policy.lora.rank", "policy.lora.alpha") == (8, 8)
    pairs = sheet_of("trl_dpo.sh")
    assert values(pairs, "sft.loss", "sft.dpo_imitation", "learner.num_workers") == ("dpo", 0.5, 4)

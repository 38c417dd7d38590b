"""Reward functions with every fault that a user's function can have. Imported by name from the tests."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def raises(*, prompt: str, response: str, answer: str, row: Row) -> float:
    return 1.0 / int(row["zero"])


def none(*, prompt: str, response: str, answer: str, row: Row) -> None:
    return None


def pair(*, prompt: str, response: str, answer: str, row: Row) -> list[float]:
    return [1.0, 2.0]


def imaginary(*, prompt: str, response: str, answer: str, row: Row) -> complex:
    return 1j


def enormous(*, prompt: str, response: str, answer: str, row: Row) -> int:
    return 10**400


def recursion(*, prompt: str, response: str, answer: str, row: Row) -> float:
    return recursion(prompt=prompt, response=response, answer=answer, row=row)


def memory(*, prompt: str, response: str, answer: str, row: Row) -> float:
    raise MemoryError


def wrong_signature(text: str) -> float:
    return 1.0


class Rewarder:
    """A class where a function is required."""


def leaves(*, prompt: str, response: str, answer: str, row: Row) -> float:
    sys.exit(3)


def vanishes(*, prompt: str, response: str, answer: str, row: Row) -> float:
    os._exit(7)


def hoards(*, prompt: str, response: str, answer: str, row: Row) -> float:
    return float(len(bytearray(1 << 30)))


def starts_hoarders(*, prompt: str, response: str, answer: str, row: Row) -> float:
    code = "block = bytearray(b'x') * (48 << 20); import time; time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for _ in range(4)]
    return float(sum(child.wait() for child in children))


def shares_blocks(*, prompt: str, response: str, answer: str, row: Row) -> float:
    block = mmap.mmap(-1, 160 << 20)  # shared memory is no data of the process
    for _ in range(160):
        block.write(bytes(1 << 20))
    time.sleep(600)
    return 0.0


def sleeps(*, prompt: str, response: str, answer: str, row: Row) -> float:
    time.sleep(3600)
    return 1.0


def spins(*, prompt: str, response: str, answer: str, row: Row) -> float:
    while True:
        pass


def half(*, prompt: str, response: str, answer: str, row: Row) -> float:
    return 0.5


def half_tensor(*, prompt: str, response: str, answer: str, row: Row) -> Any:
    import torch

    return torch.tensor([0.5])


def text(*, prompt: str, response: str, answer: str, row: Row) -> str:
    return "0.5"


def infinite(*, prompt: str, response: str, answer: str, row: Row) -> float:
    return float("inf")


def prints(*, prompt: str, response: str, answer: str, row: Row) -> float:
    print("a reward speaks", flush=True)
    return 1.0


def moves(*, prompt: str, response: str, answer: str, row: Row) -> float:
    os.chdir("/")
    return 1.0


def closes_stdout(*, prompt: str, response: str, answer: str, row: Row) -> float:
    os.close(1)
    return 1.0


def clears_row(*, prompt: str, response: str, answer: str, row: dict[str, Any]) -> float:
    row["nested"].clear()
    row.clear()
    return 1.0


not_callable = 5

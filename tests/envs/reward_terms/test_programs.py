"""Programs as models write them."""

from __future__ import annotations

import pytest
from rlinf_envs.reward_terms.programs import program_of

CODE = "def f(x):\n    return 2 * x\n"
INFO = ["python", "py", "Python3", " python", "py3", 'python title="a.py"', "{python}", "python3.11", "", "python "]


@pytest.mark.parametrize("info", INFO)
def test_every_spelling_of_the_fence(info: str) -> None:
    for mark in ("```", "~~~", "````"):
        assert program_of(f"So:\n{mark}{info}\n{CODE}{mark}\nDone.") == CODE


@pytest.mark.parametrize(
    "response",
    [
        CODE,
        f"Sure! Here is the code:\n\n{CODE}\nThis works since it doubles.",
        f"<answer>{CODE}</answer>",
        f"<answer>\n```python\n{CODE}```\n</answer>",
        f"[PYTHON]\n{CODE}[/PYTHON]",
        f"```python\n{CODE}",
        f"```python\n{CODE.rstrip()}```",
        "```python\r\ndef f(x):\r\n    return 2 * x\r\n```",
        "1. Do:\n\n   ```python\n   def f(x):\n       return 2 * x\n   ```\n2. Done.",
        "> ```python\n> def f(x):\n>     return 2 * x\n> ```",
        f"Idea:\n```\ndouble it\n```\nCode:\n```python\n{CODE}```",
        f"```python\n{CODE}```\nInput:\n```\n3\n```\nOutput:\n```\n6\n```",
        f"```python\n{CODE}```\nExample:\n```\nf(2) -> 4\n```",
        f"```\n{CODE}```\nExample:\n```\n>>> f(2)\n4\n```",
        f"```python\n{CODE}```\nUsage:\n```python\nprint(f(2))  # 4\n```",
        f"```python\n{CODE}```\nTest:\n```python\nassert f(1) == 2\n```",
        f"```python\n{CODE}```\nThe key line is\n```python\nreturn 2 * x\n```",
        f"```cpp\nint f(int x);\n```\n```python\n{CODE}```",
        f"```python\n{CODE}```\n```cpp\nint f(int x);\n```\nRun:\n```bash\npython a.py\n```",
        f"Wrong:\n```python\ndef f(x): return x\n```\nBetter:\n```python\n{CODE}```",
    ],
)
def test_the_program_among_other_text(response: str) -> None:
    assert program_of(response).strip() == CODE.strip()


def test_marks_of_a_fence_within_a_line_do_not_end_it() -> None:
    code = 'def f(x):\n    s = """```"""\n    return 2 * x\n'
    assert program_of(f"```python\n{code}```") == code


def test_the_last_block_is_the_program_with_what_it_needs() -> None:
    assert program_of("```python\na = 1\n```\n```\ndef b(): ...\n```") == "def b(): ...\n"
    parts = [
        "from math import gcd\n",
        "def g(x):\n    return gcd(x, 2)\n",
        "def h(): ...\n",
        "def f(x):\n    return g(x)\n",
    ]
    response = "".join(f"Then\n```python\n{part}```\n" for part in parts)
    assert program_of(response) == "\n".join((parts[0], parts[1], parts[3]))
    guard = "```python\ndef main(): ...\n```\n```python\nif __name__ == '__main__':\n    main()\n```"
    assert program_of(guard) == "def main(): ...\n\nif __name__ == '__main__':\n    main()\n"
    main = "```python\ndef solve():\n    print(input())\n```\n```python\nsolve()\n```"
    assert program_of(main) == "def solve():\n    print(input())\n\nsolve()\n"


def test_text_without_a_program_stays() -> None:
    assert program_of("I do not know.") == "I do not know."
    assert program_of("") == ""

"""Programs as policies write them."""

import pytest
from rlinf_envs.sandbox import Sandbox
from rlinf_envs.tools.python_tool import program_of, python


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print(2 + 3)", "5"),
        ("2 + 3", "5"),
        ("x = 5\nx * 2", "10"),
        ("x = 5; x * 2  # twice", "10"),
        ("def f():\n    return 'ä'\n\nf()", "'ä'"),
        ("a = 'é'; (a,\n a)", "('é', 'é')"),
        ("```python\nprint(7)\n```", "7"),
        ("```\nprint(7)\n```\n", "7"),
        ("```py\n2 ** 10", "1024"),
        ("    print(3)\n    print(4)", "3\n4"),
        ("print(1)\nexit()\nprint(2)", "1"),
        ("[1].append(2)", "(nothing was printed)"),
        ("x = 3\n'''a remark'''", "(nothing was printed)"),
        ("", "(nothing was printed)"),
    ],
)
def test_programs_as_policies_write_them(code: str, shown: str) -> None:
    assert python().answer({"code": code}) == shown


@pytest.mark.parametrize(
    "code", ["x = 1\n", "for i in range(3): print(i)", "print(a", "print(1)", "'text'", "(" * 3000, "\ud800", "\0"]
)
def test_other_programs_run_as_they_are(code: str) -> None:
    assert program_of(code) == code


def test_exit_ends_a_program_well() -> None:
    assert Sandbox().run("print(3)\nexit()").status == "done"
    assert Sandbox().run("quit(0)").status == "done"
    assert Sandbox().run("exit(2)").status == "failed"

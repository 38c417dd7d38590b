"""The tool ``python``: runs a program in the sandbox and returns what it prints."""

from __future__ import annotations

import ast
import re
import textwrap

from rlinf_envs.sandbox import Limits, Sandbox
from rlinf_envs.tools.tool import Tool, tool_of

_FENCED = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n?(?:```)?", re.DOTALL)


def python(*, time_s: float = 5.0, memory_mb: int = 512, output_chars: int = 2000) -> Tool:
    """Limits: see :class:`rlinf_envs.sandbox.Limits`. Each call starts from nothing."""
    sandbox = Sandbox(Limits(time_s=time_s, memory_mb=memory_mb, output_chars=output_chars))

    def run(code: str) -> str:
        """Runs a Python program and returns what it prints. Programs know nothing of earlier ones.

        Args:
            code: the program; only the standard library is there.
        """  # noqa: D401 - policies read it in prompts
        outcome = sandbox.run(program_of(code))
        if outcome.status == "timeout":
            return f"{outcome.output}\nerror: the time is up ({time_s:g} s)".lstrip()
        if outcome.output:
            return outcome.output.rstrip()
        return "(nothing was printed)" if outcome.status == "done" else "error: the program was ended"

    return tool_of(run, name="python")


def program_of(code: str) -> str:
    """Return the program that a policy means: without a code fence and common indentation.

    The value of an expression at the end is printed, as a notebook does.

    >>> print(program_of("```python\\nx = 3\\nx * 2\\n```"))
    x = 3
    _ = x * 2
    if _ is not None: print(repr(_))
    """
    fenced = _FENCED.fullmatch(code.strip())
    code = textwrap.dedent(fenced[1] if fenced else code)
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code  # the program reports its own error
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Expr) or ast.unparse(last).startswith(("print(", "'", '"')):
        return code
    lines = code.encode().splitlines(keepends=True)  # offsets count bytes
    before, line = b"".join(lines[: last.lineno - 1]), lines[last.lineno - 1]
    written = line[: last.col_offset] + b"_ = " + line[last.col_offset :]
    return (before + written + b"".join(lines[last.lineno :])).decode() + "\nif _ is not None: print(repr(_))"

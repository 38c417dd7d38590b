"""The tool ``python``: runs a program in the sandbox and returns what it prints."""

from __future__ import annotations

from rlinf_envs.sandbox import Limits, Sandbox
from rlinf_envs.tools.tool import Tool, tool_of


def python(*, time_s: float = 5.0, memory_mb: int = 512, output_chars: int = 2000) -> Tool:
    """Limits: see :class:`rlinf_envs.sandbox.Limits`. Each call starts from nothing."""
    sandbox = Sandbox(Limits(time_s=time_s, memory_mb=memory_mb, output_chars=output_chars))

    def run(code: str) -> str:
        """Runs a Python program and returns what it prints. Programs know nothing of earlier ones.

        Args:
            code: the program; only the standard library is there.
        """  # noqa: D401 - policies read it in prompts
        outcome = sandbox.run(code)
        if outcome.status == "timeout":
            return f"{outcome.output}\nerror: the time is up ({time_s:g} s)".lstrip()
        if outcome.output:
            return outcome.output.rstrip()
        return "(nothing was printed)" if outcome.status == "done" else "error: the program was ended"

    return tool_of(run, name="python")

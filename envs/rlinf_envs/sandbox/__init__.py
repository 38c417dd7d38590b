"""Python programs that nobody has read, run where they can do no harm."""

from rlinf_envs.sandbox.run import Limits, Outcome, Sandbox

__all__ = ["Limits", "Outcome", "Sandbox"]

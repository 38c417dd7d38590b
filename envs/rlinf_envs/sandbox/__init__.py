"""Python programs that no person has read, run in isolation so that they can do no harm."""

from rlinf_envs.sandbox.run import Limits, Outcome, Sandbox

__all__ = ["Limits", "Outcome", "Sandbox"]

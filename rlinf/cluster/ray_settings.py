"""Settings that Ray reads from the environment when it is imported or started. Imports nothing of Ray itself."""

from __future__ import annotations

import os

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # every failure is raised by our own waiting, with the worker's name
    "RAY_prestart_worker_first_driver": "0",  # our workers have their own environment; idle ones only cost
    "RAY_worker_niceness": "0",  # workers do the work: with Ray's 15 any other program of the machine starves them
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a worker without GPUs sees none
    # Ray sets this one when its threads run: to add a name then may crash one that reads the environment.
    "PYTHONBREAKPOINT": "ray.util.rpdb._driver_set_trace",
}


def apply_settings() -> None:
    """Set them for this process and those it starts; what the user has set stays. To be called before Ray's import."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)

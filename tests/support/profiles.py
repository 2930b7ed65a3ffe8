"""How long to look: quickly and always the same by default, long and at random with QUORACY_SOAK=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["examples", "load"]

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,  # so more of them would be the same ones each time; the soak looks for others
    max_examples=60,
    print_blob=True,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "soak",
    deadline=None,
    derandomize=False,
    max_examples=3_000,
    stateful_step_count=150,
    print_blob=True,
    suppress_health_check=_SLOW,
)


def load() -> None:
    """Before any test is imported: what `settings` says there adds to the profile of that moment."""
    settings.load_profile("soak" if os.environ.get("QUORACY_SOAK") == "1" else "default")


def examples(count: int) -> int:
    """So many by default; the soak decides for itself, but for what takes long not quite so many."""
    return count if settings().derandomize else max(count, settings().max_examples // 3)

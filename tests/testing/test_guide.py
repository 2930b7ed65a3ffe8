"""The guide's tests pass, as they stand there, for a user who copies them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guides_example_passes(pytester: pytest.Pytester) -> None:
    blocks = [
        block for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if "def test_" in block
    ]
    tests_count = sum(block.count("def test_") for block in blocks)
    assert tests_count >= 5
    pytester.makepyfile(**{f"test_guide_{number}": block for number, block in enumerate(blocks)})
    pytester.makeini(
        """
        [pytest]
        asyncio_mode = auto
        asyncio_default_fixture_loop_scope = function
        filterwarnings = error
        timeout = 30
        """
    )
    pytester.runpytest_subprocess("--strict-config", "--strict-markers").assert_outcomes(
        passed=tests_count
    )

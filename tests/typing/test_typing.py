"""Programs of users under mypy --strict: typed results everywhere, and mistakes are found.

The samples say of themselves that no expression in them may be Any.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SAMPLES = sorted(path for path in Path(__file__).parent.glob("*_usage.py"))

WRONG = {
    "q.lock(3)": "arg-type",
    'q.lock("x", cancel_on_loss=False)': "call-arg",
    'q.queue("jobs", int).put("no number")': "arg-type",
    'q.value("n", int, default=0).update(lambda n: str(n))': "return-value",
    'held: quoracy.Held = q.lock("x").acquire()': "assignment",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of the samples, and of a program full of mistakes: one run, for its time."""
    wrong = tmp_path_factory.mktemp("wrong") / "wrong_usage.py"
    lines = ["import quoracy", "import quoracy.sync", 'q = quoracy.sync.connect("memory:")', *WRONG]
    wrong.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, SAMPLES), str(wrong)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_results_are_typed_and_nothing_is_any(checked: str) -> None:
    assert len(SAMPLES) > 1
    assert all("# mypy: disallow-any-expr" in path.read_text(encoding="utf-8") for path in SAMPLES)
    assert [line for line in checked.splitlines() if "wrong_usage.py" not in line] == []


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_found(mistake: str, checked: str) -> None:
    line = 4 + list(WRONG).index(mistake)
    found = [each for each in checked.splitlines() if f"wrong_usage.py:{line}:" in each]
    assert any(f"[{WRONG[mistake]}]" in each for each in found), found

"""Guarded files: whole, of the newest holder, whatever happens in between."""

from __future__ import annotations

import csv
import fcntl
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from quoracy.errors import DataUnreadable, InvalidRequest, StaleToken, TimedOut
from quoracy.fencing import TOKEN_MAX, guarded_file, write_guarded


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.csv"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_stale_token_leaves_the_file_as_it_is(report: Path) -> None:
    write_guarded(report, b"five", token=5)
    write_guarded(report, b"five again", token=5)
    with pytest.raises(StaleToken) as refused:
        write_guarded(report, b"four", token=4)
    assert (refused.value.resource, refused.value.highest) == (str(report), 5)
    assert report.read_bytes() == b"five again"
    assert names(report.parent) == ["report.csv", "report.csv.fence"]


def test_token_that_became_stale_while_the_file_was_written_is_refused_at_the_end(report: Path) -> None:
    with pytest.raises(StaleToken), guarded_file(report, token=4) as file:
        file.write(b"four")
        write_guarded(report, b"five", token=5)
    assert report.read_bytes() == b"five"
    assert names(report.parent) == ["report.csv", "report.csv.fence"]


def test_stale_token_is_refused_before_anything_is_written(report: Path) -> None:
    write_guarded(report, b"five", token=5)
    with pytest.raises(StaleToken), guarded_file(report, token=4):
        pytest.fail("the block must not be entered")


def test_nobody_sees_half_a_file(report: Path) -> None:
    write_guarded(report, b"old", token=1)
    with guarded_file(report, token=2) as file:
        file.write(b"half of the new")
        file.flush()
        assert report.read_bytes() == b"old"
    assert report.read_bytes() == b"half of the new"


def test_block_that_raises_leaves_the_file_and_the_fence_as_they_were(report: Path) -> None:
    write_guarded(report, b"old", token=1)
    with pytest.raises(ZeroDivisionError), guarded_file(report, token=9) as file:
        file.write(b"%d" % (1 // 0))
    assert report.read_bytes() == b"old"
    assert names(report.parent) == ["report.csv", "report.csv.fence"]
    write_guarded(report, b"new", token=2)


def test_text_is_written_as_csv_wants_it(report: Path) -> None:
    with guarded_file(report, token=1, encoding="utf-8") as file:
        csv.writer(file).writerow(["ö", 1])
    assert report.read_bytes() == "ö,1\r\n".encode()


@pytest.mark.parametrize("token", [0, 1, TOKEN_MAX])
def test_every_token_can_be_recorded(report: Path, token: int) -> None:
    write_guarded(report, b"", token=token)
    assert int(Path(f"{report}.fence").read_text()) == token
    write_guarded(report, b"again", token=token)
    if token:
        with pytest.raises(StaleToken):
            write_guarded(report, b"", token=token - 1)


def test_what_is_no_token_is_refused(report: Path) -> None:
    with pytest.raises(InvalidRequest):
        write_guarded(report, b"", token=-1)
    assert names(report.parent) == []


@pytest.mark.parametrize(
    "text",
    [b"\0" * 21, b"5\n", b"0000000000000000000x\n", b"00000000000000000005\n6", b" " * 20],
)
def test_damaged_fence_refuses_everyone(report: Path, text: bytes) -> None:
    write_guarded(report, b"five", token=5)
    Path(f"{report}.fence").write_bytes(text)
    with pytest.raises(DataUnreadable, match=r"report\.csv\.fence is damaged"):
        write_guarded(report, b"six", token=6)
    assert report.read_bytes() == b"five"
    Path(f"{report}.fence").write_text("00000000000000000005\n")  # what the message says
    write_guarded(report, b"six", token=6)


def test_fence_in_use_for_too_long_is_a_timeout_and_writes_nothing(report: Path) -> None:
    write_guarded(report, b"five", token=5)
    with Path(f"{report}.fence").open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TimedOut, match="another writer"):
            write_guarded(report, b"six", token=6, timeout_s=0.02)
    assert report.read_bytes() == b"five"
    write_guarded(report, b"six", token=6)


def test_permissions_of_a_replaced_file_are_kept_and_new_ones_follow_the_umask(report: Path) -> None:
    before = os.umask(0o027)
    try:
        write_guarded(report, b"new", token=1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(report.stat().st_mode) == 0o640
    report.chmod(0o604)
    write_guarded(report, b"newer", token=2)
    assert stat.S_IMODE(report.stat().st_mode) == 0o604


def test_link_is_followed_so_both_names_have_one_fence(report: Path, tmp_path: Path) -> None:
    write_guarded(report, b"five", token=5)
    link = tmp_path / "latest.csv"
    link.symlink_to(report.name)
    with pytest.raises(StaleToken):
        write_guarded(link, b"four", token=4)
    write_guarded(link, b"six", token=6)
    assert link.is_symlink()
    assert report.read_bytes() == b"six"


def test_directory_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_guarded(tmp_path / "not" / "there", b"", token=1)


# Each call that changes something on the disk is, in its turn, the one at which the process dies.
CRASHER = """
    import os, sys
    from quoracy.fencing import write_guarded

    path, dies_at = sys.argv[1], int(sys.argv[2])
    calls = 0

    def dying(call):
        def wrapped(*given, **named):
            global calls
            calls += 1
            if calls == dies_at:
                os._exit(9)
            return call(*given, **named)
        return wrapped

    for name in ("open", "pwrite", "fsync", "replace", "rename", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
    write_guarded(path, b"six", token=6)
"""


def test_writer_that_dies_anywhere_leaves_nothing_a_stale_one_could_undo(tmp_path: Path) -> None:
    outcomes = []
    for dies_at in range(1, 100):
        report = tmp_path / f"{dies_at}.csv"
        write_guarded(report, b"five", token=5)
        program = [sys.executable, "-c", textwrap.dedent(CRASHER), str(report), str(dies_at)]
        code = subprocess.run(program, check=False, timeout=60).returncode
        outcomes.append((report.read_bytes(), Path(f"{report}.fence").read_bytes()))
        if report.read_bytes() == b"six":
            with pytest.raises(StaleToken):
                write_guarded(report, b"five", token=5)
        else:
            assert report.read_bytes() == b"five"
        write_guarded(report, b"seven", token=7)
        assert report.read_bytes() == b"seven"
        if code == 0:
            break
    five, six = b"00000000000000000005\n", b"00000000000000000006\n"
    # All three happened: nothing done; the token recorded, the file the old one; all done.
    assert list(dict.fromkeys(outcomes)) == [(b"five", five), (b"five", six), (b"six", six)]

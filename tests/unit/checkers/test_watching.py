"""Watches: each planted difference from the one true history is caught and named."""

from __future__ import annotations

import random

import pytest

from tests.checkers.watching import Batch, Change, check_watches

TRUTH = [
    Batch(2, (Change("put", "a/1", b"x"),)),
    Batch(3, (Change("put", "b/1", b"y"), Change("put", "a/2", b"z"), Change("delete", "a/1"))),
    Batch(5, (Change("put", "a/1", b"again"),)),
    Batch(6, (Change("delete", "b/1"),)),
    Batch(7, (Change("put", "a/3", b"end"),)),
]
HALF = Batch(3, TRUTH[1].changes[:2])
REST = Batch(3, TRUTH[1].changes[2:])
TURNED = Batch(3, tuple(reversed(TRUTH[1].changes)))
OTHER = Batch(5, (Change("put", "a/1", b"other"),))
LATER = Batch(8, TRUTH[0].changes)
PHANTOM = Batch(4, (Change("put", "a/9", b"?"),))

WRONG: dict[str, tuple[list[Batch], str]] = {
    "a gap": ([TRUTH[0], TRUTH[2]], "after revision 2 came 5: revision 3 is missing"),
    "a gap at the start": ([TRUTH[1]], "after revision 1 came 3: revision 2 is missing"),
    "a duplicate": ([TRUTH[0], TRUTH[1], TRUTH[1]], "revision 3 came twice, or in two parts"),
    "a reordering": ([TRUTH[1], TRUTH[0]], "after revision 1 came 3: revision 2 is missing"),
    "a step back": ([TRUTH[0], TRUTH[1], TRUTH[0]], "revision 2 came after revision 3"),
    "a revision by halves": ([TRUTH[0], HALF, REST], "revision 3 came by halves: "),
    "half a revision": ([TRUTH[0], HALF, TRUTH[2]], "revision 3 came by halves: "),
    "events in another order": ([TRUTH[0], TURNED], "revision 3 has another order: "),
    "another value": ([*TRUTH[:2], OTHER], "revision 5 is "),
    "a revision that never was": ([*TRUTH[:2], PHANTOM], "revision 4 changed nothing here, but "),
    "a revision past the end": ([*TRUTH, LATER], "revision 8 changed nothing here, but "),
    "a start one too early": ([Batch(1, ()), *TRUTH], "revision 1 was shown, though the watch began "),
}


def test_every_piece_of_the_truth_is_a_watch() -> None:
    pieces = [TRUTH[begin:end] for begin in range(len(TRUTH)) for end in range(begin, len(TRUTH) + 1)]
    verdict = check_watches({str(number): piece for number, piece in enumerate(pieces)}, TRUTH)
    assert verdict.ok, verdict.problem
    assert verdict.checked == sum(map(len, pieces))


@pytest.mark.parametrize("what", WRONG)
def test_caught(what: str) -> None:
    history, problem = WRONG[what]
    verdict = check_watches({"good": TRUTH, "w": history}, TRUTH, began_after={"w": 1})
    assert not verdict.ok
    assert verdict.problem.startswith(f"watcher w: {problem}"), verdict.problem
    assert "good" not in verdict.problem


def test_a_watch_begins_after_the_revision_it_asked_for() -> None:
    assert check_watches({"w": TRUTH[2:]}, TRUTH, began_after={"w": 3})
    assert check_watches({"w": TRUTH[2:]}, TRUTH, began_after={"w": 4})
    assert not check_watches({"w": TRUTH[2:]}, TRUTH, began_after={"w": 2})
    assert not check_watches({"w": TRUTH[2:]}, TRUTH, began_after={"w": 5})


def test_a_watch_that_should_have_come_further_is_caught() -> None:
    assert check_watches({"w": TRUTH[:3]}, TRUTH, reached={"w": 5})
    verdict = check_watches({"w": TRUTH[:3]}, TRUTH, reached={"w": 6})
    assert verdict.problem == (
        "watcher w: stopped after revision 5, though it is past 6: it never showed revision 6"
    )
    assert not check_watches({"w": []}, TRUTH, began_after={"w": 1}, reached={"w": 7})


def test_a_prefix_sees_its_part_of_each_revision() -> None:
    seen: list[tuple[int, list[tuple[str, str, bytes | None]]]] = [
        (3, [("put", "b/1", b"y")]),
        (6, [("delete", "b/1", None)]),
    ]
    prefixes = {"w": "b/"}
    assert check_watches({"w": seen}, TRUTH, began_after={"w": 0}, reached={"w": 7}, prefixes=prefixes)
    assert not check_watches({"w": seen[1:]}, TRUTH, began_after={"w": 0}, prefixes=prefixes)
    seen.append((7, [("put", "a/3", b"end")]))
    assert "changed nothing here" in check_watches({"w": seen}, TRUTH, prefixes=prefixes).problem


def test_a_truth_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="not the truth"):
        check_watches({}, [TRUTH[1], TRUTH[0]])


def test_any_single_change_of_a_long_history_is_caught() -> None:
    rng = random.Random(3)
    truth = [Batch(n, (Change("put", f"k{rng.randrange(9)}", b"%d" % n),)) for n in range(2, 300)]
    for _ in range(100):
        seen = list(truth)
        at = rng.randrange(len(seen) - 1)
        match rng.choice(["drop", "twice", "turn"]):
            case "drop":
                del seen[at]
            case "twice":
                seen.insert(at, seen[rng.randrange(at + 1)])
            case _:
                seen[at], seen[at + 1] = seen[at + 1], seen[at]
        assert not check_watches({"w": seen}, truth, began_after={"w": 1})

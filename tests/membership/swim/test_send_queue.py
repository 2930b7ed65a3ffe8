"""News: so often and no more, the least sent first, never more than fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.membership.swim.send_queue import Broadcasts
from tests.support.profiles import examples


def test_a_piece_is_sent_exactly_as_often_as_planned() -> None:
    news = Broadcasts(10)
    news.put("a", b"piece of a")
    taken = [news.take(room=100, transmits_max=3) for _ in range(5)]
    assert taken == [[b"piece of a"]] * 3 + [[], []]
    assert len(news) == 0
    assert "a" not in news


def test_what_was_sent_least_goes_first() -> None:
    news = Broadcasts(10)
    news.put("old", b"old piece.")
    assert news.take(room=10, transmits_max=5) == [b"old piece."]
    news.put("new", b"new piece.")
    assert news.take(room=10, transmits_max=5) == [b"new piece."]
    # Both were sent once now; both fit.
    assert sorted(news.take(room=20, transmits_max=5)) == [b"new piece.", b"old piece."]


def test_news_of_a_subject_replaces_older_news_of_it_and_starts_anew() -> None:
    news = Broadcasts(10)
    news.put("a", b"a is suspect")
    news.take(room=100, transmits_max=2)
    news.put("a", b"a is alive")
    assert len(news) == 1
    assert [news.take(room=100, transmits_max=2) for _ in range(3)] == [
        [b"a is alive"],
        [b"a is alive"],
        [],
    ]


def test_what_does_not_fit_waits_and_lets_smaller_news_pass() -> None:
    news = Broadcasts(10)
    news.put("small", b"12345678")
    news.put("large", b"x" * 50)
    assert news.take(room=20, transmits_max=1) == [b"12345678"]
    assert news.take(room=50, transmits_max=1) == [b"x" * 50]


def test_what_did_not_fit_keeps_its_place_among_what_was_sent_as_often() -> None:
    news = Broadcasts(10)
    for subject in ("first", "a long one", "third"):
        news.put(subject, subject.encode())
    assert news.take(room=10, transmits_max=5) == [b"third", b"first"]
    news.put("fourth", b"fourth")
    assert news.take(room=100, transmits_max=5) == [b"fourth", b"a long one", b"first", b"third"]


def test_at_the_bound_what_was_sent_most_gives_way() -> None:
    news = Broadcasts(2)
    news.put("told", b"told often")
    news.take(room=100, transmits_max=9)
    news.put("fresh", b"fresh news")
    news.put("newer", b"newer news")
    assert news.dropped_count == 1
    assert "told" not in news
    assert len(news) == 2


def test_dropped_news_is_never_sent() -> None:
    news = Broadcasts(2)
    news.put("a", b"piece of a")
    news.drop("a")
    news.drop("never there")
    assert news.take(room=100, transmits_max=1) == []


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcdef"), st.binary(min_size=8, max_size=40)),
            st.integers(0, 120),
        ),
        max_size=60,
    ),
    transmits_max=st.integers(1, 4),
)
@settings(max_examples=examples(50))
def test_no_packet_is_overfull_and_no_piece_sent_too_often(
    steps: list[tuple[str, bytes] | int], transmits_max: int
) -> None:
    news, sent = Broadcasts(4), dict[bytes, int]()
    current: dict[str, bytes] = {}
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            subject, piece = step
            piece += number.to_bytes(2, "big")  # each put is its own piece
            news.put(subject, piece)
            current[subject] = piece
        else:
            taken = news.take(room=step, transmits_max=transmits_max)
            assert sum(map(len, taken)) <= step
            for piece in taken:
                assert piece in current.values()
                sent[piece] = sent.get(piece, 0) + 1
        assert len(news) <= 4
    assert all(count <= transmits_max for count in sent.values())

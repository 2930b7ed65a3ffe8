"""Numbers to bytes: what `struct` makes of them, in C and where nothing was compiled."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.wire.packing import Packer

_FIELDS = {
    "B": (0, 2**8 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}


@st.composite
def records(draw: st.DrawFn) -> tuple[str, list[int]]:
    kinds = draw(st.lists(st.sampled_from(sorted(_FIELDS)), min_size=1, max_size=16))
    return ">" + "".join(kinds), [draw(st.integers(*_FIELDS[kind])) for kind in kinds]


@given(records(), st.binary(max_size=50))
def test_it_packs_what_struct_packs_and_what_follows(
    record: tuple[str, list[int]], tail: bytes
) -> None:
    format, numbers = record
    pack = Packer(format)
    assert pack(*numbers) == struct.pack(format, *numbers)
    assert pack(*numbers, tail) == struct.pack(format, *numbers) + tail


@pytest.mark.parametrize("kind", sorted(_FIELDS))
def test_what_does_not_fit_is_refused_as_by_struct(kind: str) -> None:
    pack = Packer(f">{kind}")
    least, most = _FIELDS[kind]
    assert pack(least) == struct.pack(f">{kind}", least)
    assert pack(most) == struct.pack(f">{kind}", most)
    wrongs: tuple[Any, ...] = (least - 1, most + 1, 2**100, -(2**100), "1", None, 1.0, b"1")
    for wrong in wrongs:
        with pytest.raises(struct.error):
            pack(wrong)


def test_so_many_numbers_and_no_others() -> None:
    pack = Packer(">iq")
    wrongs: tuple[tuple[Any, ...], ...] = ((), (1,), (1, 2, b"", b""), (b"", 1))
    for wrong in wrongs:
        with pytest.raises(struct.error):
            pack(*wrong)
    with pytest.raises(TypeError, match="not bytes"):
        pack(1, 2, "tail")  # type: ignore[arg-type]


def test_a_truth_is_a_number() -> None:
    assert Packer(">BB")(True, False) == b"\x01\x00"

"""Replies that another thread may send: one at a time, each byte once, and in order."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import cast

import pytest

from quoracy.faces.common.reply_socket import Descriptors, ReplySocket
from quoracy.store.completion import Reply


class FakeTransport:
    """Of a connection over `socket`; what is written is kept."""

    def __init__(self, opened: socket.socket, *, encrypted: bool = False) -> None:
        self._extra = {"socket": opened, "sslcontext": object() if encrypted else None}
        self.written = b""
        self.unsent = 0
        self.closing = False

    def get_extra_info(self, name: str) -> object:
        return self._extra.get(name)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.written += data


class Sending:
    """The other thread, which has sent so many bytes of a reply."""

    def __init__(self, sent: int) -> None:
        self.sent = sent

    def take_back(self) -> int:
        return self.sent


def send(reply: Reply | None, sent: int) -> Reply:
    assert reply is not None
    reply.hand_over(lambda _descriptor, _data: Sending(sent))
    return reply


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture
def transport(pair: tuple[socket.socket, socket.socket]) -> FakeTransport:
    return FakeTransport(pair[0])


def opened(transport: FakeTransport, descriptors: Descriptors | None = None) -> ReplySocket:
    replies = ReplySocket(descriptors or Descriptors())
    replies.open(cast(asyncio.Transport, transport))
    return replies


def test_a_reply_goes_to_the_socket_by_a_descriptor_of_its_own(
    pair: tuple[socket.socket, socket.socket], transport: FakeTransport
) -> None:
    replies = opened(transport)
    reply = replies.offer(b"answer")
    assert reply is not None
    assert reply.descriptor != pair[0].fileno()
    os.write(reply.descriptor, reply.data)
    assert pair[1].recv(100) == b"answer"
    replies.close()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(reply.descriptor)


def test_one_is_out_at_a_time(transport: FakeTransport) -> None:
    replies = opened(transport)
    first = send(replies.offer(b"first"), 5)
    assert replies.is_busy
    assert replies.offer(b"second") is None
    assert replies.finish(first)
    assert replies.offer(b"second") is not None
    assert transport.written == b""
    replies.close()


@pytest.mark.parametrize(("sent", "rest"), [(0, b"answer"), (2, b"swer"), (6, b"")])
def test_what_is_left_of_a_finished_reply_is_written_first(
    transport: FakeTransport, sent: int, rest: bytes
) -> None:
    replies = opened(transport)
    assert replies.finish(send(replies.offer(b"answer"), sent))
    replies.settle()
    assert not replies.is_busy
    assert transport.written == rest
    replies.settle()
    assert transport.written == rest
    replies.close()


@pytest.mark.parametrize(("sent", "rest"), [(0, b""), (2, b"swer"), (6, b"")])
def test_a_reply_settled_before_its_write_is_durable_was_sent_or_is_not(
    transport: FakeTransport, sent: int, rest: bytes
) -> None:
    replies = opened(transport)
    reply = send(replies.offer(b"answer"), sent)
    replies.settle()  # something else is to be written
    assert transport.written == rest
    assert replies.finish(reply) is (sent > 0)
    assert replies.withdraw(reply) is (sent > 0)
    assert transport.written == rest
    replies.close()


@pytest.mark.parametrize(("sent", "rest"), [(0, b""), (2, b"swer")])
def test_a_call_that_ends_otherwise_takes_its_reply_back(
    transport: FakeTransport, sent: int, rest: bytes
) -> None:
    replies = opened(transport)
    reply = send(replies.offer(b"answer"), sent)
    assert replies.withdraw(reply) is (sent > 0)
    assert transport.written == rest
    assert not replies.is_busy
    replies.close()


def test_none_is_offered_where_something_is_to_be_written_before(transport: FakeTransport) -> None:
    replies = opened(transport)
    transport.unsent = 1
    assert replies.offer(b"answer") is None
    transport.unsent, transport.closing = 0, True
    assert replies.offer(b"answer") is None
    replies.close()
    assert replies.offer(b"answer") is None


def test_none_is_offered_on_an_encrypted_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    replies = opened(FakeTransport(pair[0], encrypted=True))
    assert replies.offer(b"answer") is None
    replies.close()


def test_descriptors_are_bounded_and_come_back(transport: FakeTransport) -> None:
    descriptors = Descriptors(1)
    one, other = opened(transport, descriptors), opened(transport, descriptors)
    first = one.offer(b"answer")
    assert first is not None
    assert other.offer(b"answer") is None
    one.close()
    assert first.is_over
    third = opened(transport, descriptors)
    assert third.offer(b"answer") is not None
    third.close()


def test_a_lost_connection_is_not_written_to(transport: FakeTransport) -> None:
    replies = opened(transport)
    assert replies.finish(send(replies.offer(b"answer"), 2))
    replies.close()
    assert transport.written == b""

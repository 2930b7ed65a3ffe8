"""The wire format of the runtime: envelopes, their seal and its replay window, and stream frames.

An envelope surrounds the bytes of a machine:

    byte 0      0xD0 | protocol version (1)
    byte 1      0x80 compressed | 0x40 encrypted | 0x20 on a stream | channel (0 to 7)
    bytes 2-5   digest of the cluster's label; zeros without one
    then        the payload;
    or, encrypted: nonce (12); under AES-GCM the sender's wall clock in ms (6) and the payload; tag (16)

The header is authenticated together with the full label, so a sealed message works on its own channel,
in its own cluster and on its own kind of transport only.

Invariants
    * No I/O and no clock: the wall clock and the source of nonces are passed in.
    * `unwrap` raises nothing, whatever the bytes are, and never inflates beyond the limit of its kind.
    * A payload of `packet_payload_max` bytes always fits a datagram, with or without encryption, so
      that turning encryption on never changes what fits.
    * With a key ring nothing in the clear is accepted; without one nothing encrypted is.
    * How the bytes of a stream were divided on the way makes no difference to its frames.

Not promised: that a sealed message was meant for this member (the same member has different addresses
for different peers, so they are not part of the seal), nor that two members understand each other whose
clocks differ by more than `age_max_s`: with a key ring, the wall clocks of a cluster must be kept
close.  Compression happens before encryption, so the length of a message reveals a little about its
contents.
"""

from __future__ import annotations

import enum
import hashlib
import math
import zlib
from collections.abc import Callable

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError, TooLarge
from quoracy.membership.runtime.keyring import NONCE_BYTES, TAG_BYTES, KeyRing

__all__ = [
    "CHANNELS_COUNT", "CONTROL_CHANNEL", "DATAGRAM_BYTES_MAX", "LABEL_BYTES_MAX", "LENGTH_BYTES",
    "OVERHEAD_BYTES", "PROTOCOL_VERSION", "DropReason", "Envelope", "EnvelopeSettings", "FrameReader",
    "Kind", "Opened", "ReplayWindow", "frame",
]  # fmt: skip


class DropReason(enum.Enum):
    """Why something that arrived was not accepted; `statistics().dropped` counts by it."""

    MALFORMED = "malformed"  # not of this protocol, or damaged
    TOO_BIG = "too big"  # over a limit, or would be once inflated
    WRONG_VERSION = "wrong version"  # of this protocol, but of an unknown version
    WRONG_LABEL = "wrong label"  # of another cluster
    WRONG_KEY = "wrong key"  # forged, damaged, or sealed with a key that is not on the ring
    UNENCRYPTED = "unencrypted"  # in the clear, though there is a key ring
    TOO_OLD = "too old"  # sent too long ago, or too far in the future, by the wall clocks
    REPLAYED = "replayed"  # seen already
    UNKNOWN_CHANNEL = "unknown channel"  # no machine is attached there
    REFUSED = "refused"  # by the machine, as invalid
    RATE = "rate"  # too many connections, or too much that is half received
    SLOW = "slow"  # a connection that did not say hello, or complete its frame, in time


class ReplayWindow:
    """The nonces of the last minute: no sealed message is accepted twice.

    A recorded message can be sent again by anyone who saw it.  Its age (the wall clock of its sender,
    inside the authenticated part) limits for how long, and within that time its nonce is remembered.
    Only messages with a valid seal come here, so a stranger cannot fill the memory.

    Invariants
        * A message that was admitted is not admitted again while this process lives and its wall clock
          does not jump ahead and back by more than `age_max_s`.  A restarted process remembers nothing:
          what was recorded in the `age_max_s` before its start can be replayed to it once.
        * At most `nonces_max` nonces are kept.  At the bound the oldest second of them is forgotten,
          and from then on nothing as old as that second is admitted: the window becomes shorter, never
          incomplete.  Messages of members whose clocks lag are lost then.

    age_max_s: how far the sender's clock may be from ours, either way; it is the age and the difference
    of the clocks together.  `math.inf` leaves it to the bound alone.

    >>> window = ReplayWindow(age_max_s=60.0, nonces_max=1_000)
    >>> window.admit(b"nonce", sent_ms=5_000, now_ms=5_020) is None
    True
    >>> window.admit(b"nonce", sent_ms=5_000, now_ms=5_040).value
    'replayed'
    >>> window.admit(b"other", sent_ms=5_000, now_ms=65_001).value
    'too old'
    """

    __slots__ = ("_age_max_ms", "_count", "_floor_ms", "_nonces_max", "_seconds")

    def __init__(self, *, age_max_s: float, nonces_max: int) -> None:
        if not age_max_s > 0:
            raise InvalidRequest(f"age_max_s must be more than 0, not {age_max_s}")
        if nonces_max < 1:
            raise InvalidRequest(f"nonces_max must be at least 1, not {nonces_max}")
        self._age_max_ms = age_max_s * 1_000
        self._nonces_max = nonces_max
        self._seconds: dict[int, set[bytes]] = {}  # second of sending -> nonces
        self._count = 0
        self._floor_ms = -math.inf

    def __len__(self) -> int:
        return self._count

    def admit(self, nonce: bytes, *, sent_ms: int, now_ms: int) -> DropReason | None:
        """Remember a message and return None if it is new and recent; otherwise return why not."""
        if sent_ms < self._floor_ms or abs(now_ms - sent_ms) > self._age_max_ms:
            return DropReason.TOO_OLD
        second = sent_ms // 1_000
        nonces = self._seconds.get(second)
        if nonces is None:
            self._forget_aged(now_ms)
            nonces = self._seconds[second] = set()
        elif nonce in nonces:
            return DropReason.REPLAYED
        nonces.add(nonce)
        self._count += 1
        if self._count > self._nonces_max:
            oldest = min(self._seconds)
            self._count -= len(self._seconds.pop(oldest))
            self._floor_ms = (oldest + 1) * 1_000
        return None

    def _forget_aged(self, now_ms: int) -> None:
        # Once per second of sending, so the cost does not depend on the number of messages.
        too_old_ms = now_ms - self._age_max_ms
        for second in [each for each in self._seconds if (each + 1) * 1_000 <= too_old_ms]:
            self._count -= len(self._seconds.pop(second))


LENGTH_BYTES = 4


def frame(data: bytes) -> bytes:
    """
    >>> frame(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


class FrameReader:
    """Collects the bytes of a stream and cuts them into frames: four bytes of length, then the data.

    A length over the limit is refused when it is read, before anything is collected for it.

    frame_bytes_max: of the frames from here on; may be changed at any time.

    >>> reader = FrameReader(100)
    >>> reader.feed(frame(b"one") + frame(b"two")[:5])
    >>> reader.next_frame(), reader.next_frame(), len(reader)
    (b'one', None, 5)
    """

    __slots__ = ("_gathered", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._gathered = bytearray()

    def __len__(self) -> int:
        """How many bytes are collected."""
        return len(self._gathered)

    def feed(self, data: bytes) -> None:
        self._gathered += data

    def next_frame(self) -> bytes | None:
        """The next complete frame.  Raises `ProtocolError` if its length is over the limit."""
        if len(self._gathered) < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._gathered[:LENGTH_BYTES], "big")
        if size > self.frame_bytes_max:
            raise ProtocolError(
                f"a frame of {size:,} bytes; at most {self.frame_bytes_max:,} are taken"
            )
        end = LENGTH_BYTES + size
        if len(self._gathered) < end:
            return None
        with memoryview(self._gathered) as view:
            data = bytes(view[LENGTH_BYTES:end])
        del self._gathered[:end]  # cheap: a bytearray moves its start, not its contents
        return data


PROTOCOL_VERSION = 1
CHANNELS_COUNT = 8
CONTROL_CHANNEL = 7  # of the endpoints themselves; no machine can have it
LABEL_BYTES_MAX = 64

_MAGIC = 0xD0
_FIRST_BYTE = _MAGIC | PROTOCOL_VERSION
_COMPRESSED, _ENCRYPTED, _STREAM, _RESERVED, _CHANNEL = 0x80, 0x40, 0x20, 0x18, 0x07
_LABEL_DIGEST_BYTES = 4
_HEADER_BYTES = 2 + _LABEL_DIGEST_BYTES
_SENT_BYTES = 6
_SEALED_BYTES_MIN = _HEADER_BYTES + NONCE_BYTES + _SENT_BYTES + TAG_BYTES

# What an envelope adds at the most: with encryption.  (6 bytes without.)
OVERHEAD_BYTES = _SEALED_BYTES_MIN
# With the headers of IPv6 and UDP it is 1,448: one Ethernet frame, with some room for a tunnel.
DATAGRAM_BYTES_MAX = 1_400


class Kind(enum.IntEnum):
    """The transport.  An envelope of one is not accepted on the other."""

    PACKET = 0
    STREAM = _STREAM


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The contents of an envelope."""

    channel: int
    payload: bytes


class EnvelopeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of envelopes; all members of a cluster should have the same.

    datagram_bytes_max: of a packet as it goes over the network, without the headers of IP and UDP.
    message_bytes_max: of a payload on a stream.
    compress_over: payloads longer than this are compressed, if that makes them shorter.
    age_max_s, nonces_max: see `ReplayWindow`; they matter with a key ring only.
    """

    datagram_bytes_max: int = DATAGRAM_BYTES_MAX
    message_bytes_max: int = 16 * 1024 * 1024
    compress_over: int = 512
    age_max_s: float = 60.0
    nonces_max: int = 65_536

    def __post_init__(self) -> None:
        if not 512 <= self.datagram_bytes_max <= 65_507:
            raise InvalidRequest(
                f"datagram_bytes_max must be 512 to 65,507, which is all that UDP carries, "
                f"not {self.datagram_bytes_max:,}"
            )
        if not 1_024 <= self.message_bytes_max <= 2**30:
            raise InvalidRequest(
                f"message_bytes_max must be 1,024 to {2**30:,}, not {self.message_bytes_max:,}"
            )


class Envelope:
    """Wraps and unwraps for one member.

    label: of the cluster, so that two clusters on one network do not merge.  It is not secret.
    entropy: the source of nonces; `os.urandom`.

    >>> envelope = Envelope(label="blue", entropy=bytes)
    >>> wire = envelope.wrap(b"ping", channel=0, kind=Kind.PACKET, wall_ms=0)
    >>> envelope.unwrap(wire, kind=Kind.PACKET, wall_ms=0)
    Opened(channel=0, payload=b'ping')
    >>> Envelope(label="green", entropy=bytes).unwrap(wire, kind=Kind.PACKET, wall_ms=0).value
    'wrong label'
    """

    __slots__ = (
        "_entropy", "_keyring", "_label", "_label_digest", "_window", "packet_payload_max", "settings",
    )  # fmt: skip

    def __init__(
        self,
        *,
        entropy: Callable[[int], bytes],
        label: str = "",
        keyring: KeyRing | None = None,
        settings: EnvelopeSettings = EnvelopeSettings(),  # noqa: B008 (frozen)
    ) -> None:
        self._label = label.encode()
        if len(self._label) > LABEL_BYTES_MAX:
            raise InvalidRequest(
                f"the label {label!r} has {len(self._label)} bytes; {LABEL_BYTES_MAX} are allowed"
            )
        self._label_digest = (
            hashlib.blake2s(self._label, digest_size=_LABEL_DIGEST_BYTES).digest()
            if label
            else bytes(_LABEL_DIGEST_BYTES)
        )
        self._keyring = keyring
        self._entropy = entropy
        self._window = ReplayWindow(age_max_s=settings.age_max_s, nonces_max=settings.nonces_max)
        self.settings = settings
        self.packet_payload_max = settings.datagram_bytes_max - OVERHEAD_BYTES

    @property
    def is_sealed(self) -> bool:
        """Whether only messages sealed with a key are accepted."""
        return self._keyring is not None

    def wrap(self, payload: bytes, *, channel: int, kind: Kind, wall_ms: int) -> bytes:
        """The payload as it is sent.  Raises `TooLarge` if it is over the limit of its kind."""
        assert 0 <= channel < CHANNELS_COUNT
        if len(payload) > (payload_max := self._payload_max(kind)):
            raise TooLarge(
                f"the size of a {kind.name.lower()} on channel {channel}",
                size=len(payload),
                size_max=payload_max,
                setting="datagram_bytes_max" if kind is Kind.PACKET else "message_bytes_max",
            )
        flags = kind | channel
        if len(payload) > self.settings.compress_over:
            smaller = zlib.compress(payload, 1)
            if len(smaller) < len(payload):
                payload = smaller
                flags |= _COMPRESSED
        if self._keyring is None:
            return bytes((_FIRST_BYTE, flags)) + self._label_digest + payload
        header = bytes((_FIRST_BYTE, flags | _ENCRYPTED)) + self._label_digest
        nonce = self._entropy(NONCE_BYTES)
        plain = wall_ms.to_bytes(_SENT_BYTES, "big") + payload
        return header + nonce + self._keyring.encrypt(nonce, plain, header + self._label)

    def unwrap(self, data: bytes, *, kind: Kind, wall_ms: int) -> Opened | DropReason:
        """The contents, or why they are not accepted."""
        # The cheapest checks come first, in case of a flood.
        if len(data) < _HEADER_BYTES:
            return DropReason.MALFORMED
        if data[0] != _FIRST_BYTE:
            known = data[0] & 0xF0 == _MAGIC
            return DropReason.WRONG_VERSION if known else DropReason.MALFORMED
        flags = data[1]
        if flags & _RESERVED or flags & _STREAM != kind:
            return DropReason.MALFORMED
        if data[2:_HEADER_BYTES] != self._label_digest:
            return DropReason.WRONG_LABEL
        if len(data) > self._payload_max(kind) + OVERHEAD_BYTES:
            return DropReason.TOO_BIG
        if flags & _ENCRYPTED:
            payload = self._unseal(data, wall_ms)
            if isinstance(payload, DropReason):
                return payload
        elif self._keyring is not None:
            return DropReason.UNENCRYPTED
        else:
            payload = data[_HEADER_BYTES:]
        if flags & _COMPRESSED:
            inflated = _inflate(payload, self._payload_max(kind))
            if isinstance(inflated, DropReason):
                return inflated
            payload = inflated
        elif len(payload) > self._payload_max(kind):
            return DropReason.TOO_BIG
        return Opened(flags & _CHANNEL, payload)

    def _unseal(self, data: bytes, wall_ms: int) -> bytes | DropReason:
        if self._keyring is None:
            return DropReason.WRONG_KEY
        if len(data) < _SEALED_BYTES_MIN:
            return DropReason.MALFORMED
        nonce = data[_HEADER_BYTES : _HEADER_BYTES + NONCE_BYTES]
        plain = self._keyring.decrypt(
            nonce, data[_HEADER_BYTES + NONCE_BYTES :], data[:_HEADER_BYTES] + self._label
        )
        if plain is None:
            return DropReason.WRONG_KEY
        sent_ms = int.from_bytes(plain[:_SENT_BYTES], "big")
        refusal = self._window.admit(nonce, sent_ms=sent_ms, now_ms=wall_ms)
        return plain[_SENT_BYTES:] if refusal is None else refusal

    def _payload_max(self, kind: Kind) -> int:
        return self.packet_payload_max if kind is Kind.PACKET else self.settings.message_bytes_max


def _inflate(data: bytes, size_max: int) -> bytes | DropReason:
    inflater = zlib.decompressobj()
    try:
        # One byte more than allowed distinguishes "just fits" from "too long".
        payload = inflater.decompress(data, size_max + 1)
    except zlib.error:
        return DropReason.MALFORMED
    if len(payload) > size_max:
        return DropReason.TOO_BIG
    if not inflater.eof or inflater.unused_data:
        return DropReason.MALFORMED
    return payload

"""The numbers of RFC 9113: error codes, frame types, settings, and the head of a frame."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

__all__ = [
    "FRAME_BYTES_DEFAULT",
    "FRAME_BYTES_LIMIT",
    "FRAME_HEAD",
    "PREFACE",
    "STREAM_ID_MAX",
    "WINDOW_DEFAULT",
    "WINDOW_MAX",
    "ErrorCode",
    "FrameType",
    "Setting",
    "error_code",
]


class ErrorCode(IntEnum):
    """Why a stream was reset or a connection ended (RFC 9113, section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class FrameType(IntEnum):
    """Frame types (RFC 9113, section 6)."""

    DATA = 0x0
    HEADERS = 0x1
    PRIORITY = 0x2
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


class Setting(IntEnum):
    """The settings that we know (RFC 9113, section 6.5.2; RFC 8441; RFC 9218)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6
    ENABLE_CONNECT_PROTOCOL = 0x8
    NO_RFC7540_PRIORITIES = 0x9


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# A frame begins with 9 bytes: length (24 bits) and type (8 bits), read as one word; flags; stream id.
FRAME_HEAD: Final = Struct(">IBI")

FRAME_BYTES_DEFAULT: Final = 16_384
FRAME_BYTES_LIMIT: Final = 2**24 - 1
WINDOW_DEFAULT: Final = 65_535
WINDOW_MAX: Final = 2**31 - 1
STREAM_ID_MAX: Final = 2**31 - 1


def error_code(number: int) -> int:
    """The number as an ErrorCode, if it is known; other codes are legal and stay plain numbers."""
    return ErrorCode(number) if number <= ErrorCode.HTTP_1_1_REQUIRED else number

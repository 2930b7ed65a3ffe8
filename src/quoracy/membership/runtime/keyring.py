"""Keys that a cluster shares, and how they are changed without an interruption.

A message sealed with any key of the ring is accepted; there are no identities behind the keys.
Messages are sealed with the primary key and opened with any, so a key is replaced in three steps, each
on all members before the next begins:

    1. `add` the new key everywhere: from now on every member can open messages sealed with it.
    2. `use` it everywhere: from now on every member seals with it.
    3. `remove` the old one everywhere.

At every moment of this, any two members have the primary key of each other.

Nonces are random, 12 bytes long.  NIST SP 800-38D section 8.3 allows 2**32 messages under one key that
way, counted over all members: a cluster that sends 1,000 messages a second in total should change its
key every seven weeks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from typing import TYPE_CHECKING

from quoracy.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEYS_MAX", "NONCE_BYTES", "TAG_BYTES", "KeyRing", "generate_key"]

NONCE_BYTES = 12
TAG_BYTES = 16
# Each key of a ring is tried on a forged message, so a long ring makes forged messages expensive.
KEYS_MAX = 8
_KEY_BYTES = (16, 24, 32)


class KeyRing:
    """AES-GCM keys of 16, 24 or 32 bytes (as bytes, or as base64 text), one of them the primary.

    >>> old, new = generate_key(), generate_key()
    >>> ring = KeyRing(old)
    >>> ring.add(new)
    >>> ring.use(new)
    >>> ring.remove(old)
    >>> ring.fingerprints == KeyRing(new).fingerprints
    True
    """

    __slots__ = ("_ciphers", "_forged", "_keys")

    def __init__(self, primary: bytes | str, *others: bytes | str) -> None:
        self._ciphers: list[AESGCM] = []  # primary first, in the order of _keys
        self._keys: list[bytes] = []
        try:
            from cryptography.exceptions import InvalidTag
        except ImportError as error:
            raise Unsupported(
                "encryption among members needs the package `cryptography`: "
                "pip install 'quoracy[membership]', or go without a key ring."
            ) from error
        self._forged: type[Exception] = InvalidTag
        for key in (primary, *others):
            self.add(key)

    @classmethod
    def from_text(cls, text: str) -> KeyRing:
        """The ring of a key file: one base64 key per line, the first is the primary; # is a comment.

        >>> text = "# primary" + chr(10) + generate_key() + chr(10) + generate_key() + chr(10)
        >>> len(KeyRing.from_text(text).fingerprints)
        2
        """
        lines = [line.split("#")[0].strip() for line in text.splitlines()]
        keys = [line for line in lines if line]
        if not keys:
            raise InvalidRequest(
                "the key file has no key. Write one per line, in base64, of 16, 24 or 32 bytes, the "
                "primary first."
            )
        return cls(*keys)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of the keys that may be shown, the primary first: 16 hexadecimal digits each."""
        return tuple(_fingerprint(key) for key in self._keys)

    def add(self, key: bytes | str) -> None:
        """Accept this key from now on.  Adding one that is there changes nothing."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        checked = _key_bytes(key)
        if checked in self._keys:
            return
        if len(self._keys) >= KEYS_MAX:
            raise InvalidRequest(
                f"a key ring holds at most {KEYS_MAX} keys. Remove one that no member uses any more."
            )
        self._keys.append(checked)
        self._ciphers.append(AESGCM(checked))

    def use(self, key: bytes | str) -> None:
        """Make this key the primary, with which messages are sealed; also by its fingerprint."""
        at = self._find(key)
        self._keys.insert(0, self._keys.pop(at))
        self._ciphers.insert(0, self._ciphers.pop(at))

    def remove(self, key: bytes | str) -> None:
        """Do not accept this key any more; also by its fingerprint.  The primary cannot be removed."""
        at = self._find(key)
        if at == 0:
            raise InvalidRequest(
                f"key {_fingerprint(self._keys[0])} is the primary, so others could not be spoken to "
                "without it. Make another one the primary first, on all members: use()."
            )
        del self._keys[at]
        del self._ciphers[at]

    def encrypt(self, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
        """Sealed with the primary key; `TAG_BYTES` longer than `plain`."""
        return self._ciphers[0].encrypt(nonce, plain, associated)

    def decrypt(self, nonce: bytes, sealed: bytes, associated: bytes) -> bytes | None:
        """Opened with any key of the ring; None if none fits, or if the message was changed."""
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, sealed, associated)
            except self._forged:
                continue
        return None

    def _find(self, key: bytes | str) -> int:
        if isinstance(key, str) and key in (fingerprints := self.fingerprints):
            return fingerprints.index(key)
        checked = _key_bytes(key)
        if checked not in self._keys:
            raise InvalidRequest(
                f"key {_fingerprint(checked)} is not on the ring, which has "
                f"{', '.join(self.fingerprints)}. Add it first, on all members."
            )
        return self._keys.index(checked)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.fingerprints)})"  # never the keys: this ends up in logs


def generate_key(*, size: int = 32) -> str:
    """A new random key, as base64 text.

    >>> len(base64.b64decode(generate_key(size=16)))
    16
    """
    if size not in _KEY_BYTES:
        raise InvalidRequest(f"a key has 16, 24 or 32 bytes, not {size}")
    return base64.b64encode(secrets.token_bytes(size)).decode()


def _key_bytes(key: bytes | str) -> bytes:
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            # The text is not shown: it may be a key with a slip of the hand in it.
            raise InvalidRequest(
                "a key given as text must be base64 of 16, 24 or 32 bytes, and this one is not base64. "
                "`openssl rand -base64 32` makes one."
            ) from None
    if len(key) not in _KEY_BYTES:
        raise InvalidRequest(
            f"a key has 16, 24 or 32 bytes, not {len(key)}. `openssl rand -base64 32` makes one."
        )
    return bytes(key)


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"quoracy membership key " + key).hexdigest()[:16]

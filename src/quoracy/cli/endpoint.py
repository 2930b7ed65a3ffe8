"""The store of a verb: `-e URL`, the user, TLS, and how long to wait for an answer.

Verbs use the `Store` contract, so each works on a Quoracy server, on an etcd and on a data file that no
server has open.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quoracy.cli.parameters import read_duration
from quoracy.errors import DataUnreadable, Indeterminate, InvalidRequest, Unavailable
from quoracy.store.api import Store

if TYPE_CHECKING:
    from quoracy.remote.urls import TlsOptions

__all__ = ["DEFAULT_URL", "Endpoint", "endpoint_options"]

DEFAULT_URL = "quoracy://127.0.0.1:2379"

_T = TypeVar("_T")
_OWN_TIMEOUT_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the store is and how to reach it."""

    url: str
    timeout_s: float = 5.0
    user: str | None = None
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None

    @asynccontextmanager
    async def open(self, *, create: bool = False) -> AsyncIterator[Store]:
        """Open the store; a data file must exist unless it may be created."""
        from quoracy.opening import open_store

        if self.is_embedded:
            from quoracy import Retention

            self._check_file(create)
            # Reading a store must not compact its history.
            async with open_store(self.url, retention=Retention(None, None)) as store:
                yield store
            return
        user, password = self._credentials()
        async with open_store(
            self.url, tls=self._tls(), user=user, password=password, timeout_s=self.timeout_s
        ) as store:
            yield store

    @property
    def _shown(self) -> str:
        """The URL without a password."""
        scheme, separator, rest = self.url.partition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"

    @property
    def is_embedded(self) -> bool:
        return self.url.startswith(("sqlite:", "memory:"))

    def _check_file(self, create: bool) -> None:
        if self.cacert or self.cert or self.key or self.user:
            raise InvalidRequest(
                "--user, --cacert, --cert and --key are for servers, not for data files."
            )
        path = self.url.removeprefix("sqlite:")
        if self.url.startswith("sqlite:") and not create and not Path(path).expanduser().is_file():
            raise DataUnreadable(f"{path} is not a file. Give the path of a data file.")

    def _credentials(self) -> tuple[str | None, str | None]:
        if self.user is None:
            return None, None
        name, colon, password = self.user.partition(":")
        if not colon or not name:
            raise InvalidRequest("--user takes NAME:PASSWORD, as in --user root:secret.")
        return name, password

    def _tls(self) -> TlsOptions | None:
        if not (self.cacert or self.cert or self.key):
            return None
        from quoracy.remote.urls import TlsOptions

        return TlsOptions(ca=self.cacert, cert=self.cert, key=self.key)

    def ask(self, work: Callable[[Store], Awaitable[_T]]) -> _T:
        """Run work that changes nothing."""
        return asyncio.run(self._within(work, writes=False))

    def tell(self, work: Callable[[Store], Awaitable[_T]], *, create: bool = True) -> _T:
        """Run work that changes the store."""
        return asyncio.run(self._within(work, writes=True, create=create))

    def follow(self, work: Callable[[Store], Awaitable[_T]], *, create: bool = False) -> _T:
        """Run work that has no time limit."""

        async def follow() -> _T:
            async with self.open(create=create) as store:
                return await work(store)

        return asyncio.run(follow())

    async def _within(
        self, work: Callable[[Store], Awaitable[_T]], *, writes: bool, create: bool = False
    ) -> _T:
        loop = asyncio.get_running_loop()
        async with self.open(create=create) as store:
            started = loop.time()
            try:
                # A store on a server knows how far a request got, so its own timeout comes first.
                async with asyncio.timeout(self.timeout_s + _OWN_TIMEOUT_MARGIN_S):
                    return await work(store)
            except Unavailable as error:
                if loop.time() - started < self.timeout_s:
                    raise
                raise TimeoutError(str(error)) from error
            except TimeoutError as error:
                waited = f"no answer from {self._shown} within {self.timeout_s:g} s"
                if writes:
                    raise Indeterminate(
                        f"{waited}: it may have been applied, or not. Check before you repeat it."
                    ) from error
                raise TimeoutError(f"{waited}. Is it overloaded? --timeout waits longer.") from error


_OPTIONS = (
    click.option(
        "-e",
        "--endpoint",
        "url",
        metavar="URL",
        envvar="QUORACY_ENDPOINT",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="The store: quoracy://HOST:PORT,... or etcd://HOST:PORT,... for servers (with ?tls=1 "
        "for TLS), sqlite:PATH for a data file.",
    ),
    click.option(
        "--user",
        metavar="NAME:PASSWORD",
        envvar="QUORACY_USER",
        show_envvar=True,
        help="The user, for a server with authentication.",
    ),
    click.option("--cacert", metavar="FILE", help="TLS: authorities to trust, not the system's."),
    click.option("--cert", metavar="FILE", help="TLS: the certificate to show."),
    click.option("--key", "key_file", metavar="FILE", help="TLS: the certificate's private key."),
)


def endpoint_options(*, timeout: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name a store, handed to the verb as one `endpoint`."""

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(verb)
        def wrapped(
            *args: Any,
            url: str,
            user: str | None,
            cacert: str | None,
            cert: str | None,
            key_file: str | None,
            request_timeout_s: float = 5.0,
            **options: Any,
        ) -> Any:
            endpoint = Endpoint(url, request_timeout_s, user, cacert, cert, key_file)
            return verb(*args, endpoint=endpoint, **options)

        decorated: Callable[..., Any] = wrapped
        if timeout:
            decorated = click.option(
                "--timeout",
                "request_timeout_s",
                type=read_duration,
                metavar="TIME",
                default="5s",
                show_default=True,
                help="How long to wait for the answer.",
            )(decorated)
        for option in reversed(_OPTIONS):
            decorated = option(decorated)
        return decorated

    return decorate

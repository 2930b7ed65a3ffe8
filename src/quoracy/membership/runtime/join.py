"""`join`: being a member of a cluster until a block is left."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from quoracy.clock import Clock, SystemClock
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.gossip import GossipSettings
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import (
    DEFAULT_PORT,
    advertised,
    family_of,
    is_on_this_machine,
    join_address,
    parse_address,
    resolve,
)
from quoracy.membership.runtime.cluster import Cluster
from quoracy.membership.runtime.endpoint import Endpoint, open_endpoint
from quoracy.membership.runtime.envelope import DATAGRAM_BYTES_MAX, OVERHEAD_BYTES, EnvelopeSettings
from quoracy.membership.runtime.keyring import KeyRing
from quoracy.membership.runtime.member_view import Meta, encode_meta
from quoracy.membership.runtime.seeds import SeedJoin
from quoracy.membership.settings import SwimSettings

__all__ = ["join"]

_SETTINGS = SwimSettings()
_GOSSIP_SETTINGS = GossipSettings()


@asynccontextmanager
async def join(
    bind: str = f"0.0.0.0:{DEFAULT_PORT}",
    seeds: Sequence[str] = (),
    *,
    meta: Meta | None = None,
    name: str | None = None,
    advertise: str | None = None,
    key: str | bytes | None = None,
    keyring: KeyRing | None = None,
    label: str = "",
    settings: SwimSettings = _SETTINGS,
    gossip: GossipSettings = _GOSSIP_SETTINGS,
    wait: bool = True,
    keep_trying: bool = False,
    join_timeout: float = 10.0,
    leave_timeout: float = 5.0,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Cluster]:
    """Be a member of a cluster until the block is left.

        async with membership.join(bind="0.0.0.0:7946", seeds=["10.0.0.1"]) as cluster:
            print([member.name for member in cluster.members])

    bind: where to listen, for UDP and TCP; port 0 is any free port.
    seeds: members that are likely to be running, as HOST or HOST:PORT; we may be among them ourselves.
    Without any other we are the first member.
    meta: metadata of this member: text by name, or bytes; at most 512 bytes.
    name: unique in the cluster.  By default the host's name, with the port unless that is 7946.
    advertise: where the others reach us, if it is not where we are bound.
    key: a secret of all members (`generate_key` makes one), with which everything is encrypted.
    keyring: several keys, so that they can be changed.
    label: of the cluster, so that two clusters on one network do not merge by mistake.
    settings, gossip: the settings of the protocols, the same for all members.
    wait: enter the block when a seed has answered; False: at once, and ask in the background.
    keep_trying: it is no error if no seed answers; those that do not are asked again until they do.
    join_timeout, leave_timeout: the most that entering and leaving the block take, in seconds.

    Raises `Unavailable` if the address cannot be bound or no seed answers, and `InvalidRequest` for
    invalid arguments and for a name that another member has.
    """
    if key is not None and keyring is not None:
        raise InvalidRequest("give a key or a keyring, not both.")
    ring = KeyRing(key) if key is not None else keyring
    encoded = encode_meta(meta)
    for seed in seeds:
        parse_address(seed)
    clock = clock if clock is not None else SystemClock()
    rng = rng if rng is not None else random.Random()
    async with open_endpoint(
        bind,
        advertise=await _advertise(bind, advertise, seeds),
        keyring=ring,
        label=label,
        clock=clock,
        envelope=_envelope(settings, gossip),
    ) as endpoint:
        cluster = Cluster(
            endpoint,
            name=name if name is not None else _default_name(endpoint.address),
            meta=encoded,
            settings=settings,
            gossip_settings=gossip,
            is_encrypted=ring is not None,
            clock=clock,
            rng=rng,
        )
        cluster.start()
        joining = SeedJoin(
            seeds,
            ask=cluster.ask_seeds,
            is_member=cluster.is_member_at,
            is_us=lambda address: _is_at(endpoint, address),
            family=family_of(endpoint.bound),
            clock=clock,
            rng=rng,
        )
        try:
            await cluster.find_others(
                joining, wait=wait, keep_trying=keep_trying, timeout_s=join_timeout
            )
            yield cluster
        finally:
            if cluster.is_impostor:  # a goodbye would be that of the other member
                await cluster.close()
            await cluster.leave(timeout=leave_timeout)


def _envelope(settings: SwimSettings, gossip: GossipSettings) -> EnvelopeSettings:
    """Room for the longest packet that either machine may send."""
    longest = max(settings.packet_bytes_max, gossip.packet_bytes_max) + OVERHEAD_BYTES
    return EnvelopeSettings(datagram_bytes_max=max(DATAGRAM_BYTES_MAX, longest))


async def _advertise(bind: str, advertise: str | None, seeds: Sequence[str]) -> str | None:
    """Where others reach us, with port 0 for the bound port; None: where we are bound."""
    host, port = parse_address(bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if advertise is not None:
        named, chosen_port = parse_address(advertise, default_port=0)
        found = await resolve(join_address(named, chosen_port), family=family)
        return found[0]
    if not _is_everywhere(host):
        return None
    known: list[Address] = []
    for seed in seeds:
        try:
            known += await resolve(seed, family=family)
        except Unavailable:
            continue  # reported when it is asked
    return advertised(join_address(host, port), known)


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def _is_at(endpoint: Endpoint, address: Address) -> bool:
    """Whether an address is our own."""
    if address in (endpoint.address, endpoint.bound):
        return True
    host, port = parse_address(address)
    bound_host, bound_port = parse_address(endpoint.bound)
    return port == bound_port and _is_everywhere(bound_host) and is_on_this_machine(host)


def _default_name(address: Address) -> str:
    _, port = parse_address(address)
    host = socket.gethostname()
    return host if port == DEFAULT_PORT else f"{host}-{port}"

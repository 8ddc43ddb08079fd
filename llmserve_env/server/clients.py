"""Who is asking: the network address, and a cookie that tells apart the clients that share one.

Limits count by address, because cookies are free. Sessions belong to the cookie's token, and to the address only where
that stands for one client: reached directly, or through as many proxies as `LLMSERVE_TRUSTED_HOPS` names.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

COOKIE = "llmserve_client"
COOKIE_AGE_S = 30 * 86_400
TOKEN = re.compile(r"[A-Za-z0-9_-]{22,64}")
FORWARDING = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"})
IPV6_NETWORK_BITS = 64
"""A household or a machine is given a network of this size, and may use any address in it."""
UNKNOWN = "unknown"
SHARED = "via "


@dataclass(frozen=True, slots=True)
class Client:
    """What is known of the sender of a request."""

    address: str
    owner: str = ""
    """Digest of the cookie's token; empty without a cookie."""
    program: str = ""
    """Digest of the user agent."""
    is_shared: bool = False
    """Whether a proxy that is not trusted stands between, so that the address is not one client's."""

    @property
    def place(self) -> str:
        """The client's address as the store keeps it, marked if clients behind an untrusted proxy share it."""
        return f"{SHARED}{self.address}" if self.is_shared else self.address

    @property
    def can_be_recognised(self) -> bool:
        """Whether a later request of the same client can be told from those of others."""
        return bool(self.owner) or not self.is_shared


def new_token() -> str:
    """A token for the cookie of a client that has none."""
    return secrets.token_urlsafe(24)


def digest(text: str) -> str:
    """A short name for a token or a user agent; the store keeps no token itself."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@lru_cache(maxsize=4096)
def _remembered_digest(text: str) -> str:
    return digest(text)


def short_digest_of(text: str) -> str:
    """The digest of a text that a client sends with every request."""
    return _remembered_digest(text) if len(text) <= 256 else digest(text)


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        if mapped is not None:
            return str(mapped)
        return str(ipaddress.IPv6Network((int(found), IPV6_NETWORK_BITS), strict=False))
    return str(found)


def network_of(address: str) -> str:
    """The address that limits count by; empty if the text is not an address. Long texts are not cached."""
    return _network(address) if len(address) <= 64 else ""


def _token_of(cookies: str) -> str:
    for part in cookies.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and TOKEN.fullmatch(value):
            return value
    return ""


def _address_of(scope: Scope, forwarded_for: list[str], trusted_hops: int) -> str:
    sender = scope["client"][0] if scope.get("client") else ""
    if trusted_hops and len(forwarded_for) >= trusted_hops:
        return network_of(forwarded_for[-trusted_hops]) or network_of(sender) or UNKNOWN
    # A front end that believes the header has put its text in the place of the sender's address.
    if not trusted_hops and sender in forwarded_for:
        return UNKNOWN
    return network_of(sender) or sender[:64] or UNKNOWN


def identify(scope: Scope, trusted_hops: int = 0) -> Client:
    """The client of a request or of a WebSocket's handshake."""
    cookies, program, is_forwarded = "", "", False
    forwarded_for: list[str] = []
    for name, value in scope["headers"]:
        if name == b"cookie":
            cookies = value.decode("latin-1")
        elif name == b"user-agent":
            program = value.decode("latin-1")
        elif name in FORWARDING:
            is_forwarded = True
            if name == b"x-forwarded-for":
                forwarded_for += [part.strip() for part in value.decode("latin-1").split(",")]
    token = _token_of(cookies) if cookies else ""
    return Client(
        address=_address_of(scope, forwarded_for, trusted_hops),
        owner=short_digest_of(token) if token else "",
        program=short_digest_of(program),
        is_shared=is_forwarded and (not trusted_hops or len(forwarded_for) < trusted_hops),
    )

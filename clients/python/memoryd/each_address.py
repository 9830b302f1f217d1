"""Why a server whose name has several addresses cannot be reached.

gRPC tries one address after another, and tells how the last one failed. Where a name is of both families (`localhost`,
say) and the server listens at one of them, that hides why the server refused the client: each is asked once more then.
"""

import socket
import time
from typing import Any, Final

import grpc

from memoryd.channel import Target, channel_options, host_and_port
from memoryd.errors import MemorydError, ServerUnavailable, TlsFailed, typed_error
from memoryd.methods import Method

_LOOK_SECONDS: Final = 1.0
"""What asking each address may take."""
_MOST_ADDRESSES: Final = 8
_ALL_FAILED: Final = "failed to connect to all addresses"
_LOOPBACKS: Final = ("127.0.0.1", "::1")
"""What gRPC takes `localhost` for, whatever the machine's own list of names says."""
_HEALTH: Final = "/grpc.health.v1.Health/Check"
"""What is asked: it needs no token, and changes nothing."""


def may_hide_another(error: MemorydError) -> bool:
    """Whether an error may be that of one address of several, so that it is worth while to look closer."""
    return type(error) is ServerUnavailable and _ALL_FAILED in error.message


def looked_closer(error: MemorydError, target: Target, method: Method[Any, Any], left: float) -> MemorydError:
    """The error, or the TlsFailed of one of the addresses in its place. Takes a second at most, and no longer than what
    is left for the call.
    """
    until = time.monotonic() + min(left, _LOOK_SECONDS)
    host, port = host_and_port(target.address)
    for failed in _failures(target, host, _addresses(host, port), until):
        closer = typed_error(failed, target.address, method, left)
        if isinstance(closer, TlsFailed):
            return closer
    return error


def _addresses(host: str, port: str) -> list[str]:
    """The addresses of a name, as gRPC takes them; none of what is an address itself."""
    if host == "localhost":
        found = list(_LOOPBACKS)
    else:
        try:
            # gRPC has resolved it just before, so that this does not take long.
            found = [str(address[4][0]) for address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError):
            return []
    if host in found:
        return []
    kept = list(dict.fromkeys(found))[:_MOST_ADDRESSES]
    return [f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}" for address in kept]


def _failures(target: Target, host: str, addresses: list[str], until: float) -> list[grpc.RpcError]:
    """How the addresses fail that do, all asked at once."""
    options = [
        *channel_options(target.address),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.default_authority", host),
    ]
    if target.credentials is None:
        channels = [grpc.insecure_channel(address, options=options) for address in addresses]
    else:
        # The certificate is for the name, not for its addresses.
        options.append(("grpc.ssl_target_name_override", host))
        channels = [grpc.secure_channel(address, target.credentials, options=options) for address in addresses]
    try:
        left = max(0.0, until - time.monotonic())
        health: list[grpc.UnaryUnaryMultiCallable[bytes, bytes]] = [
            channel.unary_unary(_HEALTH) for channel in channels
        ]
        asked = [check.future(b"", timeout=left) for check in health]
        return [failed for call in asked if isinstance(failed := call.exception(), grpc.RpcError)]
    finally:
        for channel in channels:
            channel.close()

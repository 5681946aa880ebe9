"""Where somebody listens: how HOST:PORT is written, and which places are reached from the same machine alone.

Owns those two rules, for the daemon and for whatever else listens. Pure: what a host's name stands for is looked up elsewhere.
"""

import ipaddress

MAX_PORT = 65535


def host_and_port(text: str) -> tuple[str, int] | None:
    """`HOST:PORT`, an IPv6 address in brackets or not; None where it isn't written so. Port 0 is one."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        return None
    return host, int(port)


def host_port_text(host: str, port: int) -> str:
    """The same, written."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(place: str) -> bool:
    """Whether this number, an IPv4 or IPv6 address, is the machine itself; what is no number isn't."""
    try:
        address = ipaddress.ip_address(place)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback

"""Where a Honcho server is."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

CLOUD: Final = "https://api.honcho.dev"
CLOUD_ENVIRONMENT: Final = "production"
LOCAL: Final = "http://localhost:8000"
_SHARED_SPACE: Final = ipaddress.ip_network("100.64.0.0/10")  # where VPNs such as Tailscale live


def without_version(url: str) -> str:
    """An address as the SDK wants it: it adds the version itself."""
    return re.sub(r"/v\d+/*$", "", url.strip()).rstrip("/")


def is_nearby(url: str) -> bool:
    """Whether an address is this machine, or in its own network."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    shared = address.version == _SHARED_SPACE.version and address in _SHARED_SPACE
    return shared or address.is_private or address.is_loopback or address.is_link_local

"""Keep a process from every address but this machine's, where the user says so by --offline or AUTOMEDEVAL_OFFLINE."""

import ipaddress
import os
import socket
import sys
from functools import cache
from typing import Any

from automedeval.records.errors import RecordError

VARIABLE = "AUTOMEDEVAL_OFFLINE"


def is_offline() -> bool:
    """Return whether nothing may leave this machine."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off")


def is_here(host: str) -> bool:
    """Return whether a host's name or address is this machine's own."""
    name = host.strip("[]").partition("%")[0].rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name in ("", "localhost") or name.endswith(".localhost")
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def _refuse_others(event: str, details: tuple[Any, ...]) -> None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = details[0]
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = details[1]
        host = address[0] if isinstance(address, tuple) else ""  # else of a file on this machine
    else:
        return
    host = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")
    if not is_offline() or is_here(host):
        return
    is_own_name = event == "socket.gethostbyname" and host == socket.gethostname()
    if not is_own_name:
        raise RecordError(f"--offline: {host} is not on this machine, and nothing was sent there")


@cache
def _hook() -> None:
    # stays for the life of the process, and asks the variable each time
    sys.addaudithook(_refuse_others)


def stay_offline() -> None:
    """Refuse every connection to another machine from now on, in this process and those that it starts; no Hub is asked."""
    for name in (VARIABLE, "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[name] = "1"
    for name in ("NO_PROXY", "no_proxy"):  # a proxy on this machine would send it on
        os.environ[name] = "*"
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:  # it has read them already
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    _hook()

"""Two hosts on this machine: network namespaces, joined by a cable."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def ip(*words: str) -> str:
    """Run `ip`; return what it prints."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def two_hosts() -> Iterator[dict[str, str]]:
    """Yield two hosts, name → address: network namespaces, joined by a cable. Skip, and say why, where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("there is no program `ip` to make network namespaces with")
    made = {f"automedeval-{os.getpid()}-{number}": f"10.77.0.{number}" for number in (1, 2)}
    first, second = made
    try:
        try:
            for host in made:
                ip("netns", "add", host)
            ip("-n", first, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second)
            for host, address in made.items():
                ip("-n", host, "address", "add", f"{address}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    ip("-n", host, "link", "set", device, "up")
        except OSError as error:
            pytest.skip(f"this machine makes no network namespaces: {error}")
        yield made
    finally:
        there = ip("netns", "list")
        for host in made:
            if host in there:
                for process in ip("netns", "pids", host).split():
                    os.kill(int(process), signal.SIGKILL)
                ip("netns", "delete", host)

"""Serve the physicians' page: rate responses and verdicts, verify, decide as the jury, compare (paper, sections 3.1, 3.3, 4.2).

    automedeval annotate --study recipes/runs/automedeval-135m/annotate.yaml

The first start prints an invitation link for every physician, once, and each start how far they are. `--invite NAME` makes a
new link, and `--export FOLDER` writes the answers as the records that the other recipes read; both work beside a running page.
"""

import re
import socket
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automedeval.records import RecordError, foreign_errors_at, option
from automedeval.records.command_line import parse

if TYPE_CHECKING:  # fastapi is slow to import
    from automedeval.annotation.store import Store

KEEP_ALIVE = 75  # seconds
ADDRESS = re.compile("https?://[^/?]+/*")


@dataclass
class AnnotateArguments:
    """The study, and the address of its page."""

    study: str = option("YAML file of the study")
    host: str = option("address to listen on; 0.0.0.0: all addresses of the machine", "127.0.0.1")
    port: int = option("port to listen on", 8000)
    url: str | None = option(
        "public address of the page, for instance https://rate.example.org; https makes its cookies secure",
        None,
    )
    invite: str | None = option(
        "print a new link for this annotator, and exit; an earlier one no longer works; repeat the "
        "page's own --host, --port or --url",
        None,
    )
    export: str | None = option("write the answers into this folder, and exit", None)

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise RecordError(f"--port must be from 1 to 65535, not {self.port}")
        if self.url is not None and not ADDRESS.fullmatch(self.url):
            raise RecordError(
                f"--url must be like https://rate.example.org, without a path, not {self.url!r}"
            )

    @property
    def address(self) -> str:
        """Return the address of the page for physicians."""
        if self.url is not None:
            return self.url.rstrip("/")
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"http://{host}:{self.port}"


def main() -> None:
    """Export the answers, or serve the page."""
    (args,) = parse((AnnotateArguments,), __doc__, first=("study", "export"))
    from automedeval.annotation.export import FILES, write_export
    from automedeval.annotation.store import Store
    from automedeval.annotation.study import read_study

    study = read_study(args.study)
    with closing(Store(study)) as store:
        if args.invite is not None:
            if args.invite not in study.annotators:
                raise RecordError(
                    f"--invite: {args.invite!r} is none of the annotators of {args.study}"
                )
            print(f"{args.address}/invitation/{store.invite(args.invite)}")
            print("of a page with another --host, --port or --url, repeat these", file=sys.stderr)
        elif args.export is not None:
            counts = write_export(store, Path(args.export))
            for name, count in counts.items():
                print(f"{name}: {count:,} {'lines' if name in FILES else 'left out'}")
            print(f"written to {args.export}" if counts else "no answers yet: nothing is written")
        else:
            serve(args, store)


def serve(args: AnnotateArguments, store: "Store") -> None:
    """Serve the page until it is interrupted."""
    import uvicorn

    from automedeval.annotation.app import make_app

    # The port is opened first, so that links, which are shown once, are not lost if it is in use.
    with listening(args.host, args.port) as port:
        is_secure = args.address.startswith("https://")
        app = make_app(store, secret=store.secret(), secure=is_secure)
        greet(args, store)
        sys.stdout.flush()
        # The access log is off, because addresses of invitations hold their tokens. Connections are kept open for longer than
        # browsers and proxies pause, because a form sent while one is closed would be lost.
        config = uvicorn.Config(
            app,
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
        )
        uvicorn.Server(config).run(sockets=[port])


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise RecordError if the port is in use, or the address is not of this machine."""
    advice = ": choose another with --port or --host"
    with foreign_errors_at(f"port {port} on {host}", OSError, advice=advice):
        return socket.create_server((host, port))


def greet(args: AnnotateArguments, store: "Store") -> None:
    """Print the numbers of the study, how far everybody is, new links, and the address."""
    study = store.study
    print(
        f"{study.title}: cases: {len(study.cases):,}, items: {len(study.items):,}, annotators: {len(study.annotators)}"
    )
    for kind, plan in study.plans.items():
        needed = [item.needed for item in study.items if item.kind == kind]
        roles = ", ".join(role.replace("_", " ") for role in plan.roles)
        draw = "" if plan.draw is None else f" drawn with seed {study.seed}"
        print(f"  {kind}: cases{draw}: {len(needed):,}, tasks for {roles}: {sum(needed):,}")
    print(
        f"answers are kept in {study.database}\n\nAnnotators; a new one's link is shown this once:"
    )
    for annotator in study.annotators.values():
        token = store.invite(annotator.name, anew=False)
        done = store.progress(annotator.name)
        status = (
            f"{args.address}/invitation/{token}"
            if token
            else f"{done.done} done, {done.skipped} skipped, {done.open + done.left} to do"
        )
        print(f"  {annotator.name} ({annotator.role}): {status}")
    print(f"\nphysicians: {args.address}\nstop with Ctrl+C")

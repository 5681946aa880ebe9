"""The daemon as a process: from settings to an exit.

Owns the directory that it holds, signals, what it tells whoever started it, and where clients find it. Does not own what runs in
it (`daemon`).
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from dhp_protocol import PROTOCOL
from dhpd.config import Config
from dhpd.engine.views import rfc3339
from dhpd.store.backend import DiskError, StoreError
from dhpd.store.sqlite import SqliteStore
from dhpd.systemd.long_start import given_time
from dhpd.systemd.manager import NOBODY, Manager
from dhpd.systemd.sockets import handed_sockets

from .certificates import Certificates, certificates_of
from .clock import wall_ms
from .daemon import Daemon
from .directory import DataDirectory, DirectoryInUse
from .handed import HandedSocket, handed_over
from .listeners import AddressTaken, addresses_of
from .open_files import fitted_to_open_files
from .reloading import Reloading
from .tokens import Tokens

SWITCH_INTERVAL_S = 0.0005
"""The store's thread takes the GIL back once a row: the default of 5 ms would stall it behind any busy stretch."""
END_WITHIN_MS = 30_000
"""Told to a service manager: with time for a slow disk to close the store on."""
PUBLISH_AGAIN_S = 1.0

_log = logging.getLogger(__name__)


class CannotRun(Exception):
    """The directory is in use, the store is broken, an address is taken, or it broke later; the message says which."""


async def serve(
    config: Config,
    directory: DataDirectory,
    tokens: Tokens | None,
    certificates: Certificates | None,
    manager: Manager = NOBODY,
    handed: Sequence[HandedSocket] = (),
) -> None:
    """One daemon's life, from a held directory to SIGTERM or SIGINT; `manager` hears of it, and has `handed` over sockets."""
    with given_time(manager):
        manager.doing("Opening the store.")
        try:
            store = await SqliteStore.open(
                directory.store, power_safe=config.power_safe, ballast_bytes=config.ballast_bytes, wall_ms=wall_ms()
            )
        except StoreError as error:
            raise CannotRun(str(error)) from None
        daemon = Daemon(config, store, lambda: directory.lost or store.lost, tokens, certificates, handed)
        loop = asyncio.get_running_loop()

        def end() -> None:
            manager.stopping(
                config.drain_grace_ms + END_WITHIN_MS, "Stopping, once nothing is held or the grace is over."
            )
            daemon.ending.end()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGUSR1, daemon.ending.drain)
        reloading = Reloading(manager, tokens, certificates, daemon.described)
        if tokens is not None or certificates is not None or manager.listens:  # Else the end of a terminal ends it.
            loop.add_signal_handler(signal.SIGHUP, reloading.ask)
        manager.doing("Loading what is live.")
        try:
            await daemon.start(directory.path)
        except BaseException as error:
            await store.close()  # Else its threads would keep the process.
            if isinstance(error, DiskError):
                raise CannotRun(
                    f"{directory.store} can't be read: {error}. `dhpd check {directory.store}` tells what to do."
                ) from None
            if isinstance(error, (AddressTaken, StoreError)):
                raise CannotRun(str(error)) from None
            raise
    information = {
        "pid": os.getpid(),
        "addresses": daemon.addresses,
        "protocol": PROTOCOL,
        "started": rfc3339(wall_ms()),
    }
    publishing = None
    try:
        directory.publish(information)
    except OSError as error:  # There isn't room even for that; whoever knows an address can come all the same.
        _log.error("dhpd.json can't be written yet, so this daemon is found by its address only: %s", error)
        publishing = asyncio.create_task(_publish(directory, information))
    print("dhpd ready", *daemon.addresses, flush=True)
    manager.ready(daemon.described())
    reloading.serves()
    attended = None
    if manager.listens:
        attended = daemon.attended(manager, lambda: reloading.refused)
    await daemon.ending.stopping.wait()
    for task in (publishing, attended):
        if task is not None:
            task.cancel()
    reloading.stop()
    manager.stopping(END_WITHIN_MS, "Stopping.")
    await daemon.stop()
    if daemon.failure is not None:
        raise CannotRun(f"The daemon could not go on: {daemon.failure}. Start it again.")


async def _publish(directory: DataDirectory, information: dict[str, Any]) -> None:
    """Says where the daemon is as soon as the disk has room for that."""
    while True:
        await asyncio.sleep(PUBLISH_AGAIN_S)
        with contextlib.suppress(OSError):
            directory.publish(information)
            return


def run(config: Config) -> None:
    """Runs the daemon until it is told to stop; raises `CannotRun`, or `ConfigError` for an address."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    directory = DataDirectory(Path(config.data).absolute())
    manager = Manager.taken_from(os.environ)
    if manager.watchdog_s is not None:
        faulthandler.enable()  # SIGABRT is the watchdog's word: the log tells then where each thread hangs.
    handed = handed_over(handed_sockets(os.environ), config)
    certificates = certificates_of(config)
    addresses_of(config, directory.path)
    tokens = None if config.tokens is None else Tokens(Path(config.tokens))
    try:
        directory.hold()
    except DirectoryInUse as error:
        raise CannotRun(str(error)) from None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(fitted_to_open_files(config), directory, tokens, certificates, manager, handed))
    finally:
        directory.give_up()

"""The embedded default: a private daemon for one directory, started when none runs there.

Owns finding that daemon, starting it once however many ask at the same time, and saying why it didn't start. Blocking:
the event loop calls it in a thread. The daemon outlives the program that started it, and ends by itself when it has
been idle for long.
"""

import contextlib
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .addresses import DirectoryAddress, SocketAddress, TcpAddress, parse_address
from .blocking import reach
from .clock import monotonic_ms
from .exceptions import BadAddress, DaemonNotStarted

if TYPE_CHECKING:
    import subprocess

IDLE_EXIT_MS = 600_000
START_TIMEOUT_MS = 9_000
"""Shorter than the time that `connect` takes unless told otherwise, so that the log's end can be shown."""
CONNECT_TIMEOUT_MS = 2_000
LOOK_EVERY_MS = 20
MAX_SOCKET_PATH_BYTES = 100
"""What fits into `sun_path` everywhere, with a byte to spare."""
LOG_TAIL_CHARS = 2_000

_started: set[int] = set()
"""The pids of daemons that this process has started: looked after now and then, so that none stays a zombie."""


class DaemonFile(msgspec.Struct, frozen=True):
    """What a running daemon tells in its `dhpd.json`."""

    pid: int
    addresses: list[str]


def locate(directory: Path) -> SocketAddress:
    """Where the directory's daemon says it listens, unix socket first. Raises OSError where none says so."""
    found = _daemon_file(directory)
    addresses = [] if found is None else [_socket_address(text) for text in found.addresses]
    usable = [address for address in addresses if address is not None]
    if not usable:
        raise FileNotFoundError(f"no daemon runs on {directory}")
    return min(usable, key=lambda address: isinstance(address, TcpAddress))


def ensure_running(directory: Path) -> SocketAddress:
    """The address of the directory's daemon, which is started if it isn't there. Raises `DaemonNotStarted`, OSError."""
    _reap()
    if (address := _answering(directory)) is not None:
        return address
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    until_ms = monotonic_ms() + START_TIMEOUT_MS
    with _one_starter(directory, until_ms):
        address = _answering(directory)  # Somebody else may have started it meanwhile.
        if address is None:
            _check_not_anothers(directory)
        return address if address is not None else _start(directory, until_ms)


def _check_not_anothers(directory: Path) -> None:
    """A private daemon in the place of one that was killed would hold the directory when that is started again, without its settings.

    What is started here listens on no port, and a daemon that ends in good order leaves nothing behind. Raises `DaemonNotStarted`.
    """
    left = _daemon_file(directory)
    ports = [] if left is None else [text for text in left.addresses if isinstance(_socket_address(text), TcpAddress)]
    if ports:
        raise DaemonNotStarted(
            f"The daemon of {directory} that listened on {', '.join(ports)} is gone without having said so, and it had settings of its "
            f"own: start dhpd again as it was started. To have a private one here instead, remove {directory / 'dhpd.json'} first."
        )


def _answering(directory: Path) -> SocketAddress | None:
    """The address at which somebody accepts. A pid in a stale file may be anybody's by now; a connection isn't."""
    try:
        address = locate(directory)
        with reach(address, CONNECT_TIMEOUT_MS):
            return address
    except OSError:
        return None


def _start(directory: Path, until_ms: float) -> SocketAddress:
    import subprocess  # Most programs never start a daemon.

    command = [sys.executable, "-m", "dhpd", "--data", str(directory), "--listen", f"unix:{_socket_path(directory)}"]
    log_path = directory / "dhpd.log"
    with open(log_path, "ab", opener=_private) as log:
        log_start = log.tell()
        process = subprocess.Popen(
            [*command, "--idle-exit-ms", str(IDLE_EXIT_MS)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={name: value for name, value in os.environ.items() if name != "DHP_TOKEN"},  # None of its business.
            cwd="/",  # `-m` looks for modules there first, and the program's own folder may hold anything.
            start_new_session=True,
        )
    while (code := process.poll()) is None and monotonic_ms() < until_ms:
        found = _daemon_file(directory)
        if found is not None and found.pid == process.pid and (address := _answering(directory)) is not None:
            _let_live(process)
            return address
        _pause()
    if code is None:
        _let_live(process)  # A large store takes its time, and the next one would have to begin anew.
    starting = code is None
    while monotonic_ms() < until_ms:
        # It ends at once where another daemon holds the directory: one that is just starting, or just ending.
        if (address := _answering(directory)) is not None:
            return address
        starting = _is_held_by_another(directory, process.pid)
        if not starting and _daemon_file(directory) is None:
            break
        _pause()
    tail = _log_tail(log_path, log_start)
    how = (
        f"is still starting after {START_TIMEOUT_MS} ms: connect again" if starting else f"ended with exit code {code}"
    )
    raise DaemonNotStarted(f"The daemon for {directory} {how}. {log_path} says: {tail or 'nothing'}")


def _socket_path(directory: Path) -> Path:
    """In the directory where that is short enough, else in a private folder under a name made of the directory's."""
    path = directory / "dhpd.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    import tempfile  # With all that packs files behind it, which a path that is short enough does without.

    digest = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:24]
    for parent in (os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), "/tmp"):
        path = Path(parent, f"dhp-{os.getuid()}", f"{digest}.sock")
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            _make_private(path.parent)
            return path
    raise BadAddress(f"{directory}: no folder with a short name was found for the daemon's socket.")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BadAddress(f"{folder} must be a folder that is yours alone: the daemon's socket is put there.")


@contextlib.contextmanager
def _one_starter(directory: Path, until_ms: float) -> Iterator[None]:
    import fcntl  # Not on Windows, where nothing else of this works either.

    with open(directory / "start.lock", "ab", opener=_private) as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic_ms() > until_ms:
                    why = f"Somebody else has been starting the daemon for {directory} for too long."
                    raise DaemonNotStarted(why) from None
                _pause()
        yield


def _daemon_file(directory: Path) -> DaemonFile | None:
    try:
        return msgspec.json.decode((directory / "dhpd.json").read_bytes(), type=DaemonFile)
    except (OSError, msgspec.DecodeError):
        return None


def _is_held_by_another(directory: Path, pid: int) -> bool:
    """Whether the daemon `pid`, which has ended, found another at work: one that gets the directory says so in there."""
    _reap()
    try:
        holder = int((directory / "dhpd.lock").read_text())
        os.kill(holder, 0)
    except (OSError, ValueError):
        return False
    return holder != pid


def _socket_address(text: str) -> SocketAddress | None:
    try:
        address = parse_address(text)
    except BadAddress:
        return None
    return None if isinstance(address, DirectoryAddress) else address


def _log_tail(log_path: Path, start: int) -> str:
    with log_path.open("rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace").strip()[-LOG_TAIL_CHARS:]


def _let_live(process: "subprocess.Popen[bytes]") -> None:
    """The daemon is meant to outlive this process, which its object would complain of."""
    _started.add(process.pid)
    process.returncode = 0


def _reap() -> None:
    for pid in list(_started):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid  # Somebody else has, or it was the parent that this process was forked from.
        if ended:
            _started.discard(pid)


def _pause() -> None:
    threading.Event().wait(LOOK_EVERY_MS / 1000)

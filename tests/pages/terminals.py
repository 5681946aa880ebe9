"""A page as its reader goes through it: programs saved, commands typed into terminals, and what they answer compared.

A page that is typed (`type_page`) is one walk, in an empty directory, from its first block to its last:

- A block `console` is a terminal: behind `$ ` stands what is typed at the shell, behind `> ` what is typed into the program that
  runs there, `^C` alone is Ctrl-C; every other line was answered. The last command of a block may go on running, and the next
  block of that terminal may begin with what it answers then.
- It is the terminal that the paragraph before names ("in a second terminal"), else that of the block before.
- A block in any other language is saved under the last name in backquotes in the paragraph before it (`count.py`).
- What isn't the same every time is printed as `…`, which stands for anything within a line, and on a line of its own for any lines.
  Times in UTC needn't agree either, and what the shell says of its jobs (`[1] 4711`) isn't compared.
- The ports 8471 and 8472 are others here, where `dhpd` and `dhp` look for them unless they are told.

Owns that, and ending what was left running. Does not own which pages are typed.
"""

import contextlib
import itertools
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ..support.embedded import end_embedded
from .blocks import Block, blocks_of

PRINTED_PORT = "8471"
PRINTED_HTTP_PORT = "8472"
ANSWERED_WITHIN_S = 60.0
TERMINALS = ("first", "second", "third", "fourth")

NETCAT = """
import os, signal, socket, sys, threading
signal.signal(signal.SIGINT, signal.SIG_DFL)
host, port = sys.argv[-2:]
with socket.create_connection((host, int(port))) as s:
    def send():
        while data := os.read(0, 65536):
            s.sendall(data)
        if "-N" in sys.argv:
            s.shutdown(socket.SHUT_WR)
    threading.Thread(target=send, daemon=True).start()
    while data := s.recv(65536):
        os.write(1, data)
"""

_PROMPT = re.compile(rb"\x01(\d+)\x02")
_JOB = re.compile(r"\[\d+\][ +-]")
_JOB_ENDED = re.compile(r"\[\d+\][+-] +(?:Done|Exit|Killed|Terminated).*\n")
"""Also behind what a command wrote last, where a job ends at that moment."""
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Terminal:
    """An interactive shell on a terminal of its own. `type` and `until` go by lines."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._own, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[1] &= ~termios.OPOST  # LF stays LF.
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        termios.tcsetwinsize(theirs, (50, 1000))
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--noprofile", "--norc", "--noediting", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**environment, "TERM": "dumb", "NO_COLOR": "1", "PS1": "\x01$?\x02", "PS2": ""},
        )
        os.close(theirs)
        self._said = b""
        self.until_prompt()

    def type(self, line: str) -> None:
        os.write(self._own, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._own, b"\x03")

    def until_prompt(self) -> str:
        """All that is answered up to the next prompt."""
        while (prompt := _PROMPT.search(self._said)) is None:
            self._read()
        said, self._said = self._said[: prompt.start()], self._said[prompt.end() :]
        return said.decode()

    def until(self, enough: Callable[[str], bool]) -> str:
        """The least number of lines that is enough, or all up to the prompt where that comes first."""
        lines = ""
        while not enough(lines):
            line, ended, rest = self._said.partition(b"\n")
            if (prompt := _PROMPT.search(line)) is not None:
                return lines + line[: prompt.start()].decode()
            if ended:
                lines, self._said = lines + line.decode() + "\n", rest
            else:
                self._read()
        return lines

    def over_prompt(self) -> None:
        """Takes the next prompt away: what is answered before and after it is one."""
        self._said = self.until_prompt().encode() + self._said

    def close(self) -> None:
        """Ends the shell and all that it started here."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(process.name)) == self._shell.pid:
                    os.kill(int(process.name), signal.SIGKILL)
        self._shell.wait(ANSWERED_WITHIN_S)
        os.close(self._own)

    def _read(self) -> None:
        if not select.select([self._own], [], [], ANSWERED_WITHIN_S)[0]:
            raise AssertionError(f"nothing more was answered than {self._said.decode()!r}")
        self._said += os.read(self._own, 65536)


class Walk:
    """One reader's walk through a page."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._ports = {PRINTED_PORT: _free_port(), PRINTED_HTTP_PORT: _free_port()}
        self._terminals: dict[str, Terminal] = {}
        self._here = TERMINALS[0]
        self._running: set[str] = set()
        """Terminals whose last command may still run."""

    def follow(self, it: Block) -> None:
        """Does what this block says. AssertionError where something else is answered."""
        if it.language != "console":
            names = re.findall(r"`([\w./-]+\.\w+)`", it.before)
            assert names, f"{it}: the paragraph before it doesn't say as what to save it"
            (self._folder / names[-1]).write_text(self._with_port(it.text))
            return
        named = [name for name in TERMINALS if f"{name} terminal" in it.before]
        self._here = named[0] if named else self._here
        todo = steps(it.text)
        for step, following in itertools.zip_longest(todo, todo[1:]):
            self._type(it, step, goes_on=following is None or following.by != "shell")

    def _type(self, it: Block, step: "Step", *, goes_on: bool) -> None:
        terminal = self._terminal()
        if step.by == "shell":
            if self._here in self._running:
                _compare(it, terminal.until_prompt(), [])
            self._running.add(self._here)
            terminal.type(self._with_port(_where_it_listens(step.typed)))
        elif step.by == "program":
            terminal.type(self._with_port(step.typed))
        elif step.by == "interrupt":
            terminal.interrupt()
        printed = [self._with_port(line) for line in step.printed]
        in_background = step.typed.endswith(" &")
        if in_background:
            terminal.over_prompt()
        if in_background or goes_on:
            _compare(it, terminal.until(lambda said: fits(said, printed)), printed)
        else:
            _compare(it, terminal.until_prompt(), printed)
        if in_background or not goes_on:
            self._running.discard(self._here)

    def close(self) -> None:
        """Ends all that was left running."""
        end_embedded(self._folder)
        for terminal in self._terminals.values():
            terminal.close()

    def _terminal(self) -> Terminal:
        if self._here not in self._terminals:
            self._terminals[self._here] = Terminal(self._folder, self._environment)
        return self._terminals[self._here]

    def _with_port(self, text: str) -> str:
        for printed, ours in self._ports.items():
            text = text.replace(printed, str(ours))
        return text


class Step(NamedTuple):
    """What is typed, by whom it is read, and what is answered."""

    by: Literal["shell", "program", "interrupt", "nobody"]
    typed: str
    printed: list[str]


def steps(console: str) -> list[Step]:
    """A block `console`, taken apart."""
    found: list[Step] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append(Step("shell", line[2:], []))
        elif line.startswith("> "):
            found.append(Step("program", line[2:], []))
        elif line == "^C":
            found.append(Step("interrupt", "", []))
        elif found:
            found[-1].printed.append(line)
        else:
            found.append(Step("nobody", "", [line]))
    return found


def type_page(page: str, folder: Path, *, but: str = "") -> None:
    """Goes through the page in `folder`, which is empty; all of it but the section `but`."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DHP")}
    path = [str(Path(sys.executable).parent), variables["PATH"]]
    if not _has_netcat():
        path.insert(0, str(_netcat(folder.parent / f"{folder.name}-nc")))
    walk = Walk(folder, {**variables, "PATH": os.pathsep.join(path)})
    with contextlib.closing(walk):
        for it in blocks_of(page):
            if it.section != but:
                walk.follow(it)


def _compare(it: Block, said: str, printed: list[str]) -> None:
    assert fits(said, printed), f"{it}: what is answered isn't what is printed.\n{said}Printed:\n" + "\n".join(printed)


def fits(said: str, printed: list[str]) -> bool:
    """Whether what was answered is what is printed."""
    lines_said = _JOB_ENDED.sub("", said).splitlines()
    answered = "".join(f"{line}\n" for line in lines_said if line and not _JOB.match(line))
    lines = [line for line in printed if line and not _JOB.match(line)]
    return re.fullmatch("".join(map(_pattern, lines)), answered) is not None


def _pattern(line: str) -> str:
    if line == "…":
        return r"(.*\n)*"
    parts = re.split(f"({_TIME}|…)", line)
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = (".*" if part == "…" else _TIME for part in parts[1::2])
    return "".join(parts) + "\n"


def _where_it_listens(command: str) -> str:
    if command.startswith("dhp a2a") and "--listen" not in command:
        return f"{command} --listen 127.0.0.1:{PRINTED_HTTP_PORT}"
    data = re.match(r"dhpd --data (\S+)", command)
    if data is None or "--listen" in command:
        return command
    return f"DHPD_LISTEN='127.0.0.1:{PRINTED_PORT} unix:{data[1]}/dhpd.sock' {command}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _has_netcat() -> bool:
    if shutil.which("nc") is None:
        return False
    told = subprocess.run(["nc", "-h"], capture_output=True, text=True, timeout=10)
    return "OpenBSD" in told.stdout + told.stderr


def _netcat(folder: Path) -> Path:
    """For machines without it: the same bytes over the same kind of socket, half-closed at their end."""
    folder.mkdir()
    program = folder / "nc"
    program.write_text(f"#!{sys.executable}\n{NETCAT}")
    program.chmod(0o755)
    return folder

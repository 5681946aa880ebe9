"""`dhp run`: its options, what its program finds in its environment, what people and programs are told, and the exit code.

The work itself is `dhp_client.programs`'.
"""

import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import click

from dhp_client import Client
from dhp_protocol.limits import MAX_KINDS

from ..addresses import ENVIRONMENT_VARIABLE, parse_addresses
from ..connecting import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from ..trust import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from . import arguments, completing
from .command import command
from .finding import full_id
from .printing import SHORT_ID_CHARS
from .settings import FAILED, NOT_YET, OK, Settings, warn

if TYPE_CHECKING:
    from ..programs.outcome import Outcome
    from ..programs.worker import Run
    from ..task import Task

GRACE_MS = 10_000

_EPILOG = """\b
The program reads one line of JSON on its standard input:
  {"handoff", "kind", "fence", "attempt", "seq", "inputs", "state"}
and says, each on a line of its own on its standard output:
  {"checkpoint": STATE}                       the next attempt gets it as its state
  {"result": RESULT}                          with exit code 0: completed
  {"fail": {"reason": TEXT, "retry": BOOL}}   failed, whatever the exit code
  {"spend": {"usd": N, "steps": N}}           counts towards the caps
  {"activity": ANYTHING}                      for max_repeats and stall_ms
Everything else that it prints is passed through. docs/command-line.md has examples."""


def _runnable(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Everything before COMMAND has been read by now."""
    given = ctx.params
    if bool(given.get("kinds")) == bool(given.get("handoff")):
        raise click.UsageError("Say what to work on: --kind KIND, as often as you like, or --handoff ID.")
    if len(given.get("kinds") or ()) > MAX_KINDS:
        raise click.UsageError(f"A worker can wait for {MAX_KINDS} kinds at most.")
    if given.get("once") and given.get("count"):
        raise click.UsageError("--once is --count 1: give one of them.")
    if value and shutil.which(value[0]) is None:
        raise click.BadParameter(f"{value[0]!r} is no program that can be run here: {_instead_of(value[0])}.")
    return value


def _instead_of(program: str) -> str:
    if not os.path.isfile(program):
        return "give its path, or mend $PATH"
    if not os.access(program, os.X_OK):
        return f"say what runs it, as in `sh {program}`, or make it executable (chmod +x)"
    return f"write ./{program}"


@command("run", creates=True, takes_command=True, epilog=_EPILOG)
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    shell_complete=completing.kinds,
    help="Work of this kind; may be given again.",
)
@click.option(
    "--handoff",
    metavar="ID",
    callback=arguments.handoff_id,
    shell_complete=completing.handoff_ids,
    help="This handoff alone, until it has ended.",
)
@click.option("--worker", metavar="NAME", help="Told as its holder.  [default: host and process]")
@click.option("--ttl-ms", type=click.IntRange(min=1), help="The lease's length.  [default: 6000]")
@click.option("--once", is_flag=True, help="End after one attempt.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many attempts.")
@click.option("--wait-ms", type=click.IntRange(min=0), help="End when nothing has come for so long.  [default: never]")
@click.option(
    "--grace-ms",
    type=click.IntRange(min=0),
    default=GRACE_MS,
    show_default=True,
    help="What a program that is stopped gets between SIGTERM and SIGKILL.",
)
@click.option(
    "--spool",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep there what is said while no daemon answers, and go on for as long as that takes.",
)
@click.option("--answers", is_flag=True, help="Answer each line that is acted on, on COMMAND's standard input.")
@click.argument("program", metavar="[--] COMMAND [ARGS]...", nargs=-1, required=True, callback=_runnable)
async def run(
    client: Client,
    settings: Settings,
    kinds: tuple[str, ...],
    handoff: str | None,
    worker: str | None,
    ttl_ms: int | None,
    once: bool,
    count: int | None,
    wait_ms: int | None,
    grace_ms: int,
    answers: bool,
    program: tuple[str, ...],
) -> int:
    """Claim work and have COMMAND do it, again and again.

    The lease is kept while COMMAND runs. Without a result, or with another exit code than 0, the attempt has failed, and the
    work is tried again. When the lease is lost, COMMAND is stopped. SIGTERM and Ctrl-C are passed on as SIGTERM: what
    isn't finished within --grace-ms is handed back, which costs no attempt; a second one doesn't wait.

    With --answers the standard input stays open, and a line {"ok": true, …} or {"ok": false, "error": {…}} follows on each
    that was acted on, once it is on the daemon's disk. What is refused may then be mended; else it fails the attempt. A result
    counts at once.

    With --json there is one line for each attempt on standard output, and what COMMAND prints goes to standard error. Exit
    codes besides the usual: 0 all was completed; 1 some of it wasn't; 4 nothing came in time; 130, 143, 129 ended by a signal.
    """
    from ..programs.passing import Passing
    from ..programs.process import NotRunnable
    from ..programs.stopping import Stop
    from ..programs.worker import Options, Worker

    options = Options(
        command=program,
        environment=_environment(settings),
        kinds=kinds,
        handoff=None if handoff is None else await full_id(client, handoff),
        worker=worker,
        ttl_ms=ttl_ms,
        count=1 if once else count,
        wait_ms=wait_ms,
        grace_ms=grace_ms,
        answers=answers,
    )
    stop = Stop()
    stop.listen()
    output = sys.stderr if settings.as_json else sys.stdout
    working = Worker(client, options, stop=stop, passing=Passing(output.fileno()), telling=_Telling(settings))
    try:
        return _exit_code(await working.work(), options.count, options.handoff, stop.number)
    except NotRunnable as error:
        warn(f"{error}. What was claimed is handed back.")
        return FAILED


class _Telling:
    """One line at the beginning and the end of each attempt, on standard error; or its end as JSON."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def claimed(self, task: "Task") -> None:
        if not self._settings.as_json:
            after = f", after checkpoint {task.seq}" if task.seq else ""
            warn(f"{task.handoff[:SHORT_ID_CHARS]} ({task.kind}): attempt {task.attempt}{after}")

    def over(self, outcome: "Outcome") -> None:
        if self._settings.as_json:
            self._settings.show(outcome)
        else:
            warn(f"{outcome.handoff[:SHORT_ID_CHARS]} ({outcome.kind}): {_in_words(outcome)}")

    def warn(self, sentence: str) -> None:
        warn(sentence)


def _in_words(outcome: "Outcome") -> str:
    short = outcome.handoff[:SHORT_ID_CHARS]
    match outcome.outcome:
        case "completed":
            return "completed"
        case "failed" if outcome.status == "dead":
            return f"failed for good ({outcome.reason}): `dhp redrive {short}` brings it back"
        case "failed":
            return f"failed ({outcome.reason}), to be tried again"
        case "dead":
            return f"dead ({outcome.reason}): `dhp status {short}` shows its caps, `dhp redrive {short}` brings it back"
        case "released":
            return f"handed back ({outcome.reason})"
        case "lost":
            return f"not ours any more ({outcome.reason})"


def _environment(settings: Settings) -> dict[str, str]:
    """What `dhp` needs to reach the same daemon from inside of the program."""
    environment = {**os.environ, ENVIRONMENT_VARIABLE: str(parse_addresses(settings.connect)[0])}
    files = {
        TOKEN_FILE_VARIABLE: settings.token_file,
        CA_VARIABLE: settings.ca_file,
        CERTIFICATE_VARIABLE: settings.cert_file,
        KEY_VARIABLE: settings.key_file,
    }
    environment.update({name: os.path.abspath(file) for name, file in files.items() if file is not None})
    if settings.token_file is not None:  # The variable would count for more.
        environment.pop(TOKEN_VARIABLE, None)
    return environment


def _exit_code(run: "Run", count: int | None, handoff: str | None, number: signal.Signals | None) -> int:
    all_there = count is None or len(run.outcomes) == count
    all_completed = all(outcome == "completed" for outcome in run.outcomes)
    if number is not None and not (count is not None and all_there and all_completed):
        return 128 + number
    if run.ended_as is not None:
        return OK if run.ended_as == "completed" else FAILED
    if not all_completed:
        return FAILED
    return OK if all_there and (handoff is None or run.outcomes) else NOT_YET

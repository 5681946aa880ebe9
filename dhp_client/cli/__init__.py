"""The command `dhp`: what a person does with handoffs, thin over the client.

Owns arguments, words on a terminal and exit codes: 0 done, 1 answered with an error, 2 wrong usage, 3 no daemon
reached, 4 not there yet, 128 and the number of the signal that ended it (130: Ctrl-C). Rules about handoffs are the daemon's.
"""

from .main import main

__all__ = ["main"]

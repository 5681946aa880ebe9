"""`python -m dhpd`."""

from .cli import main

main(prog_name="dhpd")

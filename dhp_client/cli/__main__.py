"""`python -m dhp_client.cli`: the same as `dhp`."""

from .main import main

main()

"""Whether the simulation notices a mistake: worlds are run until an invariant is seen not to hold."""

from .contract_stories import Violation
from .run import simulate

SEEDS_TO_CATCH_A_MUTATION = range(60)


def caught() -> bool:
    """Whether one of the worlds shows what the mutation at hand breaks."""
    for seed in SEEDS_TO_CATCH_A_MUTATION:
        try:
            simulate(seed)
        except Violation as violation:
            print(f"caught by seed {seed}: {violation}")
            return True
    return False

"""What is raised where something that must hold doesn't."""


class Violation(AssertionError):
    """An invariant, or a rule of the protocol, doesn't hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)

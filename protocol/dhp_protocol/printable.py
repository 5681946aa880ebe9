"""Text of strangers, made fit for a terminal or a log.

Owns what is escaped. Pure.
"""

import json


def harmless(text: str) -> str:
    """The text with everything that a terminal obeys, or shows otherwise than it is, escaped as JSON escapes it.

    What a worker asks a person about is a worker's text; JSON stays the same JSON.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)

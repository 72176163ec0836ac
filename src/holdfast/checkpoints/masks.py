"""What is not shown in readable forms unless it is asked for: what sounds like a secret.

The name decides, that of a key or of a part of a value, and nothing of the content. A name that
sounds like a secret hides everything below it.
"""

from __future__ import annotations

WORDS = ("credential", "password", "secret", "token")


def sensitive(name: object) -> bool:
    """Whether a name sounds as if a secret were behind it."""
    if not isinstance(name, str):
        return False
    lower = name.lower()
    return any(word in lower for word in WORDS)

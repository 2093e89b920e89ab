"""What must not be shown of what a machine knows: values whose name sounds like a secret, and who logs in to a URL."""

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "(redacted)"
_WORDS: Final = "KEY|PASS|PWD|CRED|PRIV|TOKEN|SECRET|AUTH"
_SECRET: Final = re.compile(_WORDS, re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    rf"""(?P<name>\b[A-Z0-9_]*(?:{_WORDS})[A-Z0-9_]*(?:=|["']\s*:\s*))(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"',;]+)"""
)
"""As a shell or Python spells a variable: ``KeyError: 'a'`` is none."""
_USER: Final = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s\"'<>?#]*@")


def redact_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables in order of their names, with what is secret hidden.

    >>> redact_variables({"NCCL_TOKEN": "x", "HTTP_PROXY": "http://me:pw@host/"})
    {'HTTP_PROXY': 'http://(redacted)@host/', 'NCCL_TOKEN': '(redacted)'}
    """
    return {name: redact_value(name, value) for name, value in sorted(variables.items())}


def redact_value(name: str, value: str) -> str:
    """Return the value of one variable, hidden where its name sounds like a secret."""
    return HIDDEN if _SECRET.search(name) else redact_users(value)


def redact_field(path: str, value: str) -> str:
    """Return the value of a scenario's field, hidden where it is a variable whose name sounds like a secret.

    >>> redact_field("env.NCCL_TOKEN", "x"), redact_field("data.tokens", "512")
    ('(redacted)', '512')
    """
    return redact_value(path, value) if path.startswith("env.") else redact_users(value)


def redact_users(text: str) -> str:
    """Return text in which no URL says who logs in.

    >>> redact_users("git+https://me:pw@host/x and ssh://git@host")
    'git+https://(redacted)@host/x and ssh://(redacted)@host'
    """
    return _USER.sub(rf"\g<scheme>{HIDDEN}@", text)


def redact_text(text: str) -> str:
    """Return a line of a log in which neither a URL nor a ``NAME=value`` tells a secret.

    >>> redact_text("HF_TOKEN=abc loaded https://me:pw@host")
    'HF_TOKEN=(redacted) loaded https://(redacted)@host'
    """
    return _ASSIGNED.sub(rf"\g<name>{HIDDEN}", redact_users(text))

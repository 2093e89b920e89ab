"""How a request is refused: an HTTP status and a sentence for the page."""


class Refusal(Exception):  # noqa: N818  it answers a request, nothing is broken
    """A request that gets no document.

    Attributes:
        status: HTTP status code.
        sentence: what is wrong and what to do next.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


NOT_ASKED_WELL = 400
FORBIDDEN = 403
NOT_FOUND = 404
BROKEN = 500

CONFLICT = 409
"""Two sides are not compared; where their environments are unlike, a person may insist."""
ABSENT = 410
"""What would have to be read is not there, as traces that were deleted."""
NOT_YET = 503
"""The page asks again by itself and keeps what it shows."""

EXPECTED = (CONFLICT, ABSENT, NOT_YET)
"""Refusals of a page that is used as it should be: sent as an answer, since a browser logs every other status."""

"""The base of everything that crosses a room or a file: frozen, strict, no unknown fields."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A value that cannot change and refuses fields it does not know.

    Strict: ``"2"`` is not an int. NaN and infinity survive JSON as the strings ``NaN`` and ``Infinity``, so that a
    number that could not be computed never turns into a zero or a null on disk.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings", use_attribute_docstrings=True
    )

"""Types of fields that several sections of a scenario have."""

from typing import Annotated, Literal

from pydantic import Field

DtypeName = Literal["float32", "bfloat16", "float16"]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]

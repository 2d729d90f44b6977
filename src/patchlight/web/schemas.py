"""What the API takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MANY = 40
Class = Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[str, Field(max_length=200)]
Settings = dict[Annotated[str, Field(max_length=80)], Any]
Side = Annotated[int, Field(ge=1, le=128)]
Place = Annotated[int, Field(ge=0, le=127)]
Patches = Annotated[list[Annotated[int, Field(ge=0, le=16383)]], Field(max_length=16384)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class About(Strict):
    """A picture and a model."""

    picture: Annotated[str, Field(description="An id from POST /pictures, or the file itself in base64 (or as a data URL).")]
    model: Annotated[str | None, Field(max_length=200, description="One of the server's models; the first by default.")] = None


class Explain(About):
    """What to explain, and how."""

    methods: Annotated[
        list[Annotated[str, Field(max_length=80)]] | dict[Annotated[str, Field(max_length=80)], Settings],
        Field(min_length=1, max_length=MANY, description="Names, or name -> settings; GET /about has all of them."),
    ] = ["transformer_mm"]
    target: Annotated[Class | None, Field(description="Class number or label; the predicted class by default.")] = None
    against: Annotated[Class | None, Field(description="Explain the target rather than this class.")] = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    insides: Annotated[bool, Field(description="Also what went on inside, block by block.")] = False


class Attention(About):
    patch: Annotated[
        tuple[Place, Place] | None, Field(description="Row and column, counted from 0; without one, the row that the head reads.")
    ] = None
    grid: Annotated[tuple[Side, Side] | None, Field(description="The grid that they count on; the model's by default.")] = None


class Scores(About):
    grid: tuple[Side, Side]
    remove: Annotated[list[Patches], Field(min_length=1, max_length=64, description="Patches that are taken away, by number.")]
    target: Annotated[int, Field(ge=0, le=10_000_000)]
    against: Annotated[int | None, Field(ge=0, le=10_000_000)] = None


class Curves(About):
    grid: tuple[Side, Side]
    order: Annotated[Patches, Field(min_length=1, description="All patches, the highest first.")]
    target: Annotated[int, Field(ge=0, le=10_000_000)]
    against: Annotated[int | None, Field(ge=0, le=10_000_000)] = None
    steps: Annotated[int, Field(ge=1, le=50)] = 20


class File(Explain):
    format: Literal["html", "npz"] = "html"


class Problem(BaseModel):
    """What went wrong, and what to do next."""

    error: str

"""Options that several verbs share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

MODELS = "pets-vit, pets-swin, timm:NAME, hf:NAME_OR_FOLDER or torchvision:NAME."
Images = Annotated[list[str], typer.Argument(metavar="IMG", help="Files, folders, globs, or - for standard input.")]
Model = Annotated[str, typer.Option("--model", "-m", help=MODELS)]
Weights = Annotated[str | None, typer.Option("--weights", metavar="FILE|random", help="A file of tensors for the model.")]
Labels = Annotated[Path | None, typer.Option("--labels", help="Class names: one a line, or a JSON list.")]
Target = Annotated[str | None, typer.Option("--target", "-t", help="Class number or label. [default: predicted class]")]
Against = Annotated[str | None, typer.Option("--against", help="Explain the target rather than this class.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="[METHOD.]NAME=VALUE", help="A setting, of all methods that have it or of one."),
]
Until = Annotated[
    float | None,
    typer.Option("--until", metavar="SHARE", help="End sampling at this relative standard error, such as 0.05."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Pictures at once. [default: by device]")]
Seed = Annotated[int, typer.Option("--seed", help="For methods that draw random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, and nothing else.")]


class Precision(str, Enum):
    """The precision of the passes; bf16 and fp16 by autocast."""

    float32 = "float32"
    bf16 = "bf16"
    fp16 = "fp16"
    float64 = "float64"


PrecisionOption = Annotated[Precision, typer.Option("--precision", help="Of the passes through the model.")]

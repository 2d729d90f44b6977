"""Masked pictures, made on the device one batch at a time and scored: pictures x masks fill every batch together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from patchlight.core.errors import ModelError
from patchlight.core.scoring import Scorer
from patchlight.core.targets import Target
from patchlight.tracing.as_found import as_found, no_autocast
from patchlight.tracing.ask import Ask

Score = Literal["probability", "logit"]
Make = Callable[[Tensor, Tensor], Tensor]
"""(picture (n,), number (n,)) -> new pictures (n, 3, H, W): variant `number` of the batch's `picture`."""
Use = Callable[[Tensor, Tensor, Tensor], None]
"""(picture (n,), number (n,), value (n,)): what the score of each variant is."""


def each_variant(ask: Ask, items: tuple[Tensor, Tensor], make: Make, use: Use, *, score: Score, times: int = 1) -> int:
    """Score the variants `items` = (picture (t,), number (t,)) in order; returns how many were done before a wish to stop.

    With `times`, make gives that many pictures for each item, (n, times, 3, H, W), and use gets number times `times` + which.
    """
    pictures, numbers = (t.repeat_interleave(times) for t in items)
    numbers = numbers * times + torch.arange(times, device=numbers.device).repeat(len(items[0]))
    _, target = ask.look()
    scorer, done = scorer_of(ask), 0
    sound = torch.ones((), dtype=torch.bool, device=ask.images.device)  # looked at once, at the end: a GPU need not wait

    def images(start: int, stop: int) -> Tensor:
        with no_autocast(ask.images):
            if times == 1:
                return make(pictures[start:stop], numbers[start:stop]).to(ask.images.dtype)
            first, last = start // times, -(-stop // times)
            made = make(items[0][first:last], items[1][first:last]).to(ask.images.dtype).flatten(0, 1)
            return made[start - first * times : stop - first * times]

    with as_found(ask.model), torch.no_grad():
        for start, stop, logits in scorer.stream(images, len(pictures)):
            some = pictures[start:stop]
            value = value_of(target.pick(some), logits, score)
            sound &= value.isfinite().all()
            with no_autocast(ask.images):
                use(some, numbers[start:stop], value)
            done = stop
            ask.progress(done, len(pictures))
            if ask.stop.asked:
                break
    if not sound:
        raise ModelError(
            f"the model's outputs for masked pictures are not finite in {plain(scorer.half or ask.images.dtype)}. "
            "Use autocast=False, float32 or bfloat16."
        )
    note = f"masked pictures were scored under autocast to {plain(scorer.half)}"
    if scorer.half is not None and note not in ask.notes:
        ask.notes.append(note)
    return done


def all_values(ask: Ask, count: int, make: Make, *, score: Score) -> Tensor:
    """(b, m) values of `count` variants of every picture; a wish to stop ends the work, as a part of these says nothing."""
    values = ask.images.new_empty(len(ask.images), count, dtype=wide(ask))

    def use(picture: Tensor, number: Tensor, value: Tensor) -> None:
        values[picture, number] = value.to(values.dtype)

    items = every_pair(ask, [count] * len(ask.images))
    if each_variant(ask, items, make, use, score=score) < len(items[0]):
        raise KeyboardInterrupt
    return values


def whole(ask: Ask, *, score: Score) -> Tensor:
    """(b,) values of the pictures themselves, in the precision that their variants are scored in."""
    logits, target = ask.look()
    if scorer_of(ask).half is None:
        return value_of(target, logits, score)
    return all_values(ask, 1, lambda picture, _: ask.images[picture], score=score)[:, 0]


def every_pair(
    ask: Ask, counts: Sequence[int], *, start: int = 0, pictures: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """(picture, number) of the variants start ... counts[i] of each picture: the first of all pictures, then the second, ..."""
    chosen = list(range(len(counts))) if pictures is None else list(pictures)
    ends = torch.tensor([counts[i] for i in chosen])
    numbers = torch.arange(start, int(ends.max()) if len(ends) else start)
    there = numbers[:, None] < ends[None]  # (m, b)
    number, place = there.nonzero(as_tuple=True)
    return torch.tensor(chosen)[place].to(ask.images.device), numbers[number].to(ask.images.device)


def value_of(target: Target, logits: Tensor, score: Score) -> Tensor:
    return target.probability(logits) if score == "probability" else target.logit(logits)


def wide(ask: Ask) -> torch.dtype:
    """Float32 or better: what sums are held in."""
    return torch.promote_types(ask.images.dtype, torch.float32)


def scorer_of(ask: Ask) -> Scorer:
    """The scorer of the run; a plain one where the ask was made by hand."""
    if ask.scorer is None:
        ask.scorer = Scorer(ask.forward, ask.images.device, ask.images.dtype, fixed=ask.batch)
    return ask.scorer


def plain(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")

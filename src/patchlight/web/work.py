"""What the server works out on the device's thread: pictures, maps, attention, and what the model says of parts."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patchlight.api import compare, why_not
from patchlight.core.errors import PatchlightError, SettingError
from patchlight.core.registry import Method, get
from patchlight.explanation import Explanation
from patchlight.models.subject import Subject
from patchlight.render.pack import packed_attention
from patchlight.viewer import document, insides
from patchlight.viewer.attention import Seen, read_row, row_of, see
from patchlight.viewer.removal import counts, masks_for, score_without
from patchlight.viewer.write import html
from patchlight.web.device import Ticket
from patchlight.web.schemas import Attention, Curves, Explain, File, Scores
from patchlight.web.uploads import Latest, Limits, Pictures, UnknownError, Upload

HELD = 64_000_000  # bytes of attention that are kept for the next click
Work = Callable[[Ticket], None]


@dataclass(eq=False)
class Bench:
    """The models and pictures of a server."""

    subjects: Mapping[str, Subject]
    limits: Limits
    pictures: Pictures = field(init=False)
    seen: Latest[Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.pictures = Pictures(self.limits)
        self.seen = Latest(HELD)

    def subject(self, name: str | None) -> Subject:
        chosen = next(iter(self.subjects)) if name is None else name
        if chosen not in self.subjects:
            raise UnknownError(f"there is no model {chosen[:80]!r} on this server. It has: {', '.join(self.subjects)}.")
        return self.subjects[chosen]

    def open(self, key: str, model: str | None) -> tuple[Upload, Subject]:
        subject = self.subject(model)
        return self.pictures.open(key, subject.preprocess, subject.name), subject

    # -- a picture ----------------------------------------------------------------------------------------------------

    def look(self, key: str, model: str | None) -> Work:
        """The picture as the page shows it, and what the model says of it."""

        def work(ticket: Ticket) -> None:
            upload, subject = self.open(key, model)
            logits = subject.scores(on_device(upload, subject)[None])[0]
            photo = document.photo_of(upload)
            classes = document.top(logits, subject.labels, document.CLASSES)
            try:
                grid = subject.layout().grid
            except PatchlightError:
                grid = (0, 0)
            ticket.tell(
                {
                    "id": key,
                    "model": subject.name,
                    **photo,
                    "classes": classes,
                    "labels": {str(k): name for k, name, _ in classes},
                    "grid": list(grid if prod(grid) > 1 else (14, 14)),
                }
            )

        return work

    # -- maps ---------------------------------------------------------------------------------------------------------

    def explain(self, key: str, asked: Explain, shape: Shape) -> list[Work]:
        """One piece of work for the cheap methods that share a pass, one for each of the others, the cheapest first."""
        subject = self.subject(asked.model)
        jobs = given(asked)
        return [self.group(key, asked, subject, {n: jobs[n] for n in names}, shape) for names in groups(jobs)]

    def group(self, key: str, asked: Explain, subject: Subject, jobs: Mapping[str, Job], shape: Shape) -> Work:
        def work(ticket: Ticket) -> None:
            upload = self.pictures.open(key, subject.preprocess, subject.name)
            able = {}
            for label, (method, settings) in jobs.items():
                reason = why_not(method, subject.layout()) if method.needs or method.traced else None
                if reason:
                    ticket.tell({"event": "problem", "label": label, "error": f"{label} cannot explain {subject.name}: {reason}"})
                else:
                    able[label] = {"method": method.name, **settings}
            if able:
                run_some(ticket, subject, upload, able, asked, shape)

        return work

    # -- clicks -------------------------------------------------------------------------------------------------------

    def attend(self, key: str, asked: Attention) -> Work:
        """Where a patch attends, at every block and head."""

        def work(ticket: Ticket) -> None:
            upload, subject = self.open(key, asked.model)
            layout = subject.layout()
            middle = middle_of(asked, layout.grid)
            seen = self.seen.get((key, subject.name))
            if seen is None:
                seen = see(subject, on_device(upload, subject))
                size = sum(m.numel() * m.element_size() for m in seen.maps.values())
                if size <= HELD:
                    self.seen.put((key, subject.name), seen, size)
            ticket.tell({"blocks": [attended(seen, i, middle) for i in seen.maps if middle or layout.blocks[i].kind == "global"]})

        return work

    def scores(self, key: str, asked: Scores) -> Work:
        """What the model says without some patches."""

        def work(ticket: Ticket) -> None:
            upload, subject = self.open(key, asked.model)
            patches = asked.grid[0] * asked.grid[1]
            kept = torch.ones(len(asked.remove), patches, dtype=torch.bool)
            for row, gone in zip(kept, asked.remove, strict=True):
                row[checked(gone, patches)] = False
            parts = [y.cpu() for _, y in self.scored(subject, upload, kept.unflatten(1, asked.grid), ticket)]
            ticket.tell(self.said(subject, torch.cat(parts), asked.target, asked.against))

        return work

    def curves(self, key: str, asked: Curves) -> Work:
        """Deletion and insertion in a given order, step by step."""

        def work(ticket: Ticket) -> None:
            upload, subject = self.open(key, asked.model)
            patches = asked.grid[0] * asked.grid[1]
            order = torch.tensor(checked(asked.order, patches))
            if sorted(asked.order) != list(range(patches)):
                raise SettingError(
                    f"order: expected each of the patches 0 to {patches - 1} once. Give them all, the highest first."
                )
            steps = counts(patches, asked.steps)
            ticket.tell({"counts": steps})
            # both curves grow together
            masks = masks_for(order, asked.grid, steps).unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
            for start, logits in self.scored(subject, upload, masks, ticket):
                ticket.tell({"start": start, **self.said(subject, logits.cpu(), asked.target, asked.against)})

        return work

    def scored(self, subject: Subject, upload: Upload, kept: Tensor, ticket: Ticket) -> Any:
        for found in score_without(subject.scorer, on_device(upload, subject), kept):
            ticket.check()
            yield found

    def said(self, subject: Subject, logits: Tensor, target: int, against: int | None) -> dict[str, Any]:
        for index in (target, against):
            if index is not None and index >= logits.shape[1]:
                raise SettingError(f"class {index} was asked for, and {logits.shape[1] - 1} is the last one.")
        found = document.points(logits, target, against)
        used = {k for point in found["top"] for k, _ in point} | {target}
        return found | {"labels": {str(k): subject.label(k) for k in sorted(used)}}

    # -- files --------------------------------------------------------------------------------------------------------

    def file(self, key: str, asked: File) -> Work:
        """What `Explanation.to_html` and `.save` write, without a disk."""

        def work(ticket: Ticket) -> None:
            upload, subject = self.open(key, asked.model)
            methods = {n: {"method": m.name, **s} for n, (m, s) in given(asked).items()}
            found = compare(subject, upload, methods, target_of(asked), seed=asked.seed, progress=lambda *_: ticket.check())
            if asked.format == "html":
                shown = document.document(found, document.Extras(), lambda _: ticket.check())
                ticket.tell(html(shown).encode("utf-8"))
            else:
                buffer = io.BytesIO()
                np.savez_compressed(buffer, **{f"{n}/{k}": v for n, e in found.items() for k, v in e.arrays().items()})
                ticket.tell(buffer.getvalue())

        return work


Job = tuple[Method, dict[str, Any]]
Shape = Callable[[Explanation], dict[str, Any]]


def given(asked: Explain) -> dict[str, Job]:
    """label -> method and settings, checked."""
    methods = asked.methods if isinstance(asked.methods, dict) else {name: {} for name in asked.methods}
    found = {}
    for label, settings in methods.items():
        rest = dict(settings)
        method = get(str(rest.pop("method", label)))
        found[label] = method, method.resolve(rest)
    return found


def groups(jobs: Mapping[str, Job]) -> list[list[str]]:
    """Cheap trace methods share a pass; the others come one by one, by their passes."""
    cheap = [n for n, (m, s) in jobs.items() if m.traced and document.is_cheap(m, s)]
    rest = [n for n in jobs if n not in cheap]

    def passes(name: str) -> tuple[bool, float]:
        method, settings = jobs[name]
        cost = method.cost(settings)
        return not document.is_cheap(method, settings), cost.forwards + cost.backwards

    return [cheap] * bool(cheap) + [[n] for n in sorted(rest, key=passes)]


def target_of(asked: Explain) -> Any:
    if asked.against is None:
        return asked.target
    if asked.target is None:
        raise SettingError("against needs a target: a contrast explains one class rather than another. Give target too.")
    return asked.target, asked.against


def run_some(ticket: Ticket, subject: Subject, upload: Upload, methods: Mapping[str, Any], asked: Explain, shape: Shape) -> None:
    """The maps of some methods; where one of several fails, each is tried by itself, so that it takes none with it."""

    def progress(done: int, total: int) -> None:
        ticket.tell({"event": "progress", "labels": list(methods), "done": done, "all": total})

    try:
        found = compare(
            subject, upload, methods, target_of(asked), seed=asked.seed, insides=asked.insides, progress=progress, batch_size=1
        )
    except PatchlightError as error:
        if len(methods) > 1:
            for label, settings in methods.items():
                run_some(ticket, subject, upload, {label: settings}, asked, shape)
            return
        ticket.tell({"event": "problem", "label": next(iter(methods)), "error": str(error)})
        return
    for label, e in found.items():
        ticket.tell({"event": "map", "label": label, **shape(e)})


def for_page(e: Explanation) -> dict[str, Any]:
    """A map as the page takes it."""
    run = document.run({e.method: e}, 0)
    shown = insides.shown(e.insides, e.subject.layout(e.size), 0) if e.insides and e.subject is not None else None
    return {
        "target": run["target"],
        "against": run["against"],
        "text": run["label"],
        "map": run["maps"][e.method],
        "notes": document.notes_of(e, 0),
        "about": document.about(e),
        "insides": shown,
    }


def for_programs(e: Explanation) -> dict[str, Any]:
    """A map as plain numbers."""
    scores = e.array(0)
    record = {k: v for k, v in e.record().items() if k in ("method", "settings", "seconds", "notes")}
    return {
        **record,
        "settings": {k: document.plain(v) for k, v in e.settings.items()},
        "target": int(e.target[0]),
        "against": None if e.against is None else int(e.against[0]),
        "text": e.label(0),
        "on": "pixels" if e.tokens is None else "patches",
        "shape": list(scores.shape),
        "scores": [[float(f"{v:.6g}") if np.isfinite(v) else None for v in row] for row in scores],
    }


def middle_of(asked: Attention, grid: tuple[int, int]) -> tuple[float, float] | None:
    """Where the middle of the patch lies, as shares of height and width."""
    if asked.patch is None:
        return None
    (row, column), (height, width) = asked.patch, asked.grid or grid
    if row >= height or column >= width:
        raise SettingError(f"the grid has {height} x {width} patches, counted from 0, so {asked.patch} is none of them.")
    return (row + 0.5) / height, (column + 0.5) / width


def attended(seen: Seen, index: int, middle: tuple[float, float] | None) -> dict[str, Any]:
    block, maps = seen.layout.blocks[index], seen.maps[index].float()
    if middle is None:
        rows = read_row(block, maps)
    else:
        rows = row_of(block, maps, (int(middle[0] * block.grid[0]), int(middle[1] * block.grid[1])))  # (h, rows, columns)
    about = {"index": index, "name": block.name, "grid": list(block.grid), "heads": len(rows)}
    others = (1 - rows.flatten(1).sum(1)).clamp_min(0)
    flat = packed_attention(rows.flatten(1)[:, None].numpy())
    return about | {"others": [round(v, 4) for v in others.tolist()], **flat}


def checked(patches: Sequence[int], count: int) -> list[int]:
    if any(k >= count for k in patches):
        raise SettingError(f"a patch {max(patches)} was named, but the grid has {count} (0 to {count - 1}).")
    return list(patches)


def on_device(upload: Upload, subject: Subject) -> Tensor:
    assert upload.ready is not None
    return upload.ready.to(subject.device, subject.dtype)

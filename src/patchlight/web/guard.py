"""What stands in front of every request: size, token, host and origin; and what goes with every answer."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from patchlight.render.page import policy
from patchlight.web.uploads import Limits, TooLargeError, too_large

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})  # hold nothing of anybody's pictures
ROOM = 1.4  # base64 is a third longer than a file, and JSON stands around it
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


@dataclass(eq=False)
class Guard:
    """ASGI middleware. Without a token only names of this machine are answered, so that no other site can reach it."""

    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    limits: Limits
    token: str | None
    hosts: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        started = False

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *common_headers()]
            await send(message)

        if refusal := self.refusal(scope, headers):
            await refuse(answer, *refusal)
            return
        try:
            await self.app(scope, self.counted(receive), answer)
        except TooLargeError as error:
            if not started:
                await refuse(answer, 413, str(error))

    def refusal(self, scope: Scope, headers: MutableMapping[str, str]) -> tuple[int, str] | None:
        """A status and a reason, or None."""
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if self.token is None and host not in self.hosts:
            return 403, f"the host {host[:80]!r} is not known here. Open the server by localhost, or start it with a token."
        origin = headers.get("origin")
        if origin not in (None, "null") and urlsplit(origin or "").netloc != headers.get("host"):
            return 403, f"requests from {str(origin)[:80]!r} are not answered."
        if self.token is not None and scope["path"] not in OPEN:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return 401, "a token is needed: open the address that the server printed, or send Authorization: Bearer TOKEN."
        size = headers.get("content-length", "0")
        if size.isdigit() and int(size) > ROOM * self.limits.bytes:
            return 413, str(too_large(int(size), self.limits))
        return None

    def counted(self, receive: Receive) -> Receive:
        """A body that says nothing of its length is counted as it comes."""
        size = 0

        async def count() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > ROOM * self.limits.bytes:
                raise too_large(size, self.limits)
            return message

        return count


def common_headers() -> list[tuple[bytes, bytes]]:
    rules = HEADERS | {"content-security-policy": f"{policy(offline=False)}; frame-ancestors 'none'"}
    return [(k.encode(), v.encode()) for k, v in rules.items()]


async def refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": kind})
    await send({"type": "http.response.body", "body": body})

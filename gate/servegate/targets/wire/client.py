"""The HTTP client: requests sent by a fixed number of clients, bytes stamped as they arrive.

Nothing is parsed while a round runs. A round's reads are kept as they came and become answers afterwards, so
that the client does as little as it can beside what it measures.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from servegate.targets.wire.frames import Read

TIMEOUT_S: Final = 600.0
"""For a whole answer, as in OpenAI's own client."""
CONNECT_S: Final = 10.0
_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class Call:
    """A request, ready to be sent."""

    id: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Exchange:
    """A request and all that came back. Times are ns since the round's start."""

    id: str
    scheduled_ns: int
    sent_ns: int
    ended_ns: int
    reads: tuple[Read, ...] = ()
    status: int | None = None
    """Of HTTP; None where there was no answer."""
    error: str | None = None
    """Why the bytes are not, or not all, there."""

    @property
    def content(self) -> bytes:
        return b"".join(chunk for _, chunk in self.reads)


@dataclass(frozen=True)
class Sent:
    """A round on the wire."""

    exchanges: tuple[Exchange, ...]
    """In the order in which they ended."""
    starved_ns: int
    """Time that the client was ready to run and had no CPU, by Linux's own account; 0 where it has none."""


@asynccontextmanager
async def session(root: str, key: str | None, connections: int) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for one round: a server may close connections that idle between rounds.

    Paths of requests are relative to ``root``, which may have a path of its own behind a proxy. No retries: a
    request is sent once, and its failure counts. Redirects are not followed, by any request: the key is for
    ``root`` alone.
    """
    headers = {"Accept-Encoding": "identity"}  # a proxy that compresses holds frames back
    if key:
        headers["Authorization"] = f"Bearer {key}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(
        f"{root}/", connector=connector, headers=headers, timeout=timeout
    ) as opened:
        yield opened


async def connect(opened: aiohttp.ClientSession, path: str, connections: int) -> None:
    """Open that many connections: the time that it takes is not a request's time to first token."""
    async with AsyncExitStack() as held:
        waiting = [
            held.enter_async_context(opened.get(path, allow_redirects=False)) for _ in range(connections)
        ]
        for response in await asyncio.gather(*waiting):
            await response.read()


async def closed_loop(
    opened: aiohttp.ClientSession, calls: Sequence[Call], clients: int, ended: Callable[[int], None]
) -> Sent:
    """Each client sends its next call when its last one ended. ``ended(n)`` after each: n have."""
    waiting = deque(calls)
    exchanges: list[Exchange] = []

    async def client() -> None:
        free_ns = 0
        while waiting:
            exchange = await send(opened, waiting.popleft(), free_ns, now_ns)
            free_ns = exchange.ended_ns
            exchanges.append(exchange)
            ended(len(exchanges))

    with _no_collection():
        began, starved = time.perf_counter_ns(), _starved_ns()

        def now_ns() -> int:
            return time.perf_counter_ns() - began

        async with asyncio.TaskGroup() as group:
            for _ in range(min(clients, len(calls))):
                group.create_task(client())
    return Sent(tuple(exchanges), _starved_ns() - starved)


async def send(
    opened: aiohttp.ClientSession, call: Call, scheduled_ns: int, now_ns: Callable[[], int]
) -> Exchange:
    """Send, and read until the server ends its answer."""
    reads: list[Read] = []
    status: int | None = None
    error: str | None = None
    sent_ns = now_ns()
    try:
        headers = {"Content-Type": "application/json"}
        async with opened.post(call.path, data=call.body, headers=headers, allow_redirects=False) as response:
            status = response.status
            async for chunk in response.content.iter_any():
                reads.append((now_ns(), chunk))
    except aiohttp.ConnectionTimeoutError:
        error = f"no connection within {CONNECT_S:.0f} s"
    except TimeoutError:
        error = f"no whole answer within {TIMEOUT_S:.0f} s"
    except aiohttp.ClientError as fault:
        error = f"the connection failed: {in_words(fault)}"
    return Exchange(call.id, scheduled_ns, sent_ns, now_ns(), tuple(reads), status, error)


def in_words(fault: Exception) -> str:
    """On one line, without what the type of the fault says already."""
    return " ".join(str(fault).split())[:300] or type(fault).__name__


@contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection in the middle of a round would be measured as the server's stall."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _starved_ns() -> int:
    try:
        return int(_SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0

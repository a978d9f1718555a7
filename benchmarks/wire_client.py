"""Is the client fit to measure a server? What it takes of a CPU, and how late it stamps what arrives.

    python benchmarks/wire_client.py

A process that speaks the wire and runs no model writes one frame a stream every 20 ms, each with the time at
which it was written. The client reads them as it reads a server. Lateness is the time from the write to the
stamp, less the shortest one seen: what is left when the wire itself is taken out.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from servegate.machine import machine_facts
from servegate.targets.wire import client
from servegate.targets.wire.frames import read_answer

GAP_S: Final = 0.02
FRAMES: Final = 250
STREAMS: Final = (1, 16, 64, 256)
_SENT: Final = re.compile(rb'"text": "([0-9]+)"')


def frame(text: str, **more: object) -> bytes:
    choice = {"index": 0, "text": text, "token_ids": [1], "logprobs": None, "finish_reason": None, **more}
    data = {"id": "cmpl-1", "object": "text_completion", "model": "none", "choices": [choice]}
    return f"data: {json.dumps(data)}\n\n".encode()


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, answered by FRAMES frames; a stream begins at a random part of the gap."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"[Cc]ontent-[Ll]ength: ([0-9]+)", head)
    body = await reader.readexactly(int(length[1])) if length else b"{}"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    due = asyncio.get_running_loop().time() + GAP_S * json.loads(body)["phase"]
    for number in range(FRAMES):
        await asyncio.sleep(due + GAP_S * number - asyncio.get_running_loop().time())
        last = {"finish_reason": "length"} if number == FRAMES - 1 else {}
        writer.write(frame(str(time.perf_counter_ns()), **last))
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(stream, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(url: str, streams: int) -> tuple[client.Sent, float]:
    calls = [
        client.Call(str(number), "v1/completions", json.dumps({"phase": number / streams}).encode())
        for number in range(streams)
    ]
    async with client.session(url, None, streams) as opened:
        began = time.process_time()
        sent = await client.closed_loop(opened, calls, streams, lambda done: None)
        return sent, time.process_time() - began


def delays(sent: client.Sent) -> Iterator[int]:
    """ns from write to stamp, up to a constant; frames that came in one read share its stamp."""
    for exchange in sent.exchanges:
        for stamp, chunk in exchange.reads:
            yield from (stamp - int(written) for written in _SENT.findall(chunk))


def row(url: str, streams: int) -> str:
    sent, cpu = asyncio.run(measure(url, streams))
    late = np.fromiter(delays(sent), dtype=np.float64)
    late = (late - late.min()) / 1e3
    began = time.process_time()
    answers = [read_answer(exchange.reads) for exchange in sent.exchanges]
    parsing = time.process_time() - began
    if any(answer.error for answer in answers) or len(late) != streams * FRAMES:
        raise SystemExit(
            f"{streams} streams: {next(filter(None, (a.error for a in answers)), 'frames lost')}"
        )
    wall = max(exchange.ended_ns for exchange in sent.exchanges) / 1e9
    cells = [
        f"{streams}",
        f"{len(late) / wall:,.0f}",
        f"{cpu / wall:.0%}",
        f"{1e6 * cpu / len(late):.0f}",
        f"{1e6 * parsing / len(late):.0f}",
        *(f"{np.percentile(late, q):,.0f}" for q in (50, 95, 99)),
        f"{sent.starved_ns / 1e9 / wall:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve())
        return 0
    machine = machine_facts()
    print(
        f"{machine['cpu']}, {machine['cores']} cores; {FRAMES} frames a stream, one each "
        f"{GAP_S * 1e3:.0f} ms.\n"
    )
    print(
        "| streams | frames/s | of a CPU | µs of CPU a frame | parsing afterwards, µs a frame "
        "| lateness p50, µs | p95 | p99 | waited for a CPU |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout is None:
            raise SystemExit("the server has no output")
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        try:
            for streams in STREAMS:
                print(row(url, streams), flush=True)
        finally:
            server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A server with vLLM's wire and arithmetic in place of a model, in a thread of this process.

Equal requests have equal answers; what a test wants otherwise it says in `Behaviour`. The forms of frames,
bodies and metrics are those that a vLLM 0.32.0 gave to the same requests (tests/data/vllm holds them).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MODEL = "toy"


@dataclass
class Behaviour:
    tokens: int = 6
    """Of a completion, where `max_tokens` allows them."""
    shift: float = 0.0
    """Added to every logprob, nat."""
    scoring_shift: float = 0.0
    """Added to the logprobs of a prompt's tokens alone, nat: they come from other kernels."""
    varies: bool = False
    """Answers depend on how many there were before."""
    key: str | None = None
    num_blocks: int = 128
    fails: dict[str, str] = field(default_factory=dict)
    """Text in a prompt -> cut, error, refuse, redirect, hang_up; interrupt: Ctrl-C comes, and no answer."""
    preempts: int = 0
    """Added to the counter by each request."""
    version: str | None = "0.32.0"
    prefix: str = ""
    """Path of the server behind a proxy."""


@dataclass
class VllmServer:
    url: str
    behaviour: Behaviour
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of all requests to generate, as they came."""
    preemptions: int = 0
    answered: int = 0
    interrupted: bool = False

    def app(self) -> web.Application:
        app, root = web.Application(middlewares=[self._keyed]), self.behaviour.prefix
        app.add_routes(
            [
                web.get(f"{root}/version", self._version),
                web.get(f"{root}/v1/models", self._models),
                web.get(f"{root}/metrics", self._metrics),
                web.post(f"{root}/v1/completions", self._generate),
                web.post(f"{root}/v1/chat/completions", self._generate),
            ]
        )
        return app

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        wanted = self.behaviour.key
        if (
            wanted
            and request.path.startswith("/v1")
            and request.headers.get("Authorization") != f"Bearer {wanted}"
        ):
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _version(self, request: web.Request) -> web.Response:
        if self.behaviour.version is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"version": self.behaviour.version})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "max_model_len": 512}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        lines = [
            "# TYPE vllm:num_preemptions_total counter",
            f'vllm:num_preemptions_total{{engine="0",model_name="{MODEL}"}} {float(self.preemptions)}',
            "# TYPE vllm:cache_config_info gauge",
            'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",'
            f'engine="0",num_gpu_blocks="{self.behaviour.num_blocks}"}} 1.0',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.preemptions += self.behaviour.preempts
        prompt_ids = _prompt_ids(body)
        if not body.get("stream"):
            return web.json_response(self._scored(prompt_ids))
        fault = next((how for text, how in self.behaviour.fails.items() if text in json.dumps(body)), None)
        if fault == "refuse":
            error = {"message": "the prompt is too long", "type": "BadRequestError", "code": 400}
            return web.json_response({"error": error}, status=400)
        if fault == "redirect":
            raise web.HTTPTemporaryRedirect(f"{request.path}?again")
        if fault == "interrupt":
            if not self.interrupted:
                self.interrupted = True
                os.kill(os.getpid(), signal.SIGINT)  # handled by the main thread, where the client is
            await asyncio.Event().wait()
        self.answered += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for frame in self._frames(body, prompt_ids, fault):
            await response.write(frame)
        if fault == "hang_up" and request.transport is not None:
            request.transport.abort()
        return response

    async def _frames(
        self, body: dict[str, Any], prompt_ids: Sequence[int], fault: str | None
    ) -> AsyncIterator[bytes]:
        chat = "messages" in body
        ids = self._completion(prompt_ids, body)
        if chat:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            yield _sse({"choices": [role], "prompt_token_ids": list(prompt_ids)})
        for position, token in enumerate(ids):
            last = position == len(ids) - 1
            if position == 2 and fault is not None:
                if fault == "error":
                    yield _sse({"error": {"message": "EngineCore died", "type": "InternalServerError"}})
                    yield b"data: [DONE]\n\n"
                return
            word = f"{token} "
            choice: dict[str, Any] = {
                "index": 0,
                "token_ids": [token],
                "finish_reason": "length" if last else None,
                "logprobs": self._logprobs([*prompt_ids, *ids[:position]], token, body, chat),
                **({"delta": {"content": word}} if chat else {"text": word}),
            }
            if not chat and position == 0:
                choice["prompt_token_ids"] = list(prompt_ids)
            yield _sse({"choices": [choice]})
            await asyncio.sleep(0)
        yield _sse(
            {"choices": [], "usage": {"prompt_tokens": len(prompt_ids), "completion_tokens": len(ids)}}
        )
        yield b"data: [DONE]\n\n"

    def _completion(self, prompt_ids: Sequence[int], body: dict[str, Any]) -> list[int]:
        count = min(self.behaviour.tokens, body["max_tokens"])
        seed = self.answered if self.behaviour.varies else 0
        return [zlib.crc32(f"{seed} {prompt_ids} {position}".encode()) % 1000 for position in range(count)]

    def _logprobs(self, context: Sequence[int], token: int, body: dict[str, Any], chat: bool) -> Any:
        if "logprobs" not in body:
            return None
        value = self._logprob(context, token)
        return {"content": [{"logprob": value}]} if chat else {"token_logprobs": [value]}

    def _logprob(self, context: Sequence[int], token: int) -> float:
        return -(zlib.crc32(f"{list(context)} {token}".encode()) % 1000 + 1) / 1000 + self.behaviour.shift

    def _scored(self, ids: Sequence[int]) -> dict[str, Any]:
        shift = self.behaviour.scoring_shift
        values = [self._logprob(ids[:i], ids[i]) + shift for i in range(1, len(ids))]
        scored = [{str(token): {"logprob": value}} for token, value in zip(ids[1:], values, strict=True)]
        return {"choices": [{"index": 0, "text": "x", "prompt_logprobs": [None, *scored]}]}


@contextmanager
def vllm_server(behaviour: Behaviour | None = None) -> Iterator[VllmServer]:
    """The server, listening on a free port until the block ends."""
    loop = asyncio.new_event_loop()
    server = VllmServer("", behaviour or Behaviour())
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}{server.behaviour.prefix}"

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _prompt_ids(body: dict[str, Any]) -> list[int]:
    if "messages" in body:
        return [ord(c) for message in body["messages"] for c in f"<{message['role']}>{message['content']}"]
    prompt = body["prompt"]
    return prompt if isinstance(prompt, list) else [ord(c) for c in prompt]


def _sse(frame: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(frame)}\n\n".encode()

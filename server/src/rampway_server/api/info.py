"""The routes that ask about the server: probes, models, info, tokenizing, flushing.

They know no generation; every answer is now-true, none is a start-up constant.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from rampway_server import __version__
from rampway_server.api.chat import shown_tools
from rampway_server.api.prompts import chat_messages, encode
from rampway_server.api.respond import max_body_bytes, read_body
from rampway_server.api.service import Service
from rampway_server.api.wire import DetokenizeBody, TokenizeBody, parse_body
from rampway_server.engine.batch import Sampling
from rampway_server.engine.request import Request as EngineRequest
from rampway_server.errors import RequestError
from rampway_server.settings import as_dict

__all__ = ["router"]

PROBE_SECONDS = 20.0
"""How long `/health_generate` waits for its token."""
PROBE_PRIORITY = -1000
"""Ahead of everybody: the probe asks whether the engine moves, not whether the queue is short."""

router = APIRouter()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service)]


@router.get("/livez")
async def livez(service: Here) -> Response:
    """Answer 200 unless the engine's loop is stuck or dead."""
    return _verdict(ok=service.is_alive, detail=service.life.value)


@router.get("/readyz")
async def readyz(service: Here) -> Response:
    """Answer 200 when loaded, warm and not draining; a full queue stays ready."""
    return _verdict(ok=service.is_ready and service.is_alive, detail=service.life.value)


@router.get("/health")
@router.get("/ping")
async def health(service: Here) -> Response:
    """Answer like `/readyz`, cheaply: no generation."""
    return _verdict(ok=service.is_ready and service.is_alive, detail=service.life.value)


@router.get("/health_generate")
async def health_generate(service: Here) -> Response:
    """Answer 200 once the engine has drawn a token for this probe; one probe at a time."""
    loaded = service.require_open()
    request = EngineRequest(
        id=service.next_id(),
        prompt=np.zeros(1, dtype=np.int32),
        sampling=Sampling(temperature=0.0),
        max_new_tokens=1,
        # A namespace no caller can have: the probe neither hits nor leaves anything of theirs.
        namespace=b"probe",
        priority=PROBE_PRIORITY,
        arrived=time.monotonic(),
    )
    async with service.probing:
        stream = loaded.bridge.open([request], counted=False)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                outputs = await stream.take()
        except TimeoutError:
            return _verdict(ok=False, detail="no token in time")
        finally:
            loaded.bridge.close([request.id])
    return _verdict(ok=outputs[0].error is None, detail=service.life.value)


@router.get("/version")
async def version() -> dict[str, str]:
    """Return the server's version."""
    return {"version": __version__}


@router.get("/v1/models")
async def models(service: Here) -> dict[str, Any]:
    """Return the one model."""
    return {"object": "list", "data": [_model_entry(service)]}


@router.get("/v1/models/{name:path}")
async def model(name: str, service: Here) -> dict[str, Any]:
    """Return the model of that name."""
    service.require_model(name)
    return _model_entry(service)


@router.get("/model_info")
async def model_info(service: Here) -> dict[str, Any]:
    """Return what is known of the model's files and sizes."""
    loaded = service.loaded
    return {
        "model_path": service.settings.model,
        "model_id": service.model_id,
        "is_generation": True,
        "context_length": loaded.context_length,
        "vocab_size": loaded.limits.vocab_size,
        **loaded.info,
    }


@router.get("/server_info")
@router.get("/get_server_info")
async def server_info(service: Here) -> dict[str, Any]:
    """Return what runs now: backend of the cache, device, limits, pages, settings."""
    loaded = service.loaded
    pages = loaded.bridge.pages
    return {
        **service.status(),
        "version": __version__,
        "revision": service.settings.revision,
        "cache_backend": loaded.cache_backend,
        "cache_fallback": loaded.cache_fallback,
        "tool_call_format": loaded.dialect.calls.name if loaded.dialect.calls else None,
        "reasoning": loaded.dialect.thinks,
        "limits": {
            "context_length": loaded.context_length,
            "num_pages": loaded.limits.num_pages,
            "page_size": loaded.limits.page_size,
            "max_total_num_tokens": (loaded.limits.num_pages - 1) * loaded.limits.page_size,
        },
        "pages": asdict(pages),
        "unfinished_requests": loaded.bridge.unfinished,
        "engine_heartbeat_age_seconds": round(loaded.engine.heartbeat_age_seconds(), 3),
        "model": loaded.info,
        "settings": as_dict(service.settings),
    }


@router.api_route("/flush_cache", methods=["GET", "POST"])
@router.post("/reset_prefix_cache")
async def flush_cache(request: Request, service: Here) -> dict[str, Any]:
    """Drop every cached page that no running request uses; needs an admin key where keys are set."""
    authorization = request.headers.get("authorization")
    service.keys.require_admin(authorization.encode() if authorization else None)
    loaded = service.require_open()
    freed = await asyncio.wrap_future(loaded.engine.clear_cache())
    return {"success": True, "freed_pages": freed}


@router.post("/tokenize")
async def tokenize(request: Request, service: Here) -> dict[str, Any]:
    """Return the token ids of a prompt or of a chat, as generation would see them."""
    loaded = service.require_open()
    body = parse_body(TokenizeBody, await _raw(request, service))
    service.require_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("body needs exactly one of prompt and messages", param="prompt")
    if body.prompt is not None:
        tokens = await encode(
            service, body.prompt, add_special_tokens=body.add_special_tokens, param="prompt"
        )
    else:
        text = loaded.tokenizer.render_chat(
            chat_messages(body.messages or ()),
            add_generation_prompt=body.add_generation_prompt,
            tools=shown_tools(body.tools) if body.tools else None,
        )
        tokens = await encode(service, text, add_special_tokens=False, param="messages")
    return {"tokens": tokens, "count": len(tokens), "max_model_len": loaded.context_length}


@router.post("/detokenize")
async def detokenize(request: Request, service: Here) -> dict[str, Any]:
    """Return the text of token ids."""
    loaded = service.require_open()
    body = parse_body(DetokenizeBody, await _raw(request, service))
    service.require_model(body.model)
    vocab_size = loaded.limits.vocab_size
    if body.tokens and max(body.tokens) >= vocab_size:
        raise RequestError(
            f"tokens hold an unknown id: got {max(body.tokens)}, need less than {vocab_size}",
            param="tokens",
        )
    return {"prompt": loaded.tokenizer.decode(body.tokens, skip_special_tokens=False)}


async def _raw(request: Request, service: Service) -> bytes:
    return await read_body(request.receive, max_body_bytes(service))


def _verdict(*, ok: bool, detail: str) -> Response:
    headers = None if ok else {"retry-after": "1", "connection": "close"}
    return JSONResponse(
        {"status": "ok" if ok else "unavailable", "detail": detail}, 200 if ok else 503, headers
    )


def _model_entry(service: Service) -> dict[str, Any]:
    return {
        "id": service.model_id,
        "object": "model",
        "created": int(service.started_at),
        "owned_by": "rampway",
        "max_model_len": service.loaded.context_length,
    }

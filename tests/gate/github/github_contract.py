"""GitHub's own description of its API, held against every request and response of the fake."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

DATA = Path(__file__).parents[2] / "data" / "github"
_HOST = "http://localhost"


@cache
def description() -> dict[str, Any]:
    return json.loads((DATA / "openapi.json").read_text())


@cache
def _api() -> OpenAPI:
    return OpenAPI.from_dict(description())


def example(name: str) -> Any:
    """A fresh copy of one of the description's own examples."""
    value = json.loads(json.dumps(description()["components"]["examples"][name]["value"]))
    return value[0] if name.endswith("-items") else value


def request_fault(method: str, path: str, query: dict[str, str], body: bytes) -> str | None:
    """What GitHub's description has against a request, or None."""
    try:
        _api().validate_request(_request(method, path, query, body))
    except OpenAPIError as error:
        return f"{method} {path}: {_said(error)}"
    return None


def response_fault(
    method: str, path: str, body: bytes, status: int, answer: bytes, headers: dict[str, str]
) -> str | None:
    """The same for a response. Statuses that the description does not know (502) are free."""
    response = MockResponse(answer, status, headers=headers, content_type="application/json")
    try:
        _api().validate_response(_request(method, path, {}, body), response)
    except OpenAPIError as error:
        if "Unknown response" in str(error) and status >= 400:
            return None
        return f"{method} {path} -> {status}: {_said(error)}"
    return None


def _request(method: str, path: str, query: dict[str, str], body: bytes) -> MockRequest:
    return MockRequest(
        _HOST, method.lower(), path, args=query, data=body or None, content_type="application/json"
    )


def _said(error: OpenAPIError) -> str:
    cause = error.__cause__
    faults = [str(fault.message) for fault in getattr(cause, "schema_errors", ())]
    return "; ".join(faults)[:500] or f"{type(error).__name__}: {error}"

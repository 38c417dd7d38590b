"""The pages over HTTP, for one person on this machine: 127.0.0.1 only, with a token, and nothing that changes a run."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rlinf.base.errors import UserError
from rlinf.base.redaction import redacted
from rlinf.report.live.library import Library
from rlinf.report.page import embedded, in_utf8, render

_COOKIE = "rlinf"
_PAGES = ("/", "/run", "/sweep", "/recording")
_HOSTS = ("127.0.0.1", "localhost")
# The pages hold their own scripts; nothing is loaded from, or sent to, anywhere else.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "media-src data:; connect-src 'self'; form-action 'none'; base-uri 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": _POLICY,
}

View = tuple[str, Callable[[], dict[str, Any]], str]
"""Title of a page, what makes its payload, and the stamp of what it shows."""
_EVERY_S = 3.0
"""How often pages poll."""


def make_app(library: Library, token: str) -> Starlette:
    """``token``: a client with it in the address gets a cookie for the pages."""

    def page(title: str, payload: dict[str, Any], stamp: str, address: str) -> Response:
        live = {"url": address, "every_s": _EVERY_S, "stamp": stamp}
        return Response(render(title, {**payload, "live": live}), media_type="text/html")

    def fresh(request: Request, stamp: str, make: Callable[[], dict[str, Any]]) -> Response:
        """Return the payload, or nothing if the requesting page has it."""
        if request.query_params.get("stamp") == stamp:
            return Response(status_code=204)
        return Response(embedded({**make(), "stamp": stamp}), media_type="application/json")

    def index(request: Request) -> Response:
        result = library.index()
        return page("Runs", result, _digest(result), "/api/index")

    def api_index(request: Request) -> Response:
        result = library.index()
        return fresh(request, _digest(result), lambda: result)

    def run_view(names: list[str]) -> View:
        title = " · ".join(name.rpartition("/")[2] for name in names)
        return title, lambda: library.run_page(names), library.stamp(names)

    def sweep_view(names: list[str]) -> View:
        name = names[0] if names else ""
        return f"Sweep {name}", lambda: library.sweep_page(name), library.sweep_stamp(name)

    def recording_view(names: list[str]) -> View:
        name = names[0] if names else ""
        return f"Episodes of {name}", lambda: library.recording_page(name), library.recording_stamp(name)

    def page_of(view: Callable[[list[str]], View], path: str, request: Request) -> Response:
        title, make, stamp = view(request.query_params.getlist("id"))
        return page(title, make(), stamp, f"/api{path}?{request.url.query}")

    def newest_of(view: Callable[[list[str]], View], request: Request) -> Response:
        _, make, stamp = view(request.query_params.getlist("id"))
        return fresh(request, stamp, make)

    async def not_there(request: Request, error: Exception) -> Response:
        return PlainTextResponse(in_utf8(redacted(str(error))), status_code=404)

    views = {"/run": run_view, "/sweep": sweep_view, "/recording": recording_view}
    pages: dict[str, Callable[[Request], Response]] = {
        "/": index,
        "/api/index": api_index,
        **{path: partial(page_of, view, path) for path, view in views.items()},
        **{f"/api{path}": partial(newest_of, view) for path, view in views.items()},
    }
    return Starlette(
        routes=[Route(path, endpoint) for path, endpoint in pages.items()],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(token))],
        exception_handlers={UserError: not_there},
    )


def _damaged(request: Request, error: Exception) -> Response:
    """Report valid files of another shape than a run writes."""
    names = ", ".join(request.query_params.getlist("id")) or "this page"
    words = f"{names} can't be shown ({type(error).__name__}: {error}): a file in it is damaged"
    return PlainTextResponse(in_utf8(redacted(words)), status_code=500)


def _digest(payload: dict[str, Any]) -> str:
    return hashlib.sha256(embedded(payload).encode()).hexdigest()


def _guard(
    token: str,
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """Lets in who has the token; refuses names of other hosts, which a page elsewhere could point at this machine."""

    async def dispatch(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.url.hostname not in _HOSTS:
            return PlainTextResponse("this server answers to 127.0.0.1 only", status_code=403)
        query_token = request.query_params.get("token")
        if query_token is not None and secrets.compare_digest(query_token, token):
            # Without the token, which would stay in the browser's history.
            requested = request.url.remove_query_params("token")
            path = requested.path if requested.path in _PAGES else "/"
            entry = RedirectResponse(f"{path}?{requested.query}".rstrip("?"), headers=_HEADERS)
            entry.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
            return entry
        if not secrets.compare_digest(request.cookies.get(_COOKIE, ""), token):
            return PlainTextResponse("open the address that `rlinf ui` printed: it has the token", status_code=403)
        try:
            response = await answer(request)
        except Exception as error:  # starlette would print it in the terminal after it has answered
            response = _damaged(request, error)
        response.headers.update(_HEADERS)
        return response

    return dispatch

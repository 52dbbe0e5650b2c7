"""Serve Prefect's server so that it answers only under this machine's own host names.

It has no authentication. Otherwise a browser on this machine could reach it under another site's name that points at
this machine (DNS rebinding), and pages of that site would have the server's origin.
"""

from starlette.middleware.trustedhost import TrustedHostMiddleware

NAMES = ("127.0.0.1", "localhost")


def create_app() -> TrustedHostMiddleware:
    """The application for uvicorn."""
    from prefect.server.api.server import create_app as create_prefect

    return TrustedHostMiddleware(create_prefect(), NAMES, www_redirect=False)

"""Prefect's server as it is served here: answered only by the names that this machine calls itself.

It asks nobody who they are, so a browser that is here must not reach it under another site's name that was pointed at
this machine (DNS rebinding), whose pages would then be of the same origin as the server's.
"""

from starlette.middleware.trustedhost import TrustedHostMiddleware

NAMES = ("127.0.0.1", "localhost")


def create_app() -> TrustedHostMiddleware:
    """The application for uvicorn."""
    from prefect.server.api.server import create_app as create_prefect

    return TrustedHostMiddleware(create_prefect(), NAMES, www_redirect=False)

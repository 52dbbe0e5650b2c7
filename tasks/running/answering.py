"""Check whether a server answers, without Prefect, which takes a second to import and a minute to give up."""

import ssl
import urllib.error
import urllib.request

PATIENCE_S = 5.0


def answers(url: str) -> bool:
    """Whether a server works at an API's address."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S) as answer:
            return answer.status == 200
    except (OSError, ValueError):
        return False


def is_there(url: str) -> bool:
    """Whether an API's address answers; a gateway's error does not count, an authorization or TLS error does."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLError)
    except (OSError, ValueError):
        return False

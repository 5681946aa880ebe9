"""One page over HTTP, with a moment between the request's leaving and its answer.

Owns one GET with the redirects that it leads to. Does not decide what a page is good for.
"""

import http.client
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

MAX_REDIRECTS = 5
MAX_PAGE_BYTES = 8 * 1024 * 1024


class FetchError(Exception):
    """The page couldn't be had; says why in a sentence."""


def fetch(url: str, worker: str, on_sent: Callable[[], None], timeout_s: float = 60.0) -> tuple[int, bytes]:
    """GETs `url` and returns status and body; calls `on_sent` once, when the first request is on its way.

    Follows up to five redirects; the status is the last answer's. Raises `FetchError` where no answer can be had.
    """
    told = False
    at = url
    for _ in range(MAX_REDIRECTS + 1):
        connection = _connection(at, timeout_s)
        try:
            connection.request("GET", _target(at), headers={"X-Worker": worker, "User-Agent": "dhp-demo"})
            if not told:
                told = True
                on_sent()
            response = connection.getresponse()
            body = response.read(MAX_PAGE_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(f"{at} gives no answer ({error or type(error).__name__}): check the address.") from error
        finally:
            connection.close()
        if len(body) > MAX_PAGE_BYTES:
            raise FetchError(f"{at} is longer than {MAX_PAGE_BYTES} bytes: leave it out.")
        location = response.getheader("Location")
        if response.status not in (301, 302, 303, 307, 308) or location is None:
            return response.status, body
        at = urljoin(at, location)
    raise FetchError(f"{url} leads to more than {MAX_REDIRECTS} redirects: give the address that they end at.")


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    try:
        if parts.scheme == "http" and parts.hostname:
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        if parts.scheme == "https" and parts.hostname:
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s)
    except ValueError:
        pass
    raise FetchError(f"{url} is no http or https address.")


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

"""Tokens that contain a planted secret, and functions for ``oauth.callback`` that make them."""

from __future__ import annotations

import base64
import json
import time

from token_functions import unsecured_jwt

_PLANTED = {"jti": "planted-hunter2-token"}

#: what every token contains: the first claim, in its encoding
TRACE = base64.urlsafe_b64encode(json.dumps(_PLANTED)[:-1].encode()).decode()[:36]


def token() -> str:
    """For Kafka's validator for tests, and for msk_iam, which looks for a signed URL in it."""
    now = time.time()
    signed_at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    url = f"https://kafka/?X-Amz-Date={signed_at}&X-Amz-Expires=600&"
    claims = {
        **_PLANTED,
        "sub": "u",
        "iat": int(now),
        "exp": int(now) + 600,
        "url": url,
        "fill": "",
    }
    # msk_iam decodes the whole text, so that no part may need padding.
    claims["fill"] = "x" * (-len(json.dumps(claims)) % 3)
    return unsecured_jwt(claims)


def made(_: str) -> tuple[str, float]:
    return token(), time.time() + 600


def rejected(_: str) -> tuple[str, float]:
    """What brokers do not accept."""
    return unsecured_jwt({**_PLANTED, "sub": "", "iat": 0, "exp": 1}), time.time() + 60


def malformed(_: str) -> tuple[str, float]:
    return f"{token()}\0", time.time() + 60


def fails(configuration: str) -> None:
    raise RuntimeError(f"no token for {configuration}")

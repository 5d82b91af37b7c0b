"""Functions for the option ``oauth.callback``; their configuration is JSON.

``sub``: the principal. ``seconds``: how long a token lasts. ``log``: a file that gets a line for
each call.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

#: for brokers that accept tokens without a signature, passwords too
BROKER_SETTINGS = {
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.client.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security."
    "oauthbearer.OAuthBearerLoginModule required;",
}


def unsecured(configuration: str) -> tuple[str, float, str]:
    """A token without a signature, which Kafka's validator for tests accepts."""
    settings = json.loads(configuration)
    with Path(settings["log"]).open("a") as log:
        log.write("call\n")
    now = time.time()
    expiry = now + settings["seconds"]
    return (
        unsecured_jwt({"sub": settings["sub"], "iat": now, "exp": expiry}),
        expiry,
        settings["sub"],
    )


def unsecured_jwt(claims: dict[str, Any]) -> str:
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def rejected(_: str) -> tuple[str, float]:
    """What brokers do not accept."""
    return unsecured_jwt({"sub": "", "iat": 0, "exp": 1}), time.time() + 600


def rejected_at_first(configuration: str) -> tuple[str, float] | tuple[str, float, str]:
    """Like ``unsecured``, except that brokers do not accept what the first call returns."""
    is_first = not Path(json.loads(configuration)["log"]).exists()
    token = unsecured(configuration)
    return rejected(configuration) if is_first else token


def ends_early_at_first(configuration: str) -> tuple[str, float, str]:
    """Like ``unsecured``, but the first token ends after ``first_seconds``, unlike it claims."""
    settings = json.loads(configuration)
    is_first = not Path(settings["log"]).exists()
    token, expiry, principal = unsecured(configuration)
    if is_first:
        now = time.time()
        token = unsecured_jwt(
            {"sub": principal, "iat": now, "exp": now + settings["first_seconds"]}
        )
    return token, expiry, principal


def fails(_: str) -> None:
    raise RuntimeError("the token service is closed")


def hangs(_: str) -> None:
    time.sleep(3600)

"""Calls the user's function for OAUTHBEARER tokens, and passes its tokens to the client."""

from __future__ import annotations

import importlib
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.librdkafka.client import Client

_CALL_SECONDS = 10.0
# Seconds since the epoch stay below this for 3,000 years; milliseconds passed it in 1973.
_MOST_SECONDS = 1e11
# What the protocol can carry; librdkafka's own message would quote the token.
_VALUE = re.compile(r"[ \t\r\n\x21-\x7e]+")


@dataclass(frozen=True)
class Token:
    """A token, secret, and when it expires, in ms since the epoch."""

    value: str = field(repr=False)
    expires_at_ms: int
    principal: str
    extensions: Mapping[str, str]


class TokenFunction:
    """The function of the option ``oauth.callback``, called as confluent_kafka calls ``oauth_cb``.

    It gets the setting ``sasl.oauthbearer.config``, and returns the token and its expiry in seconds
    since the epoch, and perhaps the principal and a dict of SASL extensions. It may take long or
    hang, so it runs in a daemon thread, for which nobody waits. One call runs at a time.
    """

    def __init__(self, settings: ClientSettings, clock: Clock = time.monotonic) -> None:
        self._name = settings.oauth_callback
        self._configuration = settings.get("sasl.oauthbearer.config", "")
        self._clock = clock
        self._thread: threading.Thread | None = None
        #: of the wait for the call, while a token is needed
        self._deadline: Deadline | None = None
        self._outcome: Token | str = ""

    def call(self) -> None:
        """A token is needed. If an earlier call still hangs, its token will do."""
        self._deadline = Deadline(_CALL_SECONDS, self._clock)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="oauth.callback", daemon=True)
            self._thread.start()

    @property
    def is_pending(self) -> bool:
        """Whether a call has an outcome that is still to be passed on."""
        return self._deadline is not None

    def pass_on(self, client: Client) -> None:
        """Give the client what came of the call, if that is known by now: a token, or why not."""
        if self._deadline is None:
            return
        if self._thread is not None and not self._thread.is_alive():
            self._thread, outcome = None, self._outcome
        elif self._deadline.expired:
            outcome = f"{self._option} has not returned after {_CALL_SECONDS:g} s"
        else:
            return
        self._deadline = None
        if isinstance(outcome, Token):
            client.set_token(
                outcome.value, outcome.expires_at_ms, outcome.principal, outcome.extensions
            )
        else:
            client.fail_token(outcome)

    def fetch(self, seconds: float) -> Token | str:
        """Call the function, and wait that long: a token, or why there is none."""
        self.call()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return f"{self._option} has not returned after {seconds:.1f} s"
        return self._outcome

    def problem(self, seconds: float) -> str:
        """Call the function, and wait that long: why it gives no token, or ""."""
        outcome = self.fetch(seconds)
        return "" if isinstance(outcome, Token) else outcome

    @property
    def _option(self) -> str:
        return f"oauth.callback={self._name}"

    def _run(self) -> None:
        try:
            returned = resolve(self._name)(str(self._configuration))
        except Exception as error:  # noqa: BLE001 - the user's code; the client is told
            text = str(error).partition("\n")[0]
            if self._configuration:
                text = text.replace(self._configuration, repr(Secret(self._configuration)))
            self._outcome = f"{self._option} raised {type(error).__name__}: {text}"
            return
        try:
            self._outcome = _token(returned)
        except ValueError as error:
            self._outcome = f"{self._option}: {error}"


def resolve(name: str) -> Callable[[str], Any]:
    """The function ``package.module:function``; raises ImportError or AttributeError."""
    module, _, function = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _token(returned: Any) -> Token:
    """Raises ValueError with a sentence that does not show the token."""
    if not isinstance(returned, tuple) or not 2 <= len(returned) <= 4:
        raise ValueError(
            "it has to return the token and its expiry in seconds since the epoch, and may add the "
            f"principal and a dict of extensions; it returned a {type(returned).__name__}"
        )
    value, expiry = returned[:2]
    principal = returned[2] if len(returned) > 2 else ""
    extensions = returned[3] if len(returned) > 3 else {}
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError("the token is not a text of printable ASCII characters")
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)) or math.isnan(expiry):
        raise ValueError("the expiry is not a number of seconds since the epoch")
    if expiry >= _MOST_SECONDS:
        raise ValueError("the expiry is in milliseconds; return seconds since the epoch")
    if not isinstance(extensions, dict):
        raise ValueError("the extensions are not a dict")  # noqa: TRY004 - one kind of error
    texts = {str(name): str(text) for name, text in extensions.items()}
    return Token(Secret(value), int(expiry * 1000), str(principal or ""), texts)

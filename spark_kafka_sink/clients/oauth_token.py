"""[both] Calls the user's function for OAUTHBEARER tokens, and passes its tokens to the client."""

from __future__ import annotations

import importlib
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.logins import AWS_MSK_IAM, MSK_IAM_CALLBACK
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import AuthenticationFailed, LibraryUnavailable, TokenUnavailable
from spark_kafka_sink.librdkafka.protocol import TokenClient
from spark_kafka_sink.secret import Secret, hide, redacted
from spark_kafka_sink.threads import per_process, start_call

_CALL_SECONDS = 10.0
# Between two tokens that replace rejected ones.
_REPLACEMENT_SECONDS = 5.0
# librdkafka requests a new token after this fraction of a token's lifetime.
_SHARED_LIFE = 0.8
# Seconds since the epoch stay below this for 3,000 years; milliseconds passed it in 1973.
_MAX_SECONDS = 1e11
# What the protocol can carry; librdkafka's own message would quote the token.
_VALUE = re.compile(r"[ \t\r\n\x21-\x7e]+")
# Of a configuration, whose form is the user's. Shorter parts would make errors unreadable.
_SEPARATORS = re.compile(r"""[\s,;=&:{}"']+""")
_MIN_PART = 6


@dataclass(frozen=True)
class Token:
    """A token, secret, and when it expires, in ms since the epoch."""

    value: str = field(repr=False)
    expires_at_ms: int
    principal: str
    extensions: Mapping[str, str]


class TokenCall:
    """One call of the option's function, in a daemon thread; every wait for it is bounded."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._name = settings.oauth_callback
        self._configuration = settings.get("sasl.oauthbearer.config", "")
        #: what the user has set
        self.option = token_option(settings)
        self._clock = clock
        #: until then, clients that need a token wait for this call
        self._pending_until = Deadline(_CALL_SECONDS, clock)
        #: until then, other clients get its token too
        self._shared_until: Deadline | None = None
        #: the brokers rejected the token
        self.is_discarded = False
        self._call = start_call(self._run, "oauth.callback")

    @property
    def outcome(self) -> Token | AuthenticationFailed | None:
        """None while the function runs; then its token, or why there is none."""
        return self._call.result() if self._call.done() else None

    @property
    def is_for_others(self) -> bool:
        """Whether a client that needs a token can use this call's, instead of another call."""
        if self.outcome is None:
            return not self._pending_until.expired
        is_shared = self._shared_until is not None and not self._shared_until.expired
        return is_shared and not self.is_discarded

    def join(self, seconds: float) -> Token | AuthenticationFailed:
        """Wait that long for the outcome."""
        wait([self._call], seconds)
        late = f"{self.option} has not returned after {seconds:.1f} s"
        return self.outcome or TokenUnavailable(late)

    def _run(self) -> Token | AuthenticationFailed:
        function = None
        try:
            function = _resolve(self._name)
            returned = function(str(self._configuration))
        except BaseException as error:  # noqa: BLE001 - the user's code; the client gets the error
            text = _without_secrets(str(error).partition("\n")[0], str(self._configuration))
            # What cannot be imported, such as AWS's signer, has to be installed.
            is_permanent = function is None or isinstance(error, (ImportError, LibraryUnavailable))
            kind = AuthenticationFailed if is_permanent else TokenUnavailable
            return kind(f"{self.option} raised {type(error).__name__}: {text}")
        try:
            token = _token(returned)
        except Exception as error:  # noqa: BLE001 - also of what the user's code has returned
            return AuthenticationFailed(f"{self.option}: {error}")
        life_seconds = token.expires_at_ms / 1000 - time.time()
        self._shared_until = Deadline(max(0.0, _SHARED_LIFE * life_seconds), self._clock)
        return token


class LatestCalls:
    """The latest call of each function and configuration; used by all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _calls
        self._calls: dict[tuple[str, str], TokenCall] = {}

    def call(
        self,
        settings: ClientSettings,
        clock: Clock,
        received: TokenCall | None,
        pending: TokenCall | None,
    ) -> TokenCall:
        """The call that a client waits for: the latest one if it is usable, or else a new one.

        ``received``: the call whose token, or failure, the client has received. ``pending``: a call
        that had no outcome in time.
        """
        key = settings.oauth_callback, settings.get("sasl.oauthbearer.config", "")
        with self._lock:
            latest = self._calls.get(key)
            if latest is not None and latest is not received and latest.is_for_others:
                return latest
            if pending is not None:
                return pending
            self._calls[key] = TokenCall(settings, clock)
            return self._calls[key]


class TokenFunction:
    """The function of the option ``oauth.callback``, as one client needs it.

    It is called as confluent_kafka calls ``oauth_cb``: it gets ``sasl.oauthbearer.config``, and
    returns the token and its expiry in seconds since the epoch, and perhaps the principal and a
    dict of SASL extensions. It may be slow or hang.

    Clients of a process share calls and tokens, except for calls that hang and tokens that brokers
    reject. Used by one thread at a time.
    """

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock = time.monotonic,
        latest_calls: LatestCalls | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._latest_calls = latest_calls or _latest_calls_here()
        #: of the wait for the call, while a token is needed
        self._deadline: Deadline | None = None
        self._pending: TokenCall | None = None
        #: whose token, or failure, the client has received
        self._received: TokenCall | None = None
        #: why the client has received no token, but a failure
        self.failure: AuthenticationFailed | None = None
        #: brokers reject its token, and it is not replaced yet
        self._is_rejected = False
        self._next_replacement = Deadline(0.0, clock)

    def call(self) -> None:
        """Request a new token for the client.

        If an earlier call still hangs, its token is used.
        """
        self._is_rejected = False
        self._deadline = Deadline(_CALL_SECONDS, self._clock)
        self._pending = self._latest_calls.call(
            self._settings, self._clock, self._received, self._pending
        )

    @property
    def is_pending(self) -> bool:
        """Whether a call has an outcome that is still to be passed on."""
        return self._deadline is not None

    def pass_on(self, client: TokenClient) -> None:
        """Pass the outcome of the call, if there is one, to the client: a token, or an error."""
        self._replace_if_due()
        if self._deadline is None or self._pending is None:
            return
        outcome = self._pending.outcome
        if outcome is not None:
            self._received, self._pending = self._pending, None
        elif self._deadline.expired:
            late = f"{self._pending.option} has not returned after {_CALL_SECONDS:g} s"
            outcome = TokenUnavailable(late)
        else:
            return
        self._deadline = None
        self.failure = None
        if isinstance(outcome, Token):
            client.set_token(
                outcome.value, outcome.expires_at_ms, outcome.principal, outcome.extensions
            )
        else:
            self.failure = outcome
            client.fail_token(str(outcome))

    def discard(self) -> None:
        """Stop sharing the client's token, because brokers reject it."""
        if self._received is not None:
            self._received.is_discarded = True

    def replace(self) -> None:
        """Replace the client's token, because brokers reject it: at once, but not too often."""
        self.discard()
        if not self.is_pending:  # otherwise its successor is on the way
            self._is_rejected = self._received is not None
            self._replace_if_due()

    def _replace_if_due(self) -> None:
        if self._is_rejected and self._next_replacement.expired:
            self._next_replacement = Deadline(_REPLACEMENT_SECONDS, self._clock)
            self.call()


@per_process
def _latest_calls_here() -> LatestCalls:
    return LatestCalls()


def shared_token(
    settings: ClientSettings, _configuration: str = ""
) -> tuple[str, float, str, dict[str, str]]:
    """The token that the clients of this process share, as confluent_kafka's ``oauth_cb`` gives it.

    Raises AuthenticationFailed if there is none within 10 s.
    """
    call = _latest_calls_here().call(settings, time.monotonic, None, None)
    outcome = call.join(_CALL_SECONDS)
    if isinstance(outcome, AuthenticationFailed):
        raise outcome
    seconds = outcome.expires_at_ms / 1000
    return outcome.value, seconds, outcome.principal, dict(outcome.extensions)


def token_option(settings: ClientSettings) -> str:
    """What the user has set so that a function gives tokens."""
    if settings.oauth_callback == MSK_IAM_CALLBACK:
        return f"kafka.sasl.mechanism={AWS_MSK_IAM}"
    return f"oauth.callback={settings.oauth_callback}"


def token_remedy(settings: ClientSettings) -> str:
    """What to do if the function gives no token."""
    is_msk_iam = settings.oauth_callback == MSK_IAM_CALLBACK
    return (Advice.NO_TOKEN_OF_MSK_IAM if is_msk_iam else Advice.NO_TOKEN_FROM_CALLBACK).remedy


def _resolve(name: str) -> Callable[[str], Any]:
    """The function ``package.module:function``; raises ImportError or AttributeError."""
    module, _, function = name.partition(":")
    attribute: Any = importlib.import_module(module)
    for part in function.split("."):
        attribute = getattr(attribute, part)
    return attribute  # type: ignore[no-any-return]


def _without_secrets(text: str, configuration: str) -> str:
    """``text`` without secrets in URLs, the configuration and its parts, also as URLs have them."""
    parts = {part for part in _SEPARATORS.split(configuration) if len(part) >= _MIN_PART}
    parts.add(configuration)
    return hide(redacted(text), parts | {quote(part, safe="") for part in parts})


def _token(returned: Any) -> Token:
    """Raises ValueError with a sentence that does not show the token."""
    if not isinstance(returned, tuple) or not 2 <= len(returned) <= 4:
        raise ValueError(
            "it has to return the token and its expiry in seconds since the epoch, and optionally "
            f"the principal and a dict of extensions; it returned a {type(returned).__name__}"
        )
    value, expiry = returned[:2]
    principal = returned[2] if len(returned) > 2 else ""
    extensions = returned[3] if len(returned) > 3 else {}
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError("the token is not a string of printable ASCII characters")
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)) or math.isnan(expiry):
        raise ValueError("the expiry is not a number of seconds since the epoch")
    if expiry >= _MAX_SECONDS:
        raise ValueError("the expiry is in milliseconds; return seconds since the epoch")
    if not isinstance(extensions, dict):
        raise ValueError("the extensions are not a dict")  # noqa: TRY004 - one kind of error
    texts = {str(name): str(text) for name, text in extensions.items()}
    return Token(Secret(value), int(expiry * 1000), str(principal or ""), texts)

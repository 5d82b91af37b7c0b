"""[both] Session: a client and its login; the one loop that reads a client's events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from spark_kafka_sink.advice import (
    Advice,
    advice_on_kerberos,
    advice_on_text,
    proxy_variable,
    settings_error,
)
from spark_kafka_sink.clients.local_files import add_local_files, file_versions
from spark_kafka_sink.clients.oauth_token import TokenFunction, token_option, token_remedy
from spark_kafka_sink.config.kerberos import is_kerberos
from spark_kafka_sink.config.logins import fetches_tokens
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import AuthenticationFailed, TokenUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    Event,
    TokenNeeded,
    TokenRequestFailed,
)
from spark_kafka_sink.librdkafka.protocol import EventClient
from spark_kafka_sink.process_limits import thread_limit_reached
from spark_kafka_sink.secret import redacted

_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - librdkafka's text
# What the system's libraries say.
_GSSAPI = re.compile("GSSAPI (Error|module)|no mechanism available")
_REJECTED = "the brokers reject the last one"
# librdkafka's text if the connection ends before the broker has seen the login.
_LOST = re.compile(r"handshake failed: Local: (Broker transport failure|Timed out)")
_ANSWERED = 200
# HTTP: the request timed out, or there are too many.
_BUSY = (408, 429)
# librdkafka reads the answers to a request and to its repetitions as one text, without a token if
# the endpoint failed at first.
_SEVERAL_ANSWERS = re.compile(r'with "access_token" field|JSON response at')
# librdkafka fetches another token 10 s after a failure, or after the next failure.
_FETCH_SECONDS = 15.0

ClientT = TypeVar("ClientT", bound=EventClient)


class Session(Generic[ClientT]):
    """Used by one thread at a time, like its client.

    ``new_client``: Client, or a callable with the same arguments. Raises InvalidOption if
    librdkafka rejects the settings, LibraryUnavailable if its OpenSSL cannot work on this machine,
    AuthenticationFailed if there is no Kerberos ticket, and LimitReached.
    """

    def __init__(
        self,
        new_client: Callable[..., ClientT],
        settings: ClientSettings,
        clock: Clock = time.monotonic,
    ) -> None:
        # Before the client reads them: a file that is replaced meanwhile counts as replaced.
        self._file_versions = file_versions(settings)
        local = add_local_files(settings)
        if is_kerberos(settings):
            # Here, because it imports what other logins do not need.
            from spark_kafka_sink.clients.kerberos import add_ticket

            local = add_ticket(local)
        try:
            self.client = new_client(local, asks_for_tokens=bool(settings.oauth_callback))
        except ValueError as error:
            raise settings_error(str(error)) from None
        self._settings = settings
        self._tokens = TokenFunction(settings, clock)
        #: of the latest answer of a token endpoint, as in TokenRequestFailed
        self._answer_status: int | None = _ANSWERED
        self._has_asked_for_token = not settings.oauth_callback
        #: whether the client itself fetches tokens, from a token endpoint
        self.fetches_tokens = fetches_tokens(settings)
        self._next_fetch = Deadline(0.0, clock)
        self._clock = clock

    def poll(self, seconds: float = 0.0) -> Iterator[Event]:
        """Yield the client's events, waiting that long for the first, except those of the login.

        Also passes tokens to the client. The caller must exhaust the iterator.
        """
        for event in self.client.poll(seconds):
            if isinstance(event, TokenNeeded):
                self._tokens.call()
                self._has_asked_for_token = True
                continue
            if isinstance(event, TokenRequestFailed):
                self._answer_status = event.status
                continue
            if isinstance(event, BrokerError):
                if event.text.endswith(_REJECTED):
                    continue
                if _rejects_login(event):
                    self._replace_token()
            yield event
        self._tokens.pass_on(self.client)

    def _replace_token(self) -> None:
        self._tokens.replace()
        if self.fetches_tokens and self._next_fetch.expired:
            # The client would fetch the next one only when 80 % of the token's life is over.
            self._next_fetch = Deadline(_FETCH_SECONDS, self._clock)
            self.client.fail_token(_REJECTED)

    @property
    def is_outdated(self) -> bool:
        """Whether a file of its settings, such as a certificate, was replaced since it was read."""
        return file_versions(self._settings) != self._file_versions

    @property
    def awaits_token(self) -> bool:
        """Whether the client still waits for a token, its first or one that it has requested."""
        return not self._has_asked_for_token or self._tokens.is_pending

    def login_error(self, error: BrokerError) -> AuthenticationFailed:
        """What to raise for the client's latest error if it ``concerns_login``."""
        kind, advice = AuthenticationFailed, Advice.NO_TOKEN
        if _GSSAPI.search(error.text):
            from spark_kafka_sink.clients.kerberos import kerberos_error

            kind = type(kerberos_error("", error.text))
        if error.text.startswith(_NO_TOKEN):
            if self._settings.oauth_callback:
                failure = self._tokens.failure
                kind = AuthenticationFailed if failure is None else type(failure)
            elif _may_have_token_later(self._answer_status, error.text):
                kind, advice = TokenUnavailable, Advice.TOKEN_ENDPOINT_IS_UNAVAILABLE
        return kind(*login_failure(error.text, self._settings, advice))

    def late_token_error(self, waited: str) -> TokenUnavailable:
        """What to raise if there was no token in time; ``waited``: how long."""
        source = token_option(self._settings) if self._settings.oauth_callback else "it"
        text = f"{_NO_TOKEN}: {source} has given none within {waited}"
        advice = Advice.TOKEN_ENDPOINT_IS_UNAVAILABLE
        return TokenUnavailable(*login_failure(text, self._settings, advice))

    def discard_token(self) -> None:
        """Stop sharing this client's token with other clients."""
        self._tokens.discard()


def _may_have_token_later(status: int | None, text: str) -> bool:
    """Whether a token endpoint that gave no token may give one later.

    ``status``: as in TokenRequestFailed, or _ANSWERED. Long answers are pages of proxies: the
    endpoint's own errors are short.
    """
    if status is None or status in _BUSY or not 200 <= status < 500:
        return True
    return status < 400 and bool(_SEVERAL_ANSWERS.search(text))


def concerns_login(code: int, text: str) -> bool:
    """Whether an error is a failed login, and not a connection that was lost on the way to it."""
    return code == ErrorCode.AUTHENTICATION and not _LOST.search(text)


def _rejects_login(error: BrokerError) -> bool:
    return concerns_login(error.code, error.text) and not error.text.startswith(_NO_TOKEN)


def explained(error: BrokerError, settings: ClientSettings) -> str:
    """The text of an error between client and brokers, and what to do about a failed login."""
    if error.code == ErrorCode.CRIT_SYS_RESOURCE:
        return str(thread_limit_reached(error.text))
    if not concerns_login(error.code, error.text):
        return error.text
    return ". ".join(login_failure(error.text, settings))


def login_failure(
    text: str, settings: ClientSettings, default: Advice = Advice.NO_TOKEN
) -> tuple[str, str]:
    """Why the login has failed, and what to do, from the client's ``text``.

    ``default``: for a token endpoint whose text says nothing else.
    """
    servers = settings["bootstrap.servers"]
    if _GSSAPI.search(text):
        problem = f"no Kerberos login at the brokers at {servers}: {text}"
        return problem, advice_on_kerberos(text).remedy
    if not text.startswith(_NO_TOKEN):
        advice = Advice.TICKET_REJECTED if is_kerberos(settings) else Advice.LOGIN_REJECTED
        return f"the brokers at {servers} reject the login: {text}", advice.remedy
    reason = text.removeprefix(_NO_TOKEN)  # no broker was asked
    if settings.oauth_callback:
        return f"no token for the login at {servers}{reason}", token_remedy(settings)
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "its endpoint")
    # Its HTTP library, curl, reads that one only in lower case.
    variable = proxy_variable(url).replace("HTTP_PROXY", "")
    proxy = f" (through the proxy of the environment variable {variable})" if variable else ""
    problem = redacted(f"no token for the login at {servers} from {url}{proxy}{reason}")
    return problem, advice_on_text(problem, default).remedy

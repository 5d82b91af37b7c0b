"""Options of public programs: Spark's own sink and Java's producer judge each, and so does ours.

The options, JAAS strings and dictionaries in ``tests/corpus`` are from public programs and
configuration files, without secrets and names of machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from java_classes import JavaClasses, java_classes, newest_class_path, spark_class_path
from public_options import REQUIRED, answer, dictionaries, jaas_strings, pairs

from spark_kafka_sink.config.client_settings import IGNORED, REJECTED, known_names
from spark_kafka_sink.config.option_table import OPTIONS
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.config.unknown_options import owner

# Each of hundreds of producers in Java takes some 20 ms on an idle machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_HERE = "refused here: kafka."
#: Differences that we want: what a difference looks like, and why.
WANTED = {
    # --- what changes what is written, where, or by whom, and cannot be had
    rf"^{_HERE}(partitioner.class|interceptor.classes) is not supported": "it would place "
    "records elsewhere, or change them",
    rf"^{_HERE}(config.providers|transactional.id) is not supported": "there is another way to "
    "have it, which the message names",
    rf"^{_HERE}(security.providers|ssl.provider|ssl.cipher.suites) is not supported": "rules of a "
    "company that OpenSSL would not keep",
    rf"^{_HERE}sasl.login.class is not supported": "a login in Java",
    rf"^{_HERE}sasl.(login|client).callback.handler.class(=\S+)? is not supported": "a login in "
    "Java",
    r"^refused here: databricks.serviceCredential": "Databricks' login; Spark's own sink would "
    "fail at the login",
    r"^refused here: .*Kerberos": "librdkafka as confluent-kafka builds it has no Kerberos",
    # --- slips
    rf"^{_HERE}(producer\.\S+|lingers.ms|max.inflight.requests.per.connection): .*did you mean "
    "kafka": "Java ignores it, but the user meant a setting of the producer's",
    # --- what only tunes Java
    r"^ignored here: kafka\.(metric|metrics|auto\.include\.jmx)\.": "there is no JMX here",
    r"^ignored here: kafka\.ssl\.(enabled\.protocols|keymanager\.algorithm|protocol)=": "of Java's",
    r"^ignored here: kafka\.sasl\.(kerberos|login)\.": "Java's login",
    r"^ignored here: kafka\.sasl\.oauthbearer\.(jwks|clock|scope|expected)\.": "for brokers, or "
    "for a class in Java that checks its own tokens",
    r"^ignored here: kafka\.transaction\.timeout\.ms=": "there are no transactions",
    r"^ignored here: kafka\.compression\.\w+\.level=": "the level of a codec that is not in use",
    # --- kinder than Java
    r"^accepted here: .*Invalid url in bootstrap.servers: [\w-]+$": "a port may be left out",
    r"^accepted here: .*Invalid value GZIP for configuration compression.type": "words in any case",
    r"^accepted here: .*key store password is not specified": "a key store may have none",
    r"^accepted here: .*can be specified only for PEM": "the text itself says that it is PEM",
    r"^accepted here: .*for configuration compression.gzip.level": "the level of a codec that is "
    "not in use",
    r"^accepted here: .*NoSuchAlgorithmException": "what configures Java's TLS is not read",
    r"^not ignored here: kafka\.(allow\.auto\.create\.topics|sasl\.kerberos\.keytab"
    r"|sasl\.(mechanisms|password)|socket\.send\.buffer\.bytes|ssl\.(ca|certificate|key)\."
    r"location)=": "librdkafka's names have their effect",
    # --- what is checked at another time
    r"^accepted here: .*(Invalid PEM keystore|private key is not specified)": "the clients read "
    "PEM text when they are made",
    # --- JAAS strings
    r"^accepted here, malformed in Java: [^;]*password=[^;]*$": "it lacks its semicolon",
    r"^accepted here, malformed in Java: .*\u00a0": "no-break spaces, from a page",
    rf"^{_HERE}sasl.jaas.config has no username": "Java's login would fail",
    rf"^{_HERE}sasl.mechanism=OAUTHBEARER needs tokens": "nothing in it says how to get one: it is "
    "a broker's, or a class in Java knows",
    rf"^{_HERE}sasl.jaas.config uses \w+; set kafka.sasl.mechanism": "Java's login would fail",
    rf"^{_HERE}sasl.jaas.config: only .* are supported, not": "a login in Java",
    rf"^{_HERE}sasl.jaas.config: metadataServerUrls: ": "a login in Java",
    rf"^{_HERE}sasl.jaas.config: aws(StsRegion|MskRegionProvider): ": "an environment variable",
    rf"^{_HERE}sasl.jaas.config: oauth.ssl.truststore.*: ": "PEM, in a setting of its own",
    rf"^{_HERE}sasl.jaas.config: oauth.access.token.is.jwt: ": "the client's tokens are JWTs",
    rf"^{_HERE}sasl.jaas.config: unsecuredLoginStringClaim_sub: ": "a token for tests",
    rf"^{_HERE}sasl.oauthbearer.token.endpoint.url=.* (is not a URL|contains a blank)": "a "
    "placeholder",
}

#: The sink's own options, and those that Spark's writers read themselves.
_NOT_FOREIGN = {name.lower() for option in OPTIONS for name in option.names} | {
    "checkpointlocation",
    "queryname",
    "path",
    "asyncprogresstrackingenabled",
}
_HINT = re.compile(r"(\S+?)[ :;=][^\n]*?did you mean (\S+?)\?")

_HANDLERS = {
    "oauth.": "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
    "clientId": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
}
_MECHANISMS = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM-SHA-512",
    "OAuthBearerLoginModule": "OAUTHBEARER",
    "Krb5LoginModule": "GSSAPI",
    "IAMLoginModule": "AWS_MSK_IAM",
}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;"
# No token is to be had: Java need not try for long.
_ONE_ATTEMPT = {
    "kafka.sasl.login.retry.backoff.ms": "1",
    "kafka.sasl.login.retry.backoff.max.ms": "1",
}


@pytest.fixture(scope="module")
def sparks() -> Iterator[JavaClasses]:
    """With the client that Spark's own sink uses."""
    with java_classes(spark_class_path()) as classes:
        yield classes


def differences(java: JavaClasses, options: Mapping[str, str]) -> Iterator[str]:
    """What the sink makes of options, where Spark's own sink and Java's producer differ."""
    verdict, ours = java.verdict({**options, **_ONE_ATTEMPT}), answer(options)
    if verdict.outcome == "refused":
        if not ours.problems:
            yield f"accepted here: {shown(options)}; Java: {verdict.message}"
        return
    if ours.problems:
        yield from (f"refused here: {problem}" for problem in ours.problems)
        return
    for name, text in options.items():
        setting = name.lower().removeprefix("kafka.")
        is_ignored = setting == name.lower() or setting in verdict.unknown
        if is_ignored and not ours.ignores(name) and name.lower() not in _NOT_FOREIGN:
            yield f"not ignored here: {name}={text}"
        if ours.ignores(name) and not is_ignored and not is_unused(setting, options):
            yield f"ignored here: {name}={text}"


def is_unused(setting: str, options: Mapping[str, str]) -> bool:
    """Whether Java's producer knows the setting but does not read it with this protocol."""
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    kind, _, _ = setting.partition(".")
    return kind in ("sasl", "ssl") and kind.upper() not in protocol.split("_")


def shown(options: Mapping[str, str]) -> str:
    """Without what every dictionary has."""
    return ", ".join(
        f"{name}={text}" for name, text in options.items() if REQUIRED.get(name) != text
    )


def login_differences(java: JavaClasses, text: str) -> Iterator[str]:
    """The same for a JAAS string, and whether it means the same user and password."""
    options = login_options(text)
    read = java.login_module(text)
    if read is None:
        if not answer(options).problems:
            yield f"accepted here, malformed in Java: {text}"
        return
    yield from (f"{one} in {text}" for one in differences(java, options))
    if answer(options).problems:
        return
    client = parse(options).producer.client
    warnings = " ".join(answer(options).warnings)
    for name, value in read[1].items():
        setting = f"sasl.{name}"
        if name in ("username", "password"):
            if client[setting] != value:
                yield f"another {name} in {text}"
        elif read[0].endswith(("PlainLoginModule", "ScramLoginModule")) and name not in warnings:
            yield f"{name} is not named in a warning of {text}"


def login_options(text: str) -> dict[str, str]:
    """The options of a program with a JAAS string."""
    module = next((module for module in _MECHANISMS if module in text), "PlainLoginModule")
    options = {
        **REQUIRED,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": _MECHANISMS[module],
        "kafka.sasl.jaas.config": text,
    }
    if module == "Krb5LoginModule":
        options["kafka.sasl.kerberos.service.name"] = "kafka"
    if module == "IAMLoginModule":
        options["kafka.sasl.client.callback.handler.class"] = (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        )
    for word, handler in _HANDLERS.items():
        if module == "OAuthBearerLoginModule" and word in text:
            options["kafka.sasl.login.callback.handler.class"] = handler
            if word == "clientId":
                options["kafka.sasl.oauthbearer.token.endpoint.url"] = "http://127.0.0.1:1/token"
            break
    return options


def unwanted(found: Iterable[str]) -> list[str]:
    """Those that no entry of the table describes."""
    return sorted(
        {one for one in found if not any(re.search(what, one, re.DOTALL) for what in WANTED)}
    )


def contexts(name: str, text: str) -> Iterator[dict[str, str]]:
    """The option alone, and if it is for a login or for TLS, beside a login or TLS."""
    yield {**REQUIRED, name: text}
    if name.startswith("kafka.ssl."):
        yield {**REQUIRED, "kafka.security.protocol": "SSL", name: text}
    if name.startswith("kafka.sasl."):
        yield {**login_options(_LOGIN), name: text}


@pytest.fixture(scope="module")
def of_pairs(sparks: JavaClasses) -> list[str]:
    everything = (options for pair in pairs() for options in contexts(*pair))
    return [one for options in everything for one in differences(sparks, options)]


@pytest.fixture(scope="module")
def of_dictionaries(sparks: JavaClasses) -> list[str]:
    return [one for options in dictionaries() for one in differences(sparks, options)]


@pytest.fixture(scope="module")
def of_logins(sparks: JavaClasses) -> list[str]:
    return [one for text in jaas_strings() for one in login_differences(sparks, text)]


def test_a_public_option_means_what_it_means_to_java(of_pairs):
    assert unwanted(of_pairs) == []


def test_public_options_together_mean_what_they_mean_to_java(of_dictionaries):
    assert unwanted(of_dictionaries) == []


def test_a_public_jaas_string_means_what_it_means_to_java(of_logins):
    assert unwanted(of_logins) == []


def test_every_wanted_difference_occurs(of_pairs, of_dictionaries, of_logins):
    found = [*of_pairs, *of_dictionaries, *of_logins]
    assert [
        what for what in WANTED if not any(re.search(what, one, re.DOTALL) for one in found)
    ] == []


def hints(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names with a hint, and the hints, among the problems of options."""
    return [
        match.groups() for problem in answer(options).problems for match in _HINT.finditer(problem)
    ]


def is_near(name: str, hint: str) -> bool:
    """Whether it is the same name with a slip, with other signs, or with or without a prefix."""
    words = [re.split(r"[._-]", text.lower().removeprefix("kafka.")) for text in (name, hint)]
    is_end = words[0][-len(words[1]) :] == words[1]
    return is_end or SequenceMatcher(None, *map(str.lower, (name, hint))).ratio() > 0.85


def bad_hints(java: JavaClasses, options: Mapping[str, str]) -> Iterator[str]:
    """Hints that lead to another thing, or to another error that Java would not raise."""
    for name, hint in hints(options):
        texts = {found.lower(): text for found, text in options.items()}
        is_foreign = hint.startswith("kafka.") and owner(hint.removeprefix("kafka.")) is not None
        if is_foreign or not is_near(name, hint):
            yield f"{name}: {hint}"
            continue
        followed = {**texts, hint: texts[name.lower()]}
        del followed[name.lower()]
        problems = answer(followed).problems
        if (
            any(hint in problem for problem in problems)
            and java.verdict(followed).outcome != "refused"
        ):
            yield f"{name}: {hint} leads to {problems}"


def test_a_hint_leads_to_the_setting_that_was_meant(sparks):
    singles = [{**REQUIRED, **dict([pair])} for pair in pairs()]
    everything = [*singles, *dictionaries()]
    assert [bad for options in everything for bad in bad_hints(sparks, options)] == []


_LETTERS = "abcdefghijklmnopqrstuvwxyz._-"


@st.composite
def slips(draw: st.DrawFn, names: Iterable[str]) -> tuple[str, str]:
    """A name, and the same with one letter missing, added, changed, or in another place."""
    name = draw(st.sampled_from(sorted(names)))
    place = draw(st.integers(0, len(name) - 1))
    rest, letter = name[place + 1 :], draw(st.sampled_from(_LETTERS))
    changed = draw(
        st.sampled_from(
            [rest, letter + name[place] + rest, letter + rest, rest[:1] + name[place] + rest[1:]]
        )
    )
    return name, name[:place] + changed


def test_a_slip_in_the_name_of_a_producers_setting_is_an_error_with_the_right_name(sparks):
    ours = sparks.producer_names & known_names() - REJECTED.keys() - IGNORED.keys()
    ours -= {"acks"}  # of four letters, most are as near to another word

    @given(slips(ours))
    def check(names: tuple[str, str]) -> None:
        name, slip = names
        assume(slip not in known_names() and owner(slip) is None)
        assume(f"kafka.{slip}" not in _NOT_FOREIGN)
        (problem,) = answer({**REQUIRED, f"kafka.{slip}": "1"}).problems
        assert f"kafka.{name}" in problem

    check()


def test_any_public_options_together_mean_what_they_mean_to_java(sparks):
    # Logins and TLS are judged with what belongs to them, above.
    alone = [pair for pair in pairs() if not pair[0].startswith(("kafka.sasl.", "kafka.ssl."))]
    some = st.lists(st.sampled_from(alone), min_size=2, max_size=6).map(dict)

    @settings(max_examples=60)
    @given(some)
    def check(options: dict[str, str]) -> None:
        assert unwanted(differences(sparks, {**REQUIRED, **options})) == []

    check()


def test_the_newest_client_of_kafka_judges_alike():
    # Its linger.ms is 5. With it, as with Spark's, a delivery timeout as long as a request's is
    # accepted here.
    other = "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
    with java_classes(newest_class_path()) as newest:
        found = [one for options in dictionaries() for one in differences(newest, options)]
    assert [one for one in unwanted(found) if other not in one] == []

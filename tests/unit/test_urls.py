"""Every option that is a URL is read by one parser: as it stands, or a sentence says why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import split_url

KAFKA = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
REGISTRY = {**KAFKA, "value.format": "avro"}
TOKENS = "kafka.sasl.oauthbearer.token.endpoint.url"
ISSUER = "schema.registry.bearer.auth.issuer.endpoint.url"
#: option -> what else it needs
OPTIONS = {
    "schema.registry.url": REGISTRY,
    ISSUER: {**REGISTRY, "schema.registry.url": "http://a"},
    TOKENS: {
        **KAFKA,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.id": "me",
        "kafka.sasl.oauthbearer.client.secret": "hunter2",
    },
}
REJECTED = {
    "http://h/#planted": "contains #, and no server sees what follows it",
    "http://h#": "contains #",
    "http://me:plan#ted@h": "contains #",
    "http://h h": "contains a blank or another character",
    "http://h/a planted": "contains a blank",
    "http://h\t:1": "contains a blank",
    "http://h http://planted": "contains a blank",
    "http://h\\planted": "contains a blank or another character",
    "h:8081": "begins with http:// or https://",
    "//h": "begins with http:// or https://",
    "http:/h": "begins with http:// or https://",
    "http:///planted": "begins with http:// or https://",
    "htp://h": "begins with http:// or https://",
    "'http://h'": "begins with http:// or https://",
    "localhost": "begins with http:// or https://",
    "http://me:planted@h": "contains credentials",
    "http://planted@h": "contains credentials",
    "http://h:99999": "its port is not a number up to 65535",
    "http://h:planted": "its port is not a number",
    "http://[::1": "is not a URL",
    "http://h;http://planted": "its host has a character that no name has",
    "http://.": "its host has a character",
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("url", REJECTED)
def test_what_is_no_url_is_named_with_its_option_and_not_shown(option, url):
    with pytest.raises(InvalidOption) as caught:
        parse({**OPTIONS[option], option: url})
    text = str(caught.value)
    assert text.startswith(f"{option}=[hidden] ")
    assert REJECTED[url] in text
    assert "plan" not in text.removeprefix(option)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    "url",
    ["http://h", "HTTPS://h:1/a%20b/", " http://h ", "http://[::1]:80", "http://a_b.c-d/x;y=1"],
)
def test_what_is_a_url_is_taken(option, url):
    assert parse({**OPTIONS[option], option: url}).topic == "t"


@pytest.mark.parametrize(
    ("url", "used"), [("HTTP://H/a", "http://H/a"), ("http://a, ,http://b,", "http://a,http://b")]
)
def test_a_registrys_url_is_passed_on_as_its_client_reads_it(url, used):
    assert parse({**REGISTRY, "schema.registry.url": url}).serialization.registry.url == used


@pytest.mark.parametrize("url", ["http://h?", "http://h/?x=1"])
def test_only_a_token_endpoint_may_have_a_query(url):
    with pytest.raises(InvalidOption, match="has a query, to which no path can be added"):
        parse({**REGISTRY, "schema.registry.url": url})
    for option in (TOKENS, ISSUER):
        parse({**OPTIONS[option], option: url})


@given(st.lists(st.sampled_from(["planted", "http", *":/.?#@[]% \t\n\\;,0189é"]), max_size=20))
def test_a_url_that_is_accepted_is_used_whole(parts_of_it):
    url = "".join(["http://", *parts_of_it])
    try:
        parts = split_url(url)
    except ValueError as error:
        sentence = str(error)
    else:
        assert parts.geturl().rstrip("?") == url.rstrip("?")
        assert not parts.fragment
        return
    assert sentence.startswith("[hidden] ")
    assert "planted" not in sentence

"""JAAS strings, read by Kafka's own class and by ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaas_judge import java_jaas

from spark_kafka_sink.config.logins import parsed_jaas
from spark_kafka_sink.tools.job.replay import source_options

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
REFUSED = (
    f"{PLAIN} required username=u password=p",
    f"{PLAIN} required username=u password=1p;",
    f'{PLAIN} required\xa0username="u" password="p";',
    f"{PLAIN} required; {PLAIN} required;",
)
#: what people write
SHAPES = (
    f'{PLAIN} required username="u" password="p";',
    f"{PLAIN} required \n   username='u'\n\tpassword='p' ;\n",
    f'{PLAIN} REQUIRED username="$ConnectionString" password="Endpoint=sb://n/;Key=k=";',
    f'{PLAIN} required username="u"password="p"user_schema-registry="s";',
    f'{PLAIN} required // a comment\n username="a\\"b\\101\\n" /* and = "another" */ password="";',
    f'{PLAIN} requisite oauth.token.endpoint.uri="https://idp.example.com/token" a.b=c //d\n;',
    "software.amazon.msk.auth.iam.IAMLoginModule optional awsProfileName=p;",
    f"{PLAIN} sufficient clientId=\u201cc\u201d scope='a b';",
    *REFUSED,
)
EXAMPLES = 300  # ten times as many take a minute

pytestmark = pytest.mark.slow
PIECES = (
    *"\"'\\/*=;\n\r\t \0\x7f\x80\x85\xa0\xffaZ017-_.$\u0100\u201c\U0001f600",
    *("//", "/*", "*/", "\\101", "\\477", "\\n", "\r\n", "required", "optional", PLAIN),
)
WORDS = st.builds(
    str.__add__,
    st.sampled_from("aZ_$\xff\u0100"),
    st.text("aZ019-_.$\xff\u0100\U0001f600", max_size=5),
)
NO_WORDS = st.text("a0129-.:!\x7f\x80\x85", min_size=1, max_size=4)
QUOTATIONS = st.builds(
    lambda quote, text: f"{quote}{text}{quote}",
    st.sampled_from("\"'"),
    st.lists(st.sampled_from([piece for piece in PIECES if piece not in "\"'"])).map("".join),
)
VALUES = st.one_of(WORDS, WORDS, QUOTATIONS, QUOTATIONS, QUOTATIONS, NO_WORDS)
GAPS = st.sampled_from(["", " ", " ", "\n  ", "\t", " /* = */ ", " // ;\n", "/\n;\n"])
OPTIONS = st.tuples(GAPS, WORDS, GAPS, st.just("="), GAPS, VALUES).map("".join)
LOGINS = st.builds(
    lambda flag, options, gap, end: f"{PLAIN} {flag} {''.join(options)}{gap}{end}",
    st.sampled_from(["required", "required", "Requisite", "SUFFICIENT", "'optional'", "requited"]),
    st.lists(OPTIONS, max_size=4),
    GAPS,
    st.sampled_from([";", ";", ";\n", "; // end", ""]),
)


@st.composite
def changed_shapes(draw: st.DrawFn) -> str:
    """A shape of which some characters are replaced, removed or doubled."""
    text = draw(st.sampled_from(SHAPES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 2))
        text = text[:start] + draw(st.sampled_from(PIECES)) + text[end:]
    return text


@pytest.fixture(scope="module")
def java():
    with java_jaas() as read:
        yield read


def short(login):
    """Without the module's package."""
    return None if login is None else (login[0].rpartition(".")[2], login[1])


def check(java, text):
    theirs = java(text)
    if theirs is not None:
        assert parsed_jaas(text) == short(theirs)


@pytest.mark.parametrize("text", SHAPES)
def test_what_people_write_is_read_as_java_reads_it(java, text):
    check(java, text)


def test_java_reads_most_of_these(java):
    """Otherwise this file would compare nothing."""
    assert [text for text in SHAPES if java(text) is None] == [*REFUSED]


@settings(max_examples=EXAMPLES)
@given(login=LOGINS)
def test_any_login_is_read_as_java_reads_it(java, login):
    check(java, login)


@settings(max_examples=EXAMPLES)
@given(text=changed_shapes())
def test_a_damaged_login_is_read_as_java_reads_it(java, text):
    check(java, text)


@settings(max_examples=EXAMPLES)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_no_login_is_refused_as_by_java(java, text):
    check(java, f"a required{text};")


@settings(max_examples=EXAMPLES)
@given(user=st.text(min_size=1), password=st.text(min_size=1))
def test_java_reads_the_login_that_a_replay_writes_for_it(java, user, password):
    sink = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": user}
    jaas = source_options(sink | {"kafka.sasl.password": password}, {})["kafka.sasl.jaas.config"]
    options = {"username": user.strip(), "password": re.sub(r"\r?\n\Z", "", password)}
    assert java(jaas) == (PLAIN, options)
    assert parsed_jaas(jaas) == short((PLAIN, options))

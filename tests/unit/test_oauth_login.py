"""Java's standard OAuth login, as Confluent Cloud, Event Hubs and Strimzi document it."""

from __future__ import annotations

import re

import pytest
from token_endpoint import token_endpoint

from spark_kafka_sink.config.client_settings import REJECTED, translate
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import InvalidOption

OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "https://login.example.com/token"
HANDLER = "sasl.login.callback.handler.class"
KAFKAS = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{KAFKAS}.OAuthBearerLoginModule"
ENDPOINT_URL = "sasl.oauthbearer.token.endpoint.url"
ENDPOINT = {ENDPOINT_URL: URL}
CREDENTIALS = "clientId='me' clientSecret='hunter2'"
STRIMZIS = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
STRIMZI_LOGIN = (
    f'oauth.client.id="me" oauth.client.secret="hunter2" oauth.token.endpoint.uri="{URL}"'
)
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hunter2",
    **ENDPOINT,
}


def java(options="", handler=f"{KAFKAS}.OAuthBearerLoginCallbackHandler", **settings):
    """``handler``: "" for none."""
    return {
        **OAUTH,
        **({HANDLER: handler} if handler else {}),
        "sasl.jaas.config": f"{MODULE} required {options};",
    } | settings


def oauthbearer(settings):
    """What librdkafka gets for the login."""
    client = translate(settings)
    assert HANDLER not in client
    assert "sasl.jaas.config" not in client
    names = [name for name in client if name.startswith("sasl.oauthbearer.")]
    return {name: str(client[name]) for name in names}


def rejection(settings, oauth_callback=""):
    with pytest.raises(InvalidOption) as raised:
        translate(settings, oauth_callback)
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (java(CREDENTIALS, **ENDPOINT), {}),
        (java(CREDENTIALS, f"{KAFKAS}.secured.OAuthBearerLoginCallbackHandler", **ENDPOINT), {}),
        (  # Databricks
            java(
                CREDENTIALS,
                f"kafkashaded.{KAFKAS}.secured.OAuthBearerLoginCallbackHandler",
                **ENDPOINT,
            ),
            {},
        ),
        (  # Confluent Cloud
            java(
                f"{CREDENTIALS} scope='api://orders/.default' extension_logicalCluster='lkc-1' "
                "extension_identityPoolId='pool-1'",
                **ENDPOINT,
            ),
            {
                "sasl.oauthbearer.scope": "api://orders/.default",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
            },
        ),
        (  # Event Hubs
            java(f'{CREDENTIALS} scope="https://a.servicebus.windows.net/.default"', **ENDPOINT),
            {"sasl.oauthbearer.scope": "https://a.servicebus.windows.net/.default"},
        ),
        (  # Strimzi's library
            java(
                f'oauth.client.id="me" oauth.client.secret="hunter2" oauth.scope="kafka" '
                f'oauth.token.endpoint.uri="{URL}"',
                "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
            ),
            {"sasl.oauthbearer.scope": "kafka"},
        ),
        (  # Kafka 4.1
            java(
                "",
                **{
                    "sasl.oauthbearer.client.credentials.client.id": "me",
                    "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
                    "sasl.oauthbearer.scope": "kafka",
                },
                **ENDPOINT,
            ),
            {"sasl.oauthbearer.scope": "kafka"},
        ),
        ({**OAUTH, **{name: value for name, value in OIDC.items() if "method" not in name}}, {}),
        ({**OAUTH, **OIDC}, {}),
    ],
)
def test_javas_settings_make_the_client_fetch_tokens(settings, more):
    assert oauthbearer(settings) == OIDC | more


def ignored(settings, oauth_callback=""):
    """The names that a warning says are ignored, by the reason."""
    notices = Notices()
    translate(settings, oauth_callback, notices)
    return {
        reason: [name.removesuffix(" in kafka.sasl.jaas.config") for name in names]
        for reason, names in notices.ignored.items()
    }


NO_EFFECT = "no effect on the login with OAuthBearerLoginModule"
JAVAS_TLS = "it configures Java's TLS"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            java(f'{CREDENTIALS} scope="s" ssl.protocol="SSL"', **ENDPOINT),
            {JAVAS_TLS: ["ssl.protocol"]},
        ),
        (
            java(f"{CREDENTIALS} serviceName=kafka debug=true username=a", **ENDPOINT),
            {NO_EFFECT: ["debug", "serviceName", "username"]},
        ),
        (
            java(f"{CREDENTIALS} unsecuredLoginStringClaim_sub=me", "", **ENDPOINT),
            {NO_EFFECT: ["unsecuredLoginStringClaim_sub"]},
        ),
        (
            java(
                f"{CREDENTIALS} ssl.truststore.location='/a.jks' ssl.cipher.suites=A",
                **{ENDPOINT_URL: "http://login.example.com/token"},
            ),
            {JAVAS_TLS: ["ssl.cipher.suites", "ssl.truststore.location"]},
        ),
        (
            java(
                f"{CREDENTIALS} ssl.truststore.location='/a.jks' ssl.truststore.password=hunter2",
                **{"https.ca.location": "/ca.pem"},
                **ENDPOINT,
            ),
            {JAVAS_TLS: ["ssl.truststore.location", "ssl.truststore.password"]},
        ),
        (
            java(f"{STRIMZI_LOGIN} ssl.keystore.location=a", STRIMZIS),
            {
                "Java's JaasClientOauthLoginCallbackHandler does not read it": [
                    "ssl.keystore.location"
                ]
            },
        ),
        (
            java(f"{CREDENTIALS} oauth.ssl.truststore.location=a oauth.access.token=b", **ENDPOINT),
            {
                "Java's OAuthBearerLoginCallbackHandler does not read it": [
                    "oauth.ssl.truststore.location",
                    "oauth.access.token",
                ]
            },
        ),
        (
            java(
                f"{STRIMZI_LOGIN} oauth.connect.timeout.seconds=5 oauth.jwks.endpoint.uri=x "
                "oauth.client.credentials.grant.type='client_credentials' oauth.config.id=x "
                "oauth.ssl.endpoint.identification.algorithm='' oauth.access.token.is.jwt=true",
                STRIMZIS,
            ),
            {
                NO_EFFECT: [
                    "oauth.access.token.is.jwt",
                    "oauth.client.credentials.grant.type",
                    "oauth.config.id",
                    "oauth.connect.timeout.seconds",
                    "oauth.jwks.endpoint.uri",
                ],
                JAVAS_TLS: ["oauth.ssl.endpoint.identification.algorithm"],
            },
        ),
    ],
)
def test_what_java_ignores_or_what_only_tunes_it_is_ignored_with_a_warning(settings, expected):
    assert ignored(settings) == expected
    names = set(oauthbearer(settings)) - {"sasl.oauthbearer.scope"}
    assert names == OIDC.keys()


#: Kafka 4.1's names
CONFIGURED = {
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
}


def test_javas_settings_win_over_an_old_jaas_string_one_by_one():
    settings = java("clientId=old clientSecret=old scope=s", **ENDPOINT) | CONFIGURED
    assert oauthbearer(settings) == OIDC | {"sasl.oauthbearer.scope": "s"}
    assert ignored(settings) == {
        "kafka.sasl.oauthbearer.client.credentials.client.id wins": ["clientId"],
        "kafka.sasl.oauthbearer.client.credentials.client.secret wins": ["clientSecret"],
    }
    settings = java(f"{CREDENTIALS} scope=old", **ENDPOINT) | {"sasl.oauthbearer.scope": "s"}
    assert oauthbearer(settings) == OIDC | {"sasl.oauthbearer.scope": "s"}
    assert ignored(settings) == {"kafka.sasl.oauthbearer.scope wins": ["scope"]}


def test_strimzis_handler_reads_its_jaas_string_only():
    others = dict.fromkeys(CONFIGURED, "other")
    settings = java(STRIMZI_LOGIN, STRIMZIS) | others
    assert oauthbearer(settings) == OIDC
    assert ignored(settings) == {
        "kafka.sasl.jaas.config wins": [f"kafka.{name}" for name in CONFIGURED]
    }


def test_claims_of_javas_unsigned_tokens_are_ignored_beside_the_clients_own():
    settings = java("unsecuredLoginStringClaim_sub=me", "")
    settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
    assert ignored(settings) == {NO_EFFECT: ["unsecuredLoginStringClaim_sub"]}


def test_a_function_for_tokens_needs_no_change_of_a_jaas_string_that_java_still_reads():
    options = "oauth.access.token=hunter2 oauth.audience=a unsecuredLoginStringClaim_sub=me"
    settings = java(f"{options} oauth.ssl.truststore.location='/a.jks'", "")
    assert ignored(settings, "mine:make") == {
        NO_EFFECT: ["oauth.access.token", "oauth.audience", "unsecuredLoginStringClaim_sub"],
        JAVAS_TLS: ["oauth.ssl.truststore.location"],
    }


@pytest.mark.parametrize(("handler", "prefix"), [("", "oauth."), (STRIMZIS, "oauth."), ("", "")])
def test_a_pem_trust_store_in_jaas_is_trusted_at_the_token_endpoint(handler, prefix):
    store = f"{prefix}ssl.truststore"
    jaas = java(f"{STRIMZI_LOGIN} {store}.location='/ca.pem' {store}.type=PEM", handler)
    assert translate(jaas)["https.ca.location"] == "/ca.pem"
    assert ignored(jaas) == {}
    text = "-----BEGIN CERTIFICATE----- QUJD -----END CERTIFICATE-----"
    jaas = java(f"{STRIMZI_LOGIN} {store}.certificates='{text}' {store}.type=PEM", handler)
    assert "QUJD" in translate(jaas)["https.ca.pem"]


def test_strimzis_extensions_are_sent_as_kafkas_are():
    client = oauthbearer(java(f"{STRIMZI_LOGIN} oauth.sasl.extension.team=a", STRIMZIS))
    assert client["sasl.oauthbearer.extensions"] == "team=a"


def test_the_clients_secret_stays_a_secret_and_what_is_none_does_not_become_one():
    client = translate(java(f"{CREDENTIALS} scope='s' extension_a='b'", **ENDPOINT))
    shown = repr(client)
    assert "hunter2" not in shown
    assert "a=b" in shown
    assert "'me'" in shown


def test_white_space_around_kafkas_own_options_is_removed_as_in_java():
    jaas = java("clientId='\tme ' clientSecret=' hunter2\n' scope=' s\xa0'", **ENDPOINT)
    client = oauthbearer(jaas)
    names = ("client.id", "client.secret", "scope")
    values = [client[f"sasl.oauthbearer.{name}"] for name in names]
    assert values == ["me", "hunter2", "s\xa0"]
    assert "hunter2" not in repr(translate(jaas))


def test_a_comma_in_an_extension_does_not_end_it():
    client = oauthbearer(java(rf"{CREDENTIALS} extension_a='b,c\\d'", **ENDPOINT))
    assert client["sasl.oauthbearer.extensions"] == r"a=b\,c\\d"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (java(CREDENTIALS), r"set kafka\.sasl\.oauthbearer\.token\.endpoint\.url with"),
        (java("clientId='me'", **ENDPOINT), r"need kafka\.sasl\.oauthbearer\.client\.secret;"),
        (java("", **ENDPOINT), r"client\.id, kafka\.sasl\.oauthbearer\.client\.secret;"),
        (java("clientSecret='hunter2'", **ENDPOINT), "may have clientId and clientSecret"),
        (java(f"{CREDENTIALS} ssl.truststore.location='/ca.jks'", **ENDPOINT),
         r"ssl\.truststore\.\*: .* only PEM .*keytool.*set kafka\.https\.ca\.location="),
        (java(f"{CREDENTIALS} ssl.keystore.location='/k.jks'", **ENDPOINT),
         r"ssl\.keystore\.location: the client shows no certificate to the token endpoint; "),
        (java(f"{CREDENTIALS} ssl.cipher.suites=A", **ENDPOINT),
         r"ssl\.cipher\.suites: .*; remove it"),
        (java("clientid='me' clientSecret='hunter2'", **ENDPOINT),
         r"OAuthBearerLoginModule does not read clientid; did you mean clientId\?"),
        (java(f"{CREDENTIALS} oauth.client.id=other", **ENDPOINT),
         r"clientId and oauth\.client\.id set the same thing; keep one"),
        (java("username=me password=hunter2 metadataServerUrls='https://a'", ""),
         r"metadataServerUrls: .*not supported; set oauth\.callback"),
        (java("unsecuredLoginStringClaim_sub='me'", ""),
         "unsecure.jwt=true and kafka.*config=princ"),
        (java(f"{STRIMZI_LOGIN} oauth.client.credentials.grant.type=password", STRIMZIS),
         r"grant\.type: set oauth\.callback instead, a function"),
        *(
            (
                java(f"{STRIMZI_LOGIN} {option}", handler),
                rf"{option.partition('=')[0]}: set oauth\.callback instead, a function in Python",
            )
            for handler in (STRIMZIS, "")
            for option in (
                "oauth.access.token=hunter2",
                "oauth.refresh.token=hunter2",
                "oauth.password.grant.password=hunter2",
                "oauth.audience=kafka",
                "oauth.client.assertion=hunter2",
                "oauth.access.token.is.jwt='false'",
            )
        ),
        (java("", "com.example.Handler", **ENDPOINT),
         rf"{HANDLER}=com.example.Handler is not supported: .*remove it, and set oauth.callb"),
        (java(CREDENTIALS, **ENDPOINT) | {"sasl.oauthbearer.client.id": "other"},
         r"client\.id and kafka\.sasl\.jaas\.config set the same thing; keep one"),
        (java(CREDENTIALS, **{"sasl.oauthbearer.token.endpoint.url": "file:///token"}),
         "is a file, which only Java's client reads as a token; set oauth.callback"),
        (java(CREDENTIALS, **{ENDPOINT_URL: "https://me:hunter2@login.example.com/token"}),
         r"url=\[hidden\] contains credentials.*set kafka\.sasl\.oauthbearer\.client\.id"),
        (java(CREDENTIALS, **{ENDPOINT_URL: "me:hunter2@login.example.com/token"}),
         r"url=\[hidden\] is not a URL that begins with http:// or https://"),
        (java(CREDENTIALS, **{ENDPOINT_URL: "https://me:hunter2/x@login.example.com/token"}),
         r"url=\[hidden\] is not a URL"),
        (java(CREDENTIALS, **ENDPOINT) | {"sasl.mechanism": "PLAIN"},
         f"kafka.{HANDLER} is not supported: {REJECTED[HANDLER]}"),
        ({**java(CREDENTIALS, ""), "sasl.mechanism": "PLAIN"},
         "uses OAuthBearerLoginModule; set kafka.sasl.mechanism to OAUTHBEARER"),
        (
            {
                **OAUTH,
                **OIDC,
                "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            },
            r"need kafka\.sasl\.oauthbearer\.assertion\.file or ",
        ),
        ({**OAUTH, "sasl.oauthbearer.method": "oidc"}, "token.endpoint.url, .*client.id, .*secret"),
        ({**OAUTH, **OIDC, "sasl.oauthbearer.metadata.authentication.type": "AWS_IAM"},
         r"type=aws_iam is not supported: .*AWS_MSK_IAM.*oauth\.callback"),
    ],
)  # fmt: skip
def test_what_is_missing_or_cannot_be_translated_is_rejected_with_advice(settings, advice):
    assert re.search(advice, rejection(settings))


@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "SSL"}])
def test_a_function_for_tokens_is_ignored_without_a_login(protocol):
    settings = {**protocol, "sasl.mechanism": "OAUTHBEARER"}
    notices = Notices()
    client = translate(settings, "a:b", notices)
    assert client.oauth_callback == ""
    (warning,) = notices.warnings
    assert warning.startswith("these options have no effect on this sink: oauth.callback, kafka.sa")


def test_a_token_endpoint_beside_a_function_is_rejected():
    assert "are two ways to get tokens; keep one" in rejection(java(CREDENTIALS, **ENDPOINT), "a:b")


def test_the_query_of_a_token_endpoint_is_used_and_not_shown():
    client = translate(
        java(CREDENTIALS, **{ENDPOINT_URL: "https://login.example.com/token?sig=hunter2"})
    )
    assert client[ENDPOINT_URL].endswith("?sig=hunter2")
    assert "hunter2" not in repr(client)


def test_a_clouds_own_service_needs_no_secret():
    client = translate(
        {
            **OAUTH,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
            "sasl.oauthbearer.config": "query=resource=api://orders",
        }
    )
    assert client["sasl.oauthbearer.metadata.authentication.type"] == "azure_imds"


def test_options_are_checked_without_a_login_at_the_identity_provider():
    logins = []
    with token_endpoint(lambda: logins.append(1) or "no token") as url:
        settings = {**OAUTH, **OIDC, "sasl.oauthbearer.token.endpoint.url": url}
        options = {f"kafka.{name}": value for name, value in settings.items()}
        parse({"kafka.bootstrap.servers": "host:9092", **options})
    assert logins == []

"""Java's standard OAuth login: Spark's own sink and this one, with the same strings."""

from __future__ import annotations

import os

import pytest
from identity_provider import CLIENT_ID, CLIENT_SECRET, identity_provider
from kafka_proxy import KafkaProxy
from local_cluster import LocalCluster, Security
from streams import save

from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import AuthenticationFailed

KAFKAS = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{KAFKAS}.OAuthBearerLoginModule"
LOGIN = f"clientId='{CLIENT_ID}' clientSecret='{CLIENT_SECRET}'"

#: JAAS options, and the extensions that brokers get with the token
JAAS = {
    "without a scope": (LOGIN, set()),
    "as Event Hubs documents it": (f'{LOGIN} scope="https://a.example.net/.default"', set()),
    "as Databricks documents it": (
        f'{LOGIN} scope="a" ssl.protocol="SSL" serviceName=kafka',
        set(),
    ),
    "as Confluent Cloud documents it": (
        f"{LOGIN} scope='kafka read' extension_logicalCluster='lkc-1' extension_identityPoolId='p'",
        {b"logicalCluster=lkc-1", b"identityPoolId=p"},
    ),
    "with white space": (
        f"clientId=' {CLIENT_ID} ' clientSecret='\t{CLIENT_SECRET} ' scope=' kafka '",
        set(),
    ),
    "with a comma in an extension": (rf"{LOGIN} extension_team='a,b\\c d=e'", {rb"team=a,b\c d=e"}),
}


@pytest.fixture(scope="module")
def provider():
    with identity_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def kafka(provider):
    """Brokers that verify the provider's signatures."""
    settings = {
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.client.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.client.oauthbearer.sasl.server.callback.handler.class": f"{KAFKAS}."
        "OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_OPTS", f"{os.environ.get('KAFKA_OPTS', '')} {allowed}")
        kafka = LocalCluster(settings=settings, security=Security(users={"nobody": "unused"}))
        with kafka:
            yield kafka


@pytest.mark.parametrize(
    ("name", "package"), [*((name, "") for name in JAAS), ("without a scope", ".secured")]
)
def test_javas_login_works_as_in_sparks_own_sink(spark, kafka, provider, topics, name, package):
    jaas, extensions = JAAS[name]
    topic = topics.create()
    provider.token_requests.clear()
    seen = {}
    with KafkaProxy() as proxy:
        proxy.kafka = kafka
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "kafka.sasl.login.callback.handler.class": f"{KAFKAS}{package}."
            "OAuthBearerLoginCallbackHandler",
            "kafka.sasl.jaas.config": f"{MODULE} required {jaas};",
            "topic": topic,
        }
        for sink in ["kafka", "kafka-nb"] + ["foreach_batch"] * ("Confluent" in name):
            rows = spark.createDataFrame([(sink,)], "value string").coalesce(1)
            save(rows, sink, options)
            seen[sink] = {extensions_in(login) for login in proxy.logins}
            proxy.reset()
    assert [record.value.decode() for record in topics.read(topic)] == list(seen)
    assert all(extension_sets == {frozenset(extensions)} for extension_sets in seen.values()), seen
    scopes = {tuple(token_request.get("scope", ())) for token_request in provider.token_requests}
    assert len(scopes) == 1  # Spark's own, and this sink's from driver and tasks


def test_the_driver_says_that_the_provider_rejects_the_secret(kafka, provider, topics):
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "kafka.sasl.jaas.config": f"{MODULE} required clientId='me' clientSecret='planted-secret';",
        "topic": topics.create(),
    }
    with pytest.raises(AuthenticationFailed, match=r"no token.*invalid_client") as raised:
        check(read_options(options))
    assert "Correct kafka.sasl.oauthbearer.* and kafka.sasl.jaas.config" in str(raised.value)
    assert "planted-secret" not in str(raised.value)
    assert raised.value.is_permanent


def extensions_in(login: bytes) -> frozenset[bytes]:
    """SASL extensions in a request to log in (RFC 7628)."""
    _, _, pairs = login.partition(b"auth=Bearer ")
    return frozenset(pairs.split(b"\x01\x01")[0].split(b"\x01")[1:])

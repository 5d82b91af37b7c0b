"""Amazon MSK's mechanism, with a stand-in for the signer."""

from __future__ import annotations

import base64
import json
import sys
import types
import uuid

import pytest

from spark_kafka_sink.clients import aws_signer
from spark_kafka_sink.clients.oauth_token import shared_token
from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.config.logins import MSK_IAM_CALLBACK
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.driver.options import complete_client_settings
from spark_kafka_sink.errors import AuthenticationFailed, InvalidOption

SERVERS = "b-1.orders.a1b2c3.c4.kafka.eu-west-1.amazonaws.com:9098"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"


def translated(**settings):
    return complete_client_settings(translate({**SASL, "bootstrap.servers": SERVERS, **settings}))


@pytest.fixture(autouse=True)
def no_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_oauthbearer_with_a_callback_of_ours():
    client = translated()
    assert client["sasl.mechanism"] == "OAUTHBEARER"
    assert client.oauth_callback == MSK_IAM_CALLBACK
    assert json.loads(client["sasl.oauthbearer.config"]) == {"region": "eu-west-1"}


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        (SERVERS, "eu-west-1"),
        (f"{SERVERS},b-2.orders.a1b2c3.c4.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
        ("b-1.orders.a1b2c3.c4.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.example.com:9098, " + SERVERS, "eu-west-1"),
    ],
)
def test_the_servers_show_the_region(servers, region):
    client = translated(**{"bootstrap.servers": servers})
    assert json.loads(client["sasl.oauthbearer.config"])["region"] == region


def test_other_names_of_servers_need_a_region_in_the_environment(monkeypatch):
    with pytest.raises(InvalidOption, match="set the environment variable AWS_REGION"):
        translated(**{"bootstrap.servers": "kafka.example.com:9098"})
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    client = translated(**{"bootstrap.servers": "kafka.example.com:9098"})
    assert json.loads(client["sasl.oauthbearer.config"])["region"] == "sa-east-1"


ENDPOINT = "vpce-0a1b-c2d3.vpce-svc-4e5f.us-east-1.vpce.amazonaws.com:9098"


def test_the_name_of_a_private_endpoint_shows_its_region():
    client = translated(**{"bootstrap.servers": ENDPOINT})
    assert json.loads(client["sasl.oauthbearer.config"])["region"] == "us-east-1"


@pytest.mark.parametrize(
    ("servers", "region"), [(ENDPOINT, "eu-north-1"), (f"{ENDPOINT},{SERVERS}", "eu-west-1")]
)
def test_the_region_of_the_cluster_wins_over_that_of_an_endpoint(monkeypatch, servers, region):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    client = translated(**{"bootstrap.servers": servers})
    assert json.loads(client["sasl.oauthbearer.config"])["region"] == region


def test_the_settings_of_the_java_library_work():
    client = translated(
        **{
            "sasl.jaas.config": f'{MODULE} required awsRoleArn="arn:aws:iam::1:role/r" '
            'awsRoleSessionName="s";',
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam."
            "IAMClientCallbackHandler",
        }
    )
    assert json.loads(client["sasl.oauthbearer.config"]) == {
        "region": "eu-west-1",
        "awsRoleArn": "arn:aws:iam::1:role/r",
        "awsRoleSessionName": "s",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.jaas.config": "planted-secret"}, "its text is not shown"),
        (
            {"sasl.jaas.config": 'a.PlainLoginModule required username="planted-secret";'},
            "required;",
        ),
        (
            {"sasl.jaas.config": f"{MODULE} required awsRoleARN=planted-secret;"},
            r"does not read awsRoleARN; did you mean awsRoleArn\?",
        ),
        *(
            (
                {"sasl.jaas.config": f"{MODULE} required awsRoleArn=r {name}=planted-secret;"},
                f"{name}: {advice}",
            )
            for name, advice in {
                "awsStsRegion": "set the environment variables AWS_DEFAULT_REGION, to this region",
                "awsRoleExternalId": "write a profile with .* and set awsProfileName instead",
                "awsRoleAccessKeyId": "set the environment variable AWS_ACCESS_KEY_ID",
                "awsRoleSecretAccessKey": "set the environment variable AWS_SECRET_ACCESS_KEY",
                "awsRoleSessionToken": "set the environment variable AWS_SESSION_TOKEN",
                "awsMskRegionProvider": "it names a Java class; set .* AWS_REGION on the driver",
            }.items()
        ),
        (
            {"sasl.jaas.config": f"{MODULE} required awsRoleArn=r awsShouldUseFips=true;"},
            "set the environment variable AWS_USE_FIPS_ENDPOINT=true",
        ),
        ({"sasl.oauthbearer.config": "planted-secret"}, "remove oauth.callback and"),
    ],
)
def test_what_cannot_be_used_is_rejected(settings, message):
    with pytest.raises(InvalidOption, match=message) as raised:
        translated(**settings)
    assert "planted-secret" not in str(raised.value)


def test_what_only_tunes_javas_library_is_ignored_with_a_warning():
    options = "awsDebugCreds=true awsMaxRetries='7' awsMaxBackOffTimeMs='1' awsStsRegion=r"
    notices = Notices()
    settings = {**SASL, "bootstrap.servers": SERVERS}
    translate(settings | {"sasl.jaas.config": f"{MODULE} required {options};"}, notices=notices)
    assert notices.ignored == {
        "no effect on the login of Amazon MSK": [
            f"{name} in kafka.sasl.jaas.config"
            for name in ("awsDebugCreds", "awsMaxBackOffTimeMs", "awsMaxRetries", "awsStsRegion")
        ]
    }


def test_amazons_handler_for_oauthbearer_makes_the_same_tokens():
    client = translated(
        **{
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam."
            "IAMOAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginModule required awsProfileName=p;",
        }
    )
    assert client.oauth_callback == MSK_IAM_CALLBACK
    login = json.loads(client["sasl.oauthbearer.config"])
    assert login == {"region": "eu-west-1", "awsProfileName": "p"}


def test_a_callback_of_the_users_own_is_rejected():
    with pytest.raises(InvalidOption, match="makes its tokens itself"):
        translate({**SASL, "bootstrap.servers": SERVERS}, "mine:make")


# --- tokens ---------------------------------------------------------------------------------------

URL = "https://kafka.eu-west-1.amazonaws.com/?X-Amz-Date=20261122T060000Z&X-Amz-Expires=900"
VALUE = base64.urlsafe_b64encode(URL.encode()).decode().rstrip("=")
EXPIRY = 1_795_327_200 + 900


@pytest.fixture
def signer(monkeypatch):
    """Which of the signer's functions were called, with what."""
    calls = []

    def answer(name):
        def sign(*arguments):
            calls.append((name, *arguments))
            return VALUE, 1.0  # in ms, and wrong where the local time is not UTC

        return staticmethod(sign)

    names = ("", "_from_profile", "_from_role_arn")
    functions = {f"generate_auth_token{name}": answer(name) for name in names}
    module = types.ModuleType("aws_msk_iam_sasl_signer")
    module.MSKAuthTokenProvider = type("MSKAuthTokenProvider", (), functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, ("", "r")),
        ({"awsProfileName": "p"}, ("_from_profile", "r", "p")),
        ({"awsRoleArn": "a"}, ("_from_role_arn", "r", "a", "aws-msk-iam-auth")),
        ({"awsRoleArn": "a", "awsProfileName": "p"}, ("_from_profile", "r", "p")),
        ({"awsRoleArn": "a", "awsRoleSessionName": "s"}, ("_from_role_arn", "r", "a", "s")),
    ],
)
def test_a_token_is_signed_and_its_expiry_is_read_from_it(signer, options, call):
    assert aws_signer.token(json.dumps({"region": "r", **options})) == (VALUE, EXPIRY)
    assert signer == [call]


@pytest.fixture
def login():
    """Of a cluster that no other test in this process has a token of."""
    region = f"eu-test-{uuid.uuid4().hex}"
    return translated(**{"bootstrap.servers": SERVERS.replace("eu-west-1", region)})


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_token_that_cannot_be_made_fails_the_mechanism(monkeypatch, login, is_installed):
    def sign(region):
        return None.access_key  # as the signer does if the SDK has no credentials

    signer = types.SimpleNamespace(generate_auth_token=sign)
    module = types.SimpleNamespace(MSKAuthTokenProvider=signer) if is_installed else None
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    with pytest.raises(
        AuthenticationFailed, match=r"^kafka\.sasl\.mechanism=AWS_MSK_IAM raised "
    ) as e:
        shared_token(login)
    problem = str(e.value)
    missing = "pip install 'spark-kafka-sink[msk-iam]'"
    assert ("there are no AWS credentials" if is_installed else missing) in problem


def test_an_error_of_the_signer_that_is_not_about_credentials_keeps_its_text(monkeypatch, login):
    signer = types.SimpleNamespace(generate_auth_token=lambda region: sys.no_such_name)
    module = types.SimpleNamespace(MSKAuthTokenProvider=signer)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    expected = "raised AttributeError: module 'sys' has no attribute 'no_such_name'"
    with pytest.raises(AuthenticationFailed, match=expected):
        shared_token(login)

"""AWS_MSK_IAM, the mechanism of Amazon MSK: OAUTHBEARER with tokens signed by AWS credentials.

The options are those of Amazon's Java library, aws-msk-iam-auth. Tokens come from the package
aws-msk-iam-sasl-signer-python, the extra ``[msk-iam]``, which finds credentials as all AWS SDKs do.
"""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit

from spark_kafka_sink.config.java_security import parsed_jaas
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.errors import InvalidOption

MECHANISM = "AWS_MSK_IAM"
CALLBACK = f"{__name__}:token"

_MODULE = "IAMLoginModule"
_HANDLER = "sasl.client.callback.handler.class"
_JAAS_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
# Required by AWS; the default of Java's login.
_ROLE_SESSION_NAME = "aws-msk-iam-auth"
_DOMAIN = r"\.amazonaws\.com(?:\.cn)?(?::\d+)?$"
_CLUSTER = re.compile(rf"\.kafka(?:-serverless)?\.([a-z0-9-]+){_DOMAIN}")
_ENDPOINT = re.compile(rf"\.([a-z0-9-]+)\.vpce{_DOMAIN}")


def is_wanted(given: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, name this mechanism."""
    return given.get("sasl.mechanism", given.get("sasl.mechanisms")) == MECHANISM


def as_oauthbearer(given: Mapping[str, str], oauth_callback: str) -> dict[str, str]:
    """The settings for OAUTHBEARER with ``CALLBACK``; raises InvalidOption."""
    if oauth_callback or "sasl.oauthbearer.config" in given:
        raise InvalidOption(
            f"kafka.sasl.mechanism={MECHANISM} makes its tokens itself; remove oauth.callback "
            "and kafka.sasl.oauthbearer.config"
        )
    own = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", _HANDLER)
    others = {name: value for name, value in given.items() if name not in own}
    configuration = {"region": _region(given), **_jaas_options(given)}
    return {
        **others,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": Secret(json.dumps(configuration)),
    }


def _region(given: Mapping[str, str]) -> str:
    servers = given.get("bootstrap.servers", "")
    region = _shown(_CLUSTER, servers)
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    # Last, because an endpoint may be in another region than its cluster.
    region = region or _shown(_ENDPOINT, servers)
    if not region:
        raise InvalidOption(
            f"kafka.sasl.mechanism={MECHANISM}: kafka.bootstrap.servers does not show the region; "
            "set the environment variable AWS_REGION on the driver"
        )
    return region


def _shown(pattern: re.Pattern[str], servers: str) -> str:
    """The region in the first name that has one, or ""."""
    found = (pattern.search(server) for server in servers.split(","))
    return next((matched[1] for matched in found if matched), "")


def _jaas_options(given: Mapping[str, str]) -> dict[str, str]:
    text = given.get("sasl.jaas.config")
    if text is None:
        return {}
    parsed = parsed_jaas(text)
    if parsed is None or parsed[0] != _MODULE:
        raise InvalidOption(
            f"kafka.sasl.jaas.config: for kafka.sasl.mechanism={MECHANISM} it must be "
            f"`software.amazon.msk.auth.iam.{_MODULE} required;`, optionally with options (its "
            "text is not shown); or remove it"
        )
    unknown = sorted(parsed[1].keys() - set(_JAAS_OPTIONS))
    if unknown:
        raise InvalidOption(
            f"kafka.sasl.jaas.config: {', '.join(unknown)} is not supported; allowed: "
            f"{', '.join(_JAAS_OPTIONS)}"
        )
    return {name: str(value) for name, value in parsed[1].items()}


def token(configuration: str) -> tuple[str, float]:
    """A signed token and its expiry in seconds since the epoch (``oauth.callback``).

    Raises ImportError without the extra, LookupError and the errors of the AWS SDK.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider

    given = json.loads(configuration)
    region, role = given["region"], given.get("awsRoleArn")
    try:
        if role is not None:
            session = given.get("awsRoleSessionName", _ROLE_SESSION_NAME)
            value, _ = Provider.generate_auth_token_from_role_arn(region, role, session)
        elif "awsProfileName" in given:
            value, _ = Provider.generate_auth_token_from_profile(region, given["awsProfileName"])
        else:
            value, _ = Provider.generate_auth_token(region)
    except AttributeError:
        # The signer uses the credentials even if the SDK has none.
        raise LookupError("there are no AWS credentials") from None
    return value, _expiry(value)


def _expiry(value: str) -> float:
    """Read from the signed URL in the token: the signer's own depends on the local time zone."""
    padded = value + "=" * (-len(value) % 4)
    query = parse_qs(urlsplit(urlsafe_b64decode(padded).decode()).query)
    signed_at = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ")
    return signed_at.replace(tzinfo=timezone.utc).timestamp() + int(query["X-Amz-Expires"][0])

"""[both] Tokens for Amazon MSK (``AWS_MSK_IAM``), signed with AWS credentials.

They come from the package aws-msk-iam-sasl-signer-python, the extra ``[msk-iam]``, which looks for
credentials as all AWS SDKs do.
"""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64decode
from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit

from spark_kafka_sink.config.logins import AWS_MSK_IAM
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.secret import Secret

# Required by AWS; the default of Java's login.
_ROLE_SESSION_NAME = "aws-msk-iam-auth"
_DOMAIN = r"\.amazonaws\.com(?:\.cn)?(?::\d+)?$"
_CLUSTER = re.compile(rf"\.kafka(?:-serverless)?\.([a-z0-9-]+){_DOMAIN}")
_ENDPOINT = re.compile(rf"\.([a-z0-9-]+)\.vpce{_DOMAIN}")


def add_region(configuration: str, servers: str) -> str:
    """``sasl.oauthbearer.config`` with the region of the cluster, which every token needs.

    Raises InvalidOption if neither the servers nor the environment show it.
    """
    region = _region_in(_CLUSTER, servers)
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    # Last, because an endpoint may be in another region than its cluster.
    region = region or _region_in(_ENDPOINT, servers)
    if not region:
        raise InvalidOption(
            f"kafka.sasl.mechanism={AWS_MSK_IAM}: kafka.bootstrap.servers does not show the "
            "region; set the environment variable AWS_REGION on the driver"
        )
    return Secret(json.dumps({"region": region, **json.loads(configuration)}))


def _region_in(pattern: re.Pattern[str], servers: str) -> str:
    """The region in the first name that has one, or ""."""
    matches = (pattern.search(server) for server in servers.split(","))
    return next((matched[1] for matched in matches if matched), "")


def token(configuration: str) -> tuple[str, float]:
    """A signed token and its expiry in seconds since the epoch (``oauth.callback``).

    Raises LibraryUnavailable without the extra, LookupError and the errors of the AWS SDK.
    """
    with importing(extra="msk-iam"):
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider

    login = json.loads(configuration)
    region, role = login["region"], login.get("awsRoleArn")
    try:
        if "awsProfileName" in login:  # first, as in Java
            value, _ = Provider.generate_auth_token_from_profile(region, login["awsProfileName"])
        elif role is not None:
            session = login.get("awsRoleSessionName", _ROLE_SESSION_NAME)
            value, _ = Provider.generate_auth_token_from_role_arn(region, role, session)
        else:
            value, _ = Provider.generate_auth_token(region)
    except AttributeError as error:
        if "NoneType" not in str(error):
            raise
        # The signer uses the credentials even if the SDK has none.
        raise LookupError("there are no AWS credentials") from None
    return value, _expiry(value)


def _expiry(value: str) -> float:
    """Read from the signed URL in the token: the signer's own depends on the local time zone."""
    padded = value + "=" * (-len(value) % 4)
    query = parse_qs(urlsplit(urlsafe_b64decode(padded).decode()).query)
    signed_at = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ")
    return signed_at.replace(tzinfo=timezone.utc).timestamp() + int(query["X-Amz-Expires"][0])

"""Stands in for Amazon's signer; Kafka's validator for tests accepts its tokens."""

from __future__ import annotations

import secret_tokens


class MSKAuthTokenProvider:
    """As much of the signer as the sink uses."""

    @staticmethod
    def generate_auth_token_from_role_arn(*_: str) -> tuple[str, int]:
        return secret_tokens.token(), 0

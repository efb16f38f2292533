"""One key, one request: a repeat finds what the first one made, and the same key with another body is refused."""

import hashlib
import hmac
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from memory.database import Database
from memory.requests import remember
from perdure.ids import derived
from perdure.messages import Principal
from pii.seal import Secret

REQUEST_LABEL = "request-digest"

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,128}$",
        description="Chosen by the caller, once for each thing to be done: 1 to 128 printable ASCII characters.",
        examples=["refund-of-ticket-4711"],
    ),
]


class Requests:
    """Remembers keys with a keyed digest of what they came with: a plain one could be guessed back."""

    def __init__(self, database: Database, secret: Secret) -> None:
        self._database = database
        self._secret = secret

    async def claim(self, principal: Principal, key: str, operation: str, body: BaseModel | bytes) -> None:
        """Bind the key to this request. Raises ``IdempotencyMismatch`` when it is bound to another one."""
        plain = body if isinstance(body, bytes) else body.model_dump_json().encode()
        secret = await self._secret(principal, REQUEST_LABEL)
        digest = hmac.new(secret, operation.encode() + b"\0" + plain, hashlib.sha256).hexdigest()
        async with self._database.transaction(principal) as connection:
            await remember(connection, principal.tenant, derived(principal.tenant, key), operation, digest)

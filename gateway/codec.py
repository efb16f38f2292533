"""Temporal's remote codec: the UI and the CLI read sealed payloads here, each caller those of his tenant.

A payload that does not open comes back as one that says why, so that a history is always listed.
"""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads

from gateway.authentication import Anyone, PayloadReader, Role, refuse_without
from gateway.services import Services, Use
from perdure.codec import SealingCodec, sealed_for
from perdure.errors import InvalidInput, PerdureError
from perdure.tokens import Caller

Direction = Literal["encode", "decode"]
PayloadsBody = Annotated[
    dict[str, Any], Body(examples=[{"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "InNlZW4i"}]}])
]
Token = Annotated[str, Path(max_length=8_000)]

router = APIRouter(prefix="/codec", tags=["codec"])


@router.post("/{direction}")
async def convert(direction: Direction, body: PayloadsBody, caller: Anyone, services: Use) -> dict[str, Any]:
    """Seal or open payloads, in the form of Temporal's remote codec. Roles: operator, security, developer."""
    refuse_without(caller, *PayloadReader)
    return await _converted(direction, body, caller, services)


@router.post("/t/{token}/decode")
async def open_for_ui(token: Token, body: PayloadsBody, services: Use) -> dict[str, Any]:
    """Open payloads for a UI that cannot send a header: the token stands in the path. Role: inspector, which may do
    nothing else."""
    caller = await services.tokens.read(token)
    refuse_without(caller, Role.INSPECTOR)
    return await _converted("decode", body, caller, services)


async def _converted(direction: Direction, body: dict[str, Any], caller: Caller, services: Services) -> dict[str, Any]:
    tenant = caller.principal.tenant
    codec = SealingCodec(services.codec_ring, tenant)
    payloads = _parsed(body)
    if direction == "encode":
        return _written(await codec.encode(payloads))
    return _written([await _opened(codec, tenant, payload) for payload in payloads])


async def _opened(codec: SealingCodec, tenant: str, payload: Payload) -> Payload:
    try:
        if sealed_for(payload) not in (None, tenant):
            return _said("This payload belongs to another tenant; your token does not open it.")
        return (await codec.decode([payload]))[0]
    except PerdureError as error:
        return _said(f"{error.message} ({type(error).__name__})")
    except UnicodeDecodeError:
        return _said("This payload is not one that perdure sealed.")


def _said(message: str) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps({"perdure": message}).encode())


def _parsed(body: dict[str, Any]) -> list[Payload]:
    try:
        return list(ParseDict(body, Payloads()).payloads)
    except (ParseError, ValueError, TypeError, AttributeError):
        raise InvalidInput("the body is not Temporal's {'payloads': [{'metadata': …, 'data': …}]}") from None


def _written(payloads: list[Payload]) -> dict[str, Any]:
    return MessageToDict(Payloads(payloads=payloads))

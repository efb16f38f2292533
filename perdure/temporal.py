"""The one way to Temporal for both sides: our data converter on a client that the environment configures."""

import dataclasses
from collections.abc import Sequence

from temporalio.client import Client, Interceptor
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError

from perdure.codec import SealingCodec
from perdure.errors import EngineUnavailable
from perdure.keyring import KeyRing


def data_converter(ring: KeyRing) -> DataConverter:
    """Pydantic JSON, sealed by ``ring``; messages and stack traces of failures are sealed too."""
    return dataclasses.replace(
        pydantic_data_converter,
        payload_codec=SealingCodec(ring),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


async def connect(ring: KeyRing, *, interceptors: Sequence[Interceptor] = (), lazy: bool = False) -> Client:
    """A client for the server that ``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE`` and their kin (or Temporal's own
    configuration file) name; ``localhost:7233`` and ``default`` without them.

    ``lazy`` connects at the first call. Raises ``EngineUnavailable`` when nothing answers.
    """
    config = ClientConfigProfile.load().to_client_connect_config()
    config.setdefault("target_host", "localhost:7233")
    try:
        return await Client.connect(
            **config, data_converter=data_converter(ring), interceptors=list(interceptors), lazy=lazy
        )
    except (RPCError, RuntimeError):
        raise EngineUnavailable("Temporal does not answer at " + config["target_host"]) from None

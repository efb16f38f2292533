"""What Temporal stores opens with the right key and for the right tenant alone."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from temporalio.exceptions import ApplicationError

from perdure.codec import SealingCodec, sealed_for, tenant_of
from perdure.errors import KeyMissing, SealBroken
from perdure.keyring import KeyRing
from perdure.temporal import data_converter

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data='{"name": "Анна"}'.encode())
RING = KeyRing.generate()


def of(tenant: str, ring: KeyRing = RING) -> SealingCodec:
    return SealingCodec(ring).with_context(WorkflowSerializationContext("default", f"run:{tenant}:r1"))


async def test_what_is_sealed_opens_again_and_shows_nothing() -> None:
    [sealed] = await of("acme").encode([PLAIN])
    assert "Анна".encode() not in sealed.SerializeToString()
    assert sealed_for(sealed) == "acme"
    assert await of("acme").decode([sealed]) == [PLAIN]


async def test_a_payload_of_another_tenant_is_refused() -> None:
    sealed = await of("acme").encode([PLAIN])
    with pytest.raises(SealBroken):
        await of("acme-corp").decode(sealed)


async def test_the_tenant_in_the_clear_is_authenticated() -> None:
    [sealed] = await of("acme").encode([PLAIN])
    sealed.metadata["tenant"] = b"globex"
    with pytest.raises(SealBroken):
        await of("globex").decode([sealed])


async def test_an_altered_payload_is_refused() -> None:
    [sealed] = await of("acme").encode([PLAIN])
    sealed.data = sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])
    with pytest.raises(SealBroken):
        await of("acme").decode([sealed])


async def test_a_short_payload_is_refused() -> None:
    [sealed] = await of("acme").encode([PLAIN])
    sealed.data = b"short"
    with pytest.raises(SealBroken):
        await of("acme").decode([sealed])


async def test_a_rotated_ring_reads_old_payloads_and_an_older_ring_names_the_missing_key() -> None:
    newer = RING.rotated("k2")
    assert await of("acme", newer).decode(await of("acme").encode([PLAIN])) == [PLAIN]
    with pytest.raises(KeyMissing, match="k2"):
        await of("acme").decode(await of("acme", newer).encode([PLAIN]))


async def test_a_wrong_key_is_told_clearly() -> None:
    sealed = await of("acme").encode([PLAIN])
    with pytest.raises(SealBroken, match="k1"):
        await of("acme", KeyRing.generate()).decode(sealed)


async def test_what_was_not_sealed_passes_and_what_was_is_not_sealed_twice() -> None:
    assert await of("acme").decode([PLAIN]) == [PLAIN]
    sealed = await of("acme").encode([PLAIN])
    assert await of("acme").encode(sealed) == sealed


async def test_large_repeated_payloads_shrink() -> None:
    [sealed] = await of("acme").encode([Payload(metadata=PLAIN.metadata, data=b"a" * 100_000)])
    assert len(sealed.data) < 1_000


def test_an_activity_seals_for_the_tenant_of_its_workflow() -> None:
    context = ActivitySerializationContext("default", "1", "a", "q", "run:acme:r1", "AgentRun", is_local=False)
    assert SealingCodec(RING).with_context(context)._tenant == "acme"


@pytest.mark.parametrize(
    ("workflow_id", "tenant"),
    [("run:acme:r1", "acme"), ("run:acme:a:b", "acme"), ("plain", "-"), (None, "-"), ("run::x", "-"), ("a:b", "-")],
)
def test_the_tenant_is_the_second_part_of_a_workflow_id(workflow_id: str | None, tenant: str) -> None:
    assert tenant_of(workflow_id) == tenant


async def test_a_failure_shows_no_message_in_the_history() -> None:
    failure = Failure()
    await data_converter(RING).encode_failure(ApplicationError("Анна не найдена"), failure)
    assert "Анна".encode() not in failure.SerializeToString()

"""A sealed value opens for its own subject, unchanged, while the key lives."""

import asyncio
from pathlib import Path

import pytest

from memory.database import Database, change, many
from memory.keys import Keys, RingKeys, provider_of
from memory.settings import KeySettings, codec_ring
from perdure.errors import InvalidInput, KeyMissing, PerdureError, SealBroken
from perdure.keyring import KeyRing
from perdure.messages import Principal
from tests.memory.scene import rolled_back

SUBJECT, OTHER = ("customer", "cus_1"), ("customer", "cus_2")
PLAIN = "Анна Смирнова, +7 900 000-00-00".encode()


def fresh(ring: KeyRing) -> Keys:
    """Another process: it remembers nothing."""
    return Keys(RingKeys(ring))


async def sealed(database: Database, keys: Keys, principal: Principal, subject: tuple[str, str] = SUBJECT) -> bytes:
    async with database.transaction(principal) as connection:
        return await keys.seal(connection, principal.tenant, subject, PLAIN, b"here")


async def opened(
    database: Database,
    keys: Keys,
    principal: Principal,
    value: bytes,
    subject: tuple[str, str] = SUBJECT,
    aad: bytes = b"here",
) -> bytes:
    async with database.transaction(principal) as connection:
        return await keys.open(connection, principal.tenant, subject, value, aad)


async def test_what_was_sealed_opens_in_another_process(
    database: Database, keys: Keys, principal: Principal, root_ring: KeyRing
) -> None:
    value = await sealed(database, keys, principal)
    assert PLAIN not in value and value != await sealed(database, keys, principal)
    assert await opened(database, keys, principal, value) == PLAIN
    assert await opened(database, fresh(root_ring), principal, value) == PLAIN


@pytest.mark.parametrize("position", [0, 16, 27, 28, 40, -1])
async def test_an_altered_value_does_not_open(
    database: Database, keys: Keys, principal: Principal, position: int
) -> None:
    value = bytearray(await sealed(database, keys, principal))
    value[position] ^= 1
    with pytest.raises(SealBroken):
        await opened(database, keys, principal, bytes(value))


@pytest.mark.parametrize("length", [0, 5, 16, 20, 40])
async def test_a_cut_value_does_not_open(database: Database, keys: Keys, principal: Principal, length: int) -> None:
    value = await sealed(database, keys, principal)
    with pytest.raises(SealBroken):
        await opened(database, keys, principal, value[:length])


async def test_a_transplanted_value_does_not_open(database: Database, keys: Keys, principal: Principal) -> None:
    value = await sealed(database, keys, principal)
    await sealed(database, keys, principal, OTHER)
    with pytest.raises(SealBroken):
        await opened(database, keys, principal, value, aad=b"elsewhere")
    with pytest.raises(SealBroken):
        await opened(database, keys, principal, value, OTHER)
    with pytest.raises(SealBroken):
        await opened(database, keys, principal.model_copy(update={"tenant": f"{principal.tenant}x"}), value)


async def test_a_subjects_wrapped_key_does_not_serve_another(
    database: Database, keys: Keys, principal: Principal, root_ring: KeyRing
) -> None:
    value = await sealed(database, keys, principal)
    await sealed(database, keys, principal, OTHER)
    async with database.transaction(principal) as connection:
        await change(
            connection,
            "UPDATE perdure.subject_keys a SET key_id = b.key_id, wrapped = b.wrapped FROM perdure.subject_keys b"
            " WHERE a.subject_id = 'cus_2' AND b.subject_id = 'cus_1'",
        )
    with pytest.raises(SealBroken):
        await opened(database, fresh(root_ring), principal, value, OTHER)


@pytest.mark.parametrize(
    ("ring", "error"), [(KeyRing.generate("root1"), SealBroken), (KeyRing.generate("root2"), KeyMissing)]
)
async def test_with_another_root_key_nothing_opens(
    database: Database, keys: Keys, principal: Principal, ring: KeyRing, error: type[PerdureError]
) -> None:
    value = await sealed(database, keys, principal)
    for attempt in (opened(database, fresh(ring), principal, value), sealed(database, fresh(ring), principal)):
        with pytest.raises(error):
            await attempt


async def test_a_rotated_root_ring_still_opens_what_was_sealed_before(
    database: Database, keys: Keys, principal: Principal, root_ring: KeyRing
) -> None:
    value = await sealed(database, keys, principal)
    assert await opened(database, fresh(root_ring.rotated("root2")), principal, value) == PLAIN


async def test_a_destroyed_key_opens_and_seals_nothing_any_more(
    database: Database, keys: Keys, principal: Principal, root_ring: KeyRing
) -> None:
    value, kept = await sealed(database, keys, principal), await sealed(database, keys, principal, OTHER)
    async with database.transaction(principal) as connection:
        await keys.destroy(connection, principal.tenant, SUBJECT)
    for process in (keys, fresh(root_ring)):
        with pytest.raises(KeyMissing):
            await opened(database, process, principal, value)
        with pytest.raises(KeyMissing):
            await sealed(database, process, principal)
        assert await opened(database, process, principal, kept, OTHER) == PLAIN


async def test_a_subject_that_never_had_a_key_can_be_destroyed(
    database: Database, keys: Keys, principal: Principal
) -> None:
    async with database.transaction(principal) as connection:
        await keys.destroy(connection, principal.tenant, SUBJECT)
    with pytest.raises(KeyMissing):
        await sealed(database, keys, principal)


async def test_a_destruction_that_is_rolled_back_destroyed_nothing(
    database: Database, keys: Keys, principal: Principal
) -> None:
    value = await sealed(database, keys, principal)
    await rolled_back(database, principal, lambda c: keys.destroy(c, principal.tenant, SUBJECT))
    assert await opened(database, keys, principal, value) == PLAIN


async def test_a_key_of_a_transaction_that_was_rolled_back_is_forgotten(
    database: Database, principal: Principal, root_ring: KeyRing
) -> None:
    keys = fresh(root_ring)
    await rolled_back(database, principal, lambda c: keys.seal(c, principal.tenant, SUBJECT, PLAIN, b"here"))
    value = await sealed(database, keys, principal)
    assert await opened(database, fresh(root_ring), principal, value) == PLAIN


async def test_a_subjects_first_use_by_twenty_at_once_makes_one_key(
    database: Database, principal: Principal, root_ring: KeyRing
) -> None:
    processes = [fresh(root_ring) for _ in range(20)]
    values = await asyncio.gather(*(sealed(database, process, principal) for process in processes))
    assert {value[:16] for value in values} == {values[0][:16]}
    for value in values:
        assert await opened(database, fresh(root_ring), principal, value) == PLAIN
    async with database.transaction(principal) as connection:
        for table in ("tenant_keys", "subject_keys"):
            assert await many(connection, f"SELECT count(*) AS n FROM perdure.{table}") == [{"n": 1}]


async def test_a_tenants_secret_is_its_own_and_its_labels(
    database: Database, keys: Keys, principal: Principal, root_ring: KeyRing
) -> None:
    async def secret(process: Keys, owner: Principal, label: str) -> bytes:
        async with database.transaction(owner) as connection:
            return await process.tenant_secret(connection, owner.tenant, label)

    other = principal.model_copy(update={"tenant": f"{principal.tenant}x"})
    first = await secret(keys, principal, "masked-text")
    assert len(first) == 32
    assert await secret(fresh(root_ring), principal, "masked-text") == first
    assert len({first, await secret(keys, principal, "subject"), await secret(keys, other, "masked-text")}) == 3


def test_the_provider_comes_from_the_settings_and_a_missing_one_is_told() -> None:
    with pytest.raises(InvalidInput):
        provider_of(KeySettings())
    with pytest.raises(InvalidInput) as wrong:
        provider_of(KeySettings.model_validate({"provider": "environment", "root_ring": '{"secret": 1}'}))
    assert "secret" not in str(wrong.value)


def test_the_codec_ring_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    ring = KeyRing.generate("codec1")
    ring.write(tmp_path / "codec.json")
    text = (tmp_path / "codec.json").read_text()
    assert codec_ring(KeySettings(codec_file=tmp_path / "codec.json")).keys == ring.keys
    assert codec_ring(KeySettings.model_validate({"codec_ring": text})).keys == ring.keys
    for wrong in (KeySettings(), KeySettings(codec_file=tmp_path / "none.json")):
        with pytest.raises(InvalidInput):
            codec_ring(wrong)

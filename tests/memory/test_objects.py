"""A large payload comes back exactly as it was put, to its own tenant, or not at all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.database import Database, many
from memory.keys import Keys
from memory.objects import Objects
from perdure.errors import KeyMissing, NotFound, ObjectChanged, StoreUnavailable
from perdure.messages import Principal

CONTENT = "Анна Смирнова".encode() * 10_000
WHO = ("customer", "cus_1")


@pytest.fixture
def objects(database: Database, keys: Keys, tmp_path: Path) -> Objects:
    return Objects(database, keys, f"file://{tmp_path}")


def files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, bytes(3_000_000)])
async def test_it_comes_back_as_it_was_put(objects: Objects, principal: Principal, content: bytes) -> None:
    ref = await objects.put(principal, WHO, content, "text/plain")
    assert ref.size == len(content)
    assert await objects.get(principal, ref.object_id) == content


async def test_on_disk_it_is_sealed_and_says_nothing_of_its_tenant(
    objects: Objects, principal: Principal, tmp_path: Path
) -> None:
    await objects.put(principal, WHO, CONTENT, "text/plain")
    [file] = files(tmp_path)
    assert CONTENT[:26] not in file.read_bytes()
    assert principal.tenant not in str(file.relative_to(tmp_path)) and "cus_1" not in str(file)


@pytest.mark.parametrize("position", [0, 16, 30, -1])
async def test_an_altered_object_is_refused(
    objects: Objects, principal: Principal, tmp_path: Path, position: int
) -> None:
    ref = await objects.put(principal, None, CONTENT, "text/plain")
    [file] = files(tmp_path)
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(ObjectChanged):
        await objects.get(principal, ref.object_id)


async def test_a_cut_an_exchanged_and_a_lost_object_are_refused(
    objects: Objects, principal: Principal, tmp_path: Path
) -> None:
    first = await objects.put(principal, WHO, b"first", "text/plain")
    second = await objects.put(principal, WHO, b"other", "text/plain")
    paths = {path.name: path for path in files(tmp_path)}
    paths[first.object_id].write_bytes(paths[second.object_id].read_bytes())
    with pytest.raises(ObjectChanged):
        await objects.get(principal, first.object_id)
    paths[first.object_id].write_bytes(b"")
    with pytest.raises(ObjectChanged):
        await objects.get(principal, first.object_id)
    paths[first.object_id].unlink()
    with pytest.raises(ObjectChanged):
        await objects.get(principal, first.object_id)
    assert await objects.get(principal, second.object_id) == b"other"


async def test_another_tenant_hears_what_an_unknown_id_hears(objects: Objects, principal: Principal) -> None:
    ref = await objects.put(principal, WHO, CONTENT, "text/plain")
    foreign = principal.model_copy(update={"tenant": f"{principal.tenant}x"})
    for name in (ref.object_id, "unknown", "../../etc/passwd"):
        with pytest.raises(NotFound):
            await objects.get(foreign, name)


async def test_with_its_subjects_key_it_is_gone(
    objects: Objects, principal: Principal, database: Database, keys: Keys
) -> None:
    ref = await objects.put(principal, WHO, CONTENT, "text/plain")
    async with database.transaction(principal) as connection:
        await keys.destroy(connection, principal.tenant, WHO)
    with pytest.raises(KeyMissing):
        await objects.get(principal, ref.object_id)


async def test_a_store_that_takes_nothing_leaves_no_row(
    database: Database, keys: Keys, principal: Principal, tmp_path: Path
) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    objects = Objects(database, keys, f"file://{directory}")
    directory.rmdir()
    directory.write_text("a file where the directory was")
    with pytest.raises(StoreUnavailable):
        await objects.put(principal, WHO, CONTENT, "text/plain")
    async with database.transaction(principal) as connection:
        assert await many(connection, "SELECT object_id FROM perdure.objects") == []


async def test_many_at_once_do_not_mix(objects: Objects, principal: Principal) -> None:
    contents = [bytes([n]) * 1000 for n in range(20)]
    refs = await asyncio.gather(*(objects.put(principal, WHO, c, "text/plain") for c in contents))
    assert await asyncio.gather(*(objects.get(principal, ref.object_id) for ref in refs)) == contents

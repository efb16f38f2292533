"""Search attributes of a run: written when they change, and only then."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from perdure import names

_TENANT = SearchAttributeKey.for_keyword(names.SEARCH_TENANT)
_ROUTE = SearchAttributeKey.for_keyword(names.SEARCH_ROUTE)
_SUBJECT = SearchAttributeKey.for_keyword(names.SEARCH_SUBJECT)
_WAITING_FOR = SearchAttributeKey.for_keyword(names.SEARCH_WAITING_FOR)


def show_run(tenant: str, route: str, subject: str | None) -> None:
    """What never changes; whoever started the run may have set it already."""
    wanted = [(_TENANT, tenant), (_ROUTE, route), (_SUBJECT, subject)]
    _write([(key, value) for key, value in wanted if value is not None])


def show_waiting(what: str | None) -> None:
    """What the run waits for, or that it does not."""
    _write([(_WAITING_FOR, what)])


def _write(wanted: list[tuple[SearchAttributeKey[str], str | None]]) -> None:
    now = workflow.info().typed_search_attributes
    updates: list[SearchAttributeUpdate[str]] = []
    for key, value in wanted:
        if now.get(key) != value:
            updates.append(key.value_unset() if value is None else key.value_set(value))
    if updates:
        workflow.upsert_search_attributes(updates)

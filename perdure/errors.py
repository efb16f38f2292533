"""Every error of perdure; its family says what the caller does next.

``Refusal``: do not try again as is. ``Conflict``: read again, then decide. ``Unavailable``: the same call may pass
later. ``Corruption``: stop and call a person. Messages carry ids and field names, never values.
"""

from typing import ClassVar


class PerdureError(Exception):
    """Root of the tree. ``status`` is the HTTP status of the problem document; ``ids`` are its extra members."""

    status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, **ids: object) -> None:
        self.message = message or (type(self).__doc__ or type(self).__name__).splitlines()[0]
        self.ids = ids
        super().__init__(self.message)


class Refusal(PerdureError):
    """The request is refused; the same request will be refused again."""

    status = 400


class InvalidInput(Refusal):
    """The input does not have the shape that is asked for."""

    status = 422


class RouteInvalid(Refusal):
    """The route cannot be installed.

    ``problems`` is a list of {"file", "step", "field", "message", "path", "line"}; absent members are null.
    """

    status = 422

    def __init__(self, message: str | None = None, *, problems: list[dict[str, object]] | None = None) -> None:
        self.problems = problems or []
        super().__init__(message, problems=self.problems)


class UnmaskedText(Refusal):
    """Personal text arrived without having been masked."""

    status = 422


class IdempotencyMismatch(Refusal):
    """The idempotency key was used before with another request."""

    status = 422


class NotAuthenticated(Refusal):
    """The caller is not known: the token is missing, invalid or expired."""

    status = 401


class NotAuthorized(Refusal):
    """The caller may not do this."""

    status = 403


class NotFound(Refusal):
    """There is no such thing, or the caller may not know of it."""

    status = 404


class ReviewStale(Refusal):
    """The reviewed version or digest is no longer the one that is open."""

    status = 410


class ReviewExpired(Refusal):
    """The review expired before the decision."""

    status = 410


class RunEnded(Refusal):
    """The run has ended; nothing more can be decided or sent."""

    status = 410


class GrantExceeded(Refusal):
    """The grant does not cover this effect: object, action, arguments or remaining limit differ."""

    status = 403


class GrantExpired(Refusal):
    """The grant expired before the effect was carried out."""

    status = 410


class SubjectHeld(Refusal):
    """The run or its subject is on hold; release it first."""

    status = 403


class StepRefused(Refusal):
    """A step cannot go on; the run goes to its hand-off point."""


class ToolRefused(StepRefused):
    """The tool says that nothing was executed."""


class ResultTooLarge(StepRefused):
    """A tool's declared result field is larger than a run may carry."""

    status = 422


class PolicyDenied(Refusal):
    """The rules do not allow this."""

    status = 403


class UnsafeRole(Refusal):
    """The database role could bypass tenant isolation; the process does not start."""

    status = 403


class Conflict(PerdureError):
    """Somebody else changed it first; read again."""

    status = 409


class VersionConflict(Conflict):
    """The version expected is not the version found."""


class AlreadyDecided(Conflict):
    """The review was decided before; ``first`` in the ids names the verdict that stands."""


class LeaseHeld(Conflict):
    """Another holder has the lease."""


class LeaseLost(Conflict):
    """The lease or reservation passed to another holder; this holder must stop."""


class Unavailable(PerdureError):
    """Something this depends on does not answer; the same call may pass later."""

    status = 503


class StoreUnavailable(Unavailable):
    """The database does not answer."""


class EngineUnavailable(Unavailable):
    """Temporal does not answer."""


class ModelUnavailable(Unavailable):
    """The model does not answer."""


class ToolUnavailable(Unavailable):
    """The tool does not answer, and nothing was executed."""


class AnswerLost(Unavailable):
    """The tool may have executed, and its answer is lost; ask the target before anything else."""


class DetectorUnavailable(Unavailable):
    """Masking is not possible now; nothing was sent or stored."""


class Corruption(PerdureError):
    """A guarantee does not hold; stop and call a person."""


class KeyMissing(Corruption):
    """The key that sealed this value is not in the key ring."""


class SealBroken(Corruption):
    """A sealed value does not open: it was altered, or belongs elsewhere."""


class ObjectChanged(Corruption):
    """A stored object is not the one that was stored."""


def leaves(family: type[PerdureError]) -> list[type[PerdureError]]:
    """All classes of ``family``, itself included, in order of definition."""
    found = [family]
    for child in family.__subclasses__():
        found.extend(leaves(child))
    return found


NOT_RETRIED = [e.__name__ for family in (Refusal, Conflict, Corruption) for e in leaves(family)]
"""Names for a Temporal retry policy's ``non_retryable_error_types``: all but ``Unavailable``."""

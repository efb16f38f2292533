"""The activity that calls a tool of the tools file."""

from collections.abc import Mapping
from dataclasses import dataclass

from temporalio import activity

from memory.objects import Objects
from perdure import names
from perdure.attempt import Answer, Target, attempt
from perdure.errors import InvalidInput, PerdureError, UnmaskedText
from perdure.messages import EffectResult, ObjectRef, Principal, ToolCall
from pii.masking import Masker


@dataclass(frozen=True)
class Cabinet:
    """Where answers over ``threshold`` bytes go."""

    objects: Objects
    threshold: int

    async def put(self, call: ToolCall, answer: Answer) -> ObjectRef | None:
        """Store a large answer. An effect that was carried out is not lost because the store fails."""
        if len(answer.raw) <= self.threshold:
            return None
        principal = Principal(tenant=call.tenant, actor="worker", purpose="tool")
        try:
            return await self.objects.put(principal, None, answer.raw, "application/json")
        except PerdureError:
            if call.key is None:
                raise
            return None


class ToolActivities:
    """Calls tools by name; what they answer is looked at before a run hears it."""

    def __init__(self, targets: Mapping[str, Target], cabinet: Cabinet, masker: Masker) -> None:
        self._targets = targets
        self._cabinet = cabinet
        self._masker = masker

    @activity.defn(name=names.ACTIVITY_CALL_TOOL)
    async def call_tool(self, call: ToolCall) -> EffectResult:
        """One attempt at the call."""
        target = self._targets.get(call.tool)
        if target is None:
            raise InvalidInput(f"this worker has no tool {call.tool!r}")

        async def keep(answer: Answer) -> ObjectRef | None:
            return await self._cabinet.put(call, answer)

        return await self._looked_at(call, await attempt(target, call, activity.info().attempt, keep))

    async def _looked_at(self, call: ToolCall, result: EffectResult) -> EffectResult:
        """Without values that hold personal data outside a personal field. What was executed stays executed, so for an
        effect that is a reason and not an error."""
        for field, value in result.fields.items():
            if field in call.personal:
                continue
            try:
                await self._masker.check(field, value)
            except UnmaskedText as refusal:
                if call.key is None:
                    raise
                kept = {name: other for name, other in result.fields.items() if name != field}
                return await self._looked_at(
                    call, result.model_copy(update={"fields": kept, "reason": f"UnmaskedText: {refusal.message}"})
                )
        return result

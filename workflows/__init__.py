"""Deterministic orchestration: nothing here touches the outside."""

"""The edge: HTTP API, authentication, approvals, codec endpoint."""

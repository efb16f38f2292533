"""A durable runtime for long agent runs: what an app may import."""

"""Tests of memory on a real PostgreSQL."""

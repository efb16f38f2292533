"""Tests of pii."""

"""Tests of the ground."""

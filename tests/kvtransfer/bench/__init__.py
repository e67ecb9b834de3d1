"""Tests of the transfer bench."""

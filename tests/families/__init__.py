"""Tests of `nsys_pp.families`."""

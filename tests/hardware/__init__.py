"""Tests of `nsys_pp.hardware`."""

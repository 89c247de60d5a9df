"""Aggregates of one report: durations, counts and unions that can be added up across reports."""

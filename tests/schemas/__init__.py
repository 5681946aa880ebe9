"""Output schemas: right verdicts, refusals by name, and bounds that hold against strangers."""

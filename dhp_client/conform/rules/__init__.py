"""The rules of SPEC.md as checks: one module for each part of it, one function for each rule."""

"""Lapis in other people's tools: one or a few modules per tool, whose package is an optional extra.

`neurobench` measures a deployed network in NeuroBench.
"""

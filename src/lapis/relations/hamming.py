"""ln A = -D / tau_h, D = the number of channels with unequal latencies."""

from lapis.relations.rule import Rule


class HammingRule(Rule):
    """Counted as the l1 distance, one addition per pair and channel."""

    needs_codes = True

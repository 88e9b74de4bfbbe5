"""Energy of one image: operations counted from shape and spikes, priced by a table, under a named convention."""

from lapis.energy.activity import Activities, load_tally, save_tally
from lapis.energy.conventions import CONVENTIONS, Convention, convention_named
from lapis.energy.costs import Costs, load_costs, tables
from lapis.energy.counts import deliveries
from lapis.energy.estimate import Estimate, Row, energy_of, estimate, side_by_side

__all__ = [
    "CONVENTIONS",
    "Activities",
    "Convention",
    "Costs",
    "Estimate",
    "Row",
    "convention_named",
    "deliveries",
    "energy_of",
    "estimate",
    "load_costs",
    "load_tally",
    "save_tally",
    "side_by_side",
    "tables",
]

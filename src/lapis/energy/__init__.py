"""Estimated energy per image: operations are counted from shape and spikes, and each has a cost in a table.

A named convention says what is counted.
"""

from lapis.energy.activity import Activities, load_activities, load_tally, save_tally
from lapis.energy.conventions import CONVENTIONS
from lapis.energy.costs import Costs, load_costs, tables
from lapis.energy.estimate import Estimate, energy_of, estimate, side_by_side
from lapis.energy.network import SpikingNetwork, load_spiking_network
from lapis.energy.operations import Mixing, Operation

__all__ = [
    "CONVENTIONS",
    "Activities",
    "Costs",
    "Estimate",
    "Mixing",
    "Operation",
    "SpikingNetwork",
    "energy_of",
    "estimate",
    "load_activities",
    "load_costs",
    "load_spiking_network",
    "load_tally",
    "save_tally",
    "side_by_side",
    "tables",
]

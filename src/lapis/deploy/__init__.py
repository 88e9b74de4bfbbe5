"""The deployed network in numpy: its arrays, its integer arithmetic, and a simulator that runs it as spikes.

The integer model (`run`, `watch`) defines the answer; the simulator (`lapis.deploy.simulate`) and every other executor
give the same bits.
"""

from lapis.deploy.integer import run, watch
from lapis.deploy.network import Network

__all__ = ["Network", "run", "watch"]

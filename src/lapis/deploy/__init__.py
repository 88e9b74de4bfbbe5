"""The deployed network and its meaning, in numpy: arrays, integer arithmetic, and the same as spikes.

The integer model (`run`, `watch`) defines the answer; the simulator and every other executor give the same bits.
"""

from lapis.deploy.integer import run, watch
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events, simulate

__all__ = ["Events", "Network", "run", "simulate", "watch"]

"""From a trained network to its deployed form: integer arithmetic, the same as spikes, and the proof that they agree.

Nothing here needs torch but `lapis.convert.from_model` and the trained network's side of `lapis.convert.verify`.
"""

from lapis.convert.network import Block, Layer, Leak, Network, Norm, Readout, Watched

__all__ = ["Block", "Layer", "Leak", "Network", "Norm", "Readout", "Watched"]

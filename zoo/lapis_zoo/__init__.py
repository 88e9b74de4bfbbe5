"""The attention rules of other spiking transformers, as relations of Lapis: `LapisConfig(relation="ssa")`.

Lapis imports this package by its entry points; the relations are registered here, among them one of Lapis itself that
its core does not need, `laplacian2`. The rules, not the systems: every network has LayerNorm and one learned ladder of
levels per measuring point, as all networks of Lapis do.
"""

from lapis.nn import register_relation
from lapis_zoo.powers_of_two import Laplacian2
from lapis_zoo.softmax import CodedDot, Eco, ShiftSoftmax, SignKeys
from lapis_zoo.spike_trains import AlphaXnor, ChunkedSteps, LinearProduct, QkFormer, SpikeDriven, SpikingSelfAttention

RELATIONS = {
    "laplacian2": Laplacian2,
    "ssa": SpikingSelfAttention,
    "xnor": AlphaXnor,
    "eco": Eco,
    "sign_keys": SignKeys,
    "esdsa": LinearProduct,
    "shift_softmax": ShiftSoftmax,
    "sdsa": SpikeDriven,
    "qkformer": QkFormer,
    "coded_dot": CodedDot,
    "statten": ChunkedSteps,
}

for _name, _relation in RELATIONS.items():
    register_relation(_name, _relation)

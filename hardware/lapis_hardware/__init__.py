"""One attention head of a deployed network as a circuit: SystemVerilog, its proof, and what it costs in gates.

`verilog/` holds the modules, which are the same for every network but for their parameters and tables. `head` takes
both from a network, `rows` computes what the integer model answers, `folder` writes the design, `simulate` runs it.
`lanes`, `netlist`, `liberty` and `measure` synthesize each part to standard cells and count its energy.
"""

"""What is measured is the circuit that was proven: gates answer as the integer model does, and counts are exact."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lapis.config import CodingByPoint
from lapis.errors import LapisError
from lapis_hardware import account, gates, tools
from lapis_hardware.lanes import bits, lanes_of
from lapis_hardware.liberty import Library, load, parse
from lapis_hardware.measure import PAPER_SHARE, Measured, measure, packaged_library, prepare
from lapis_hardware.netlist import CellInstance, Netlist, critical_path_ps, energy_fj, simulate, synthesize
from tests.networks import small_config, small_network

needs_yosys = pytest.mark.skipif(not tools.has("yosys"), reason="yosys is not installed")
needs_compiler = pytest.mark.skipif(gates.compiler() is None, reason="no C compiler")

# Where a change ends in the very picosecond in which an input takes it back, a simulator may show it or not.
SAME_PICOSECOND = 0.02
# Its lanes take synthesis longest; those of FP16 are the same modules.
SLOW = "fp32"


@pytest.fixture(scope="module")
def library() -> Library:
    return packaged_library()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Measured], dict[str, int]]:
    """The lanes of a small network with signed codes."""
    folder = tmp_path_factory.mktemp("signed")
    network, images = small_network(small_config(coding=CodingByPoint.all("signed"), width=16))
    head, stimuli = prepare(folder, network, images)
    names = [lane.name for lane in lanes_of(head.parameters) if not lane.name.endswith(SLOW)]
    found = {one.name: one for one in measure(folder, head, stimuli, packaged_library(), names)}
    return folder, found, head.parameters


@needs_yosys
@needs_compiler
def test_every_lane_answers_in_gates_as_the_integer_model_does(
    signed: tuple[Path, dict[str, Measured], dict[str, int]],
) -> None:
    _, found, parameters = signed
    # A lane with a wrong answer is an error, so each that is here was right.
    assert list(found) == [lane.name for lane in lanes_of(parameters) if not lane.name.endswith(SLOW)]
    assert all(one.timed_pj >= one.settled_pj > 0 for one in found.values())


@needs_yosys
@needs_compiler
def test_a_measurement_repeats_to_the_digit(
    signed: tuple[Path, dict[str, Measured], dict[str, int]], tmp_path: Path, library: Library
) -> None:
    network, images = small_network(small_config(coding=CodingByPoint.all("signed"), width=16))
    head, stimuli = prepare(tmp_path, network, images)
    again = list(measure(tmp_path, head, stimuli, library, ["temporal", "row sum"]))
    assert again == [signed[1]["temporal"], signed[1]["row sum"]]


@needs_yosys
@needs_compiler
def test_codes_without_off_neurons_are_measured_at_the_papers_activity(tmp_path: Path, library: Library) -> None:
    network, images = small_network(small_config(coding=CodingByPoint.all("signed"), width=16))
    head, stimuli = prepare(tmp_path, network, images, PAPER_SHARE)
    assert all(share <= PAPER_SHARE + 0.1 for share in stimuli.activity.values())
    found = list(measure(tmp_path, head, stimuli, library, ["minimum", "lookup", "value", "events"]))
    assert len(found) == 4


@needs_yosys
@needs_compiler
def test_a_wrong_circuit_is_not_measured(tmp_path: Path, library: Library) -> None:
    network, images = small_network(small_config())
    head, stimuli = prepare(tmp_path, network, images)
    file = tmp_path / "row_sum.sv"
    file.write_text(file.read_text().replace("mass + MASS", "mass - MASS"))
    with pytest.raises(LapisError, match="row sum answer wrongly"):
        list(measure(tmp_path, head, stimuli, library, ["row sum"]))


def chain(library: Library) -> Netlist:
    """y = !(a & !a): settled it is always 1, but the inverter is late, so each rise of a is a pulse in y."""
    inverter, nand = "sg13g2_inv_1", "sg13g2_nand2_1"
    cells = [
        CellInstance(inverter, {"A": 2, "Y": 3}),
        CellInstance(inverter, {"A": 3, "Y": 4}),
        CellInstance(inverter, {"A": 4, "Y": 5}),
    ]
    return Netlist(library, [*cells, CellInstance(nand, {"A": 2, "B": 5, "Y": 6})], {"a": [2]}, {"y": [6]})


@needs_compiler
def test_a_glitch_is_counted_with_delays_and_not_without(library: Library) -> None:
    netlist = chain(library)
    found = simulate(netlist, {"a": bits([0, 1, 0, 1, 0], 1)})
    assert found.outputs["y"].reshape(-1).tolist() == [1, 1, 1, 1, 1]
    assert found.timed[6].tolist() == [2, 2]
    assert found.settled[6].tolist() == [0, 0]
    assert found.timed[3].tolist() == found.settled[3].tolist() == [2, 2]
    assert energy_fj(netlist, found.timed, 6) > energy_fj(netlist, found.settled, 6) > 0


def test_the_critical_path_is_the_sum_of_its_delays(library: Library) -> None:
    netlist = chain(library)
    cells, load = library.cells, {3: 0.0, 4: 0.0, 5: 0.0, 6: 2.0}
    for net in (3, 4):
        load[net] = cells["sg13g2_inv_1"].pins["A"].capacitance
    load[5] = cells["sg13g2_nand2_1"].pins["B"].capacitance
    kinds = {3: "sg13g2_inv_1", 4: "sg13g2_inv_1", 5: "sg13g2_inv_1", 6: "sg13g2_nand2_1"}
    expected = sum(max(cells[kinds[n]].pins["Y"].delay(edge, load[n]) for edge in ("rise", "fall")) for n in kinds)
    assert critical_path_ps(netlist) == expected


@needs_compiler
def test_a_ring_of_gates_is_refused_and_not_waited_for(library: Library) -> None:
    ring = Netlist(library, [CellInstance("sg13g2_inv_1", {"A": 3, "Y": 3})], {"a": [2]}, {"y": [3]})
    with pytest.raises(LapisError):
        simulate(ring, {"a": bits([0, 1], 1)})


@needs_compiler
@needs_yosys
def test_gates_toggle_as_in_icarus(tmp_path: Path, library: Library) -> None:
    """A second opinion on the simulator: the same netlist with the same delays, every edge of the outputs."""
    if not tools.has("icarus"):
        pytest.skip("icarus is not installed")
    from lapis_hardware.folder import modules
    from lapis_hardware.netlist import gates_of

    for name in ("dot_score", "multiply_integer"):
        (tmp_path / f"{name}.sv").write_text(modules()[name])
    netlist = synthesize(tmp_path, "multiply_integer", {"BITS": 4}, library)
    a, b = np.random.default_rng(3).integers(0, 16, (2, 40))
    found = simulate(netlist, {"a": bits(a, 4), "b": bits(b, 4)})
    gates = gates_of(netlist)
    lines = ["`timescale 1ps/1ps", "module top;", "reg clk = 0; integer i;", f"reg [{gates.nets - 1}:0] drive = 2;"]
    lines += [f"wire n{net}; integer edges{net} = 0;" for net in range(gates.nets)]
    driven = {*gates.outputs.tolist(), *gates.state.tolist()}
    lines += [f"assign n{net} = drive[{net}];" for net in range(gates.nets) if net not in driven]
    for inputs, table, out, rise, fall in zip(
        gates.inputs, gates.tables, gates.outputs, gates.rise, gates.fall, strict=True
    ):
        word = ", ".join(f"n{net}" for net in inputs[::-1])
        lines.append(f"wire [63:0] t{out} = 64'd{table}; assign #({rise},{fall}) n{out} = t{out}[{{{word}}}];")
        lines.append(f"always @(n{out}) edges{out} = edges{out} + 1;")
    for data, state in zip(gates.data, gates.state, strict=True):
        lines.append(f"reg r{state} = 0; assign n{state} = r{state}; always @(posedge clk) r{state} <= n{data};")
    rows = [(a[0], b[0])] * 2 + list(zip(a, b, strict=True)) + [(a[-1], b[-1])]
    lines.append("initial begin #100000;")
    for number, (x, y) in enumerate(rows):
        if number == 2:
            lines += [f"edges{net} = 0;" for net in gates.outputs]
        lines.append("clk = 1; #0;")
        for name, value in (("a", x), ("b", y)):
            lines += [f"drive[{net}] = {int(value) >> i & 1};" for i, net in enumerate(netlist.inputs[name])]
        lines.append("#50000 clk = 0; #50000;")
    lines += [f'$display("{net} %0d", edges{net});' for net in gates.outputs]
    (tmp_path / "gates.v").write_text("\n".join([*lines, "$finish; end endmodule"]))
    tools.run(["iverilog", "-g2012", "-o", "gates.vvp", "gates.v"], tmp_path)
    printed = dict(re.findall(r"^(\d+) (\d+)$", tools.run(["vvp", "-n", "gates.vvp"], tmp_path), re.MULTILINE))
    theirs = np.array([int(printed[str(net)]) for net in gates.outputs])
    ours = np.array([int(found.timed[net].sum()) for net in gates.outputs])
    assert np.abs(theirs - ours).sum() <= SAME_PICOSECOND * ours.sum()
    assert (theirs == ours).mean() > 1 - SAME_PICOSECOND


def test_the_packaged_library_says_whose_it_is_and_that_it_was_changed(library: Library) -> None:
    text = library.path.read_text()
    assert "Copyright 2024 IHP PDK Authors" in text
    assert "Apache License" in text
    assert "Changed for Lapis" in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    ("function", "table"),
    [("!(A*B)", 0b0111), ("A^B", 0b0110), ("!A&B", 0b0100), ("(A B')", 0b0010), ("!(A)+B", 0b1101)],
)
def test_functions_of_cells_are_read_as_liberty_means_them(function: str, table: int, tmp_path: Path) -> None:
    pins = "".join(f"pin ({name}) {{ direction : input; capacitance : 1; }}" for name in "AB")
    path = tmp_path / "one.lib"
    path.write_text(
        "library (one) { cell (X) {" + pins + f'pin (Y) {{ direction : output; function : "{function}"; }} }} '
        'cell (F) { ff (IQ, IQN) { next_state : "D"; clocked_on : "C"; } pin (D) { direction : input; } '
        'pin (C) { direction : input; } pin (Q) { direction : output; function : "IQ"; } } }'
    )
    assert load(path).cells["X"].table("Y", ["A", "B"]) == table


@pytest.mark.parametrize("text", ["", "library (a) {", "not a library", "library (a) { cell (X) { area : 1; } }"])
def test_a_file_that_is_no_library_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.lib"
    path.write_text(text)
    with pytest.raises(LapisError, match=str(path)):
        load(path)


def test_a_function_with_foreign_signs_is_refused(library: Library) -> None:
    tree = parse('library (a) { cell (X) { pin (Y) { direction : output; function : "A.b"; } } }', "here")
    cell = next(tree.all("cell"))
    assert next(cell.all("pin")).get("function") == "A.b"
    from lapis_hardware.liberty import _expression

    with pytest.raises(LapisError, match="signs other than"):
        _expression("A.b")


@needs_yosys
@needs_compiler
def test_a_row_is_the_sum_of_its_parts(signed: tuple[Path, dict[str, Measured], dict[str, int]]) -> None:
    _, found, p = signed
    whole = {row.name: row for row in account.rows(found, p)}
    keys, channels = p["KEYS"], p["CHANNELS"]
    int8 = whole["int8, softmax left out"]
    assert int8.timed_pj == pytest.approx(
        keys * found["dot int8"].timed_pj
        + keys * channels * found["value int8"].timed_pj
        + channels * found["readout"].timed_pj
        + found["sequencer"].timed_pj,
        abs=1e-3,  # rounded to a femtojoule
    )
    assert set(account.designs(p)) - set(whole) == {"FP32, softmax left out"}
    assert account.rows({}, p) == []

// What a token of the temporal form keeps, once for all of its pairs: which neurons have fired.
module fired_state #(
    parameter int WIRES = 128
) (
    input  logic             clk,
    input  logic             first,
    input  logic [WIRES-1:0] spikes,
    output logic [WIRES-1:0] fired
);
  always_ff @(posedge clk) fired <= first ? spikes : fired | spikes;
endmodule

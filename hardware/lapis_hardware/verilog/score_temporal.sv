// D = sum_n popcount(f_q[n] ^ f_k[n]) over the steps n of the window, where f[n] says which neurons have fired by step n.
// Two spikes that are d steps apart differ in d steps, so no code, no subtractor and no comparison is needed.
// With signed codes the wires are the ON neurons, then the OFF neurons.
module score_temporal #(
    parameter int WIRES = 128,
    parameter int DISTANCE_BITS = 11
) (
    input  logic                     clk,
    input  logic                     first,        // the first step of a pair
    input  logic [WIRES-1:0]         query_fired,
    input  logic [WIRES-1:0]         key_fired,
    output logic [DISTANCE_BITS-1:0] distance
);
  logic [DISTANCE_BITS-1:0] total;
  always_comb begin
    total = first ? '0 : distance;
    for (int c = 0; c < WIRES; c++) total = total + DISTANCE_BITS'(query_fired[c] ^ key_fired[c]);
  end
  always_ff @(posedge clk) distance <= total;
endmodule

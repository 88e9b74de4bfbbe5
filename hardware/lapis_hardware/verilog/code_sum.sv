// Q = sum_c q_c of one token, for the score by minimum: once per token, not once per pair.
module code_sum #(
    parameter int CHANNELS = 64,
    parameter int CODE_BITS = 5,
    parameter int DISTANCE_BITS = 11
) (
    input  logic                          clk,
    input  logic [CHANNELS*CODE_BITS-1:0] codes,
    output logic [DISTANCE_BITS-1:0]      total
);
  logic [DISTANCE_BITS-1:0] sum;
  always_comb begin
    sum = '0;
    for (int c = 0; c < CHANNELS; c++) sum = sum + DISTANCE_BITS'(codes[c*CODE_BITS +: CODE_BITS]);
  end
  always_ff @(posedge clk) total <= sum;
endmodule

// D = Q + K - 2 sum_c min(q_c, k_c), where Q = sum_c q_c and K = sum_c k_c are known once per token.
// A minimum needs a comparison and a selection; the absolute difference needs a subtraction and a negation.
module score_minimum #(
    parameter int CHANNELS = 64,
    parameter int CODE_BITS = 5,
    parameter int DISTANCE_BITS = 11
) (
    input  logic                          clk,
    input  logic [CHANNELS*CODE_BITS-1:0] query,      // codes, counted from the lowest: 0..2**CODE_BITS-1
    input  logic [CHANNELS*CODE_BITS-1:0] key,
    input  logic [DISTANCE_BITS-1:0]      query_sum,
    input  logic [DISTANCE_BITS-1:0]      key_sum,
    output logic [DISTANCE_BITS-1:0]      distance
);
  logic [DISTANCE_BITS-1:0] shared;
  logic [CODE_BITS-1:0] q, k;
  always_comb begin
    shared = '0;
    for (int c = 0; c < CHANNELS; c++) begin
      q = query[c*CODE_BITS +: CODE_BITS];
      k = key[c*CODE_BITS +: CODE_BITS];
      shared = shared + DISTANCE_BITS'(q < k ? q : k);
    end
  end
  always_ff @(posedge clk) distance <= query_sum + key_sum - (shared << 1);
endmodule

// s = sum_c q_c k_c of the same codes, the score of dot-product attention: one carry-save sum of all partial products.
// Signed rows follow Baugh and Wooley, because extending the sign of every row would make this rival larger than it is.
module dot_score #(
    parameter int CHANNELS = 64,
    parameter int CODE_BITS = 5,
    parameter int SCORE_BITS = 15,
    parameter bit IS_SIGNED = 1
) (
    input  logic                          clk,
    input  logic [CHANNELS*CODE_BITS-1:0] query,
    input  logic [CHANNELS*CODE_BITS-1:0] key,
    output logic [SCORE_BITS-1:0]         score
);
  localparam int SIGNS = CHANNELS * ((1 << CODE_BITS) - (1 << (2 * CODE_BITS - 1)));
  logic [SCORE_BITS-1:0] total;
  logic [CODE_BITS-1:0] partial;
  always_comb begin
    total = IS_SIGNED ? SCORE_BITS'(SIGNS) : '0;
    for (int c = 0; c < CHANNELS; c++)
      for (int j = 0; j < CODE_BITS; j++) begin
        partial = query[c*CODE_BITS +: CODE_BITS] & {CODE_BITS{key[c*CODE_BITS+j]}};
        if (IS_SIGNED)
          partial = partial ^ (j == CODE_BITS - 1 ? ~(CODE_BITS'(1) << (CODE_BITS - 1)) : CODE_BITS'(1) << (CODE_BITS - 1));
        total = total + (SCORE_BITS'(partial) << j);
      end
  end
  always_ff @(posedge clk) score <= total;
endmodule

// y = a b of signed numbers, by Baugh and Wooley.
module multiply_integer #(
    parameter int BITS = 8
) (
    input  logic              clk,
    input  logic [BITS-1:0]   a,
    input  logic [BITS-1:0]   b,
    output logic [2*BITS-1:0] y
);
  dot_score #(.CHANNELS(1), .CODE_BITS(BITS), .SCORE_BITS(2 * BITS), .IS_SIGNED(1)) one (
      .clk, .query(a), .key(b), .score(y));
endmodule

// D = sum_c |q_c - k_c|. A negative difference x is turned as ~x + 1; the ones join the sum of all channels.
module score_difference #(
    parameter int CHANNELS = 64,
    parameter int CODE_BITS = 5,
    parameter int DISTANCE_BITS = 11
) (
    input  logic                          clk,
    input  logic [CHANNELS*CODE_BITS-1:0] query,      // codes, counted from the lowest: 0..2**CODE_BITS-1
    input  logic [CHANNELS*CODE_BITS-1:0] key,
    output logic [DISTANCE_BITS-1:0]      distance
);
  logic [DISTANCE_BITS-1:0] total;
  logic [CODE_BITS:0] x;
  always_comb begin
    total = '0;
    for (int c = 0; c < CHANNELS; c++) begin
      x = {1'b0, query[c*CODE_BITS +: CODE_BITS]} - {1'b0, key[c*CODE_BITS +: CODE_BITS]};
      total = total + DISTANCE_BITS'(x[CODE_BITS-1:0] ^ {CODE_BITS{x[CODE_BITS]}}) + DISTANCE_BITS'(x[CODE_BITS]);
    end
  end
  always_ff @(posedge clk) distance <= total;
endmodule

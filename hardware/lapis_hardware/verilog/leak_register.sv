// One step of leak per clock, for all pairs of a head at once: u, e -> u B, normalised; starts at one.
module leak_register #(
    parameter int EXPONENT_BITS = 8
) (
    input  logic                     clk,
    input  logic                     start,
    input  logic                     step,
    input  logic [31:0]              factor,           // beta = factor 2**-(32 + factor_exponent)
    input  logic [EXPONENT_BITS-1:0] factor_exponent,
    output logic [31:0]              mantissa,
    output logic [EXPONENT_BITS-1:0] exponent          // counted from 0, one more than in docs/format.md
);
  logic [62:0] rest;                                   // the product below its highest bit
  logic high;
  logic unused;
  assign {high, rest} = mantissa * 64'(factor);
  assign unused = &rest[30:0];
  always_ff @(posedge clk)
    if (start) begin
      mantissa <= 32'h80000000;
      exponent <= '0;
    end else if (step) begin
      mantissa <= high ? {1'b1, rest[62:32]} : rest[62:31];
      exponent <= exponent + factor_exponent + EXPONENT_BITS'(!high);
    end
endmodule

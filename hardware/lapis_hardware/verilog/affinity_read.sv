// A = min(floor(u 2**-(e - r) / 2 + 1/2), 2**AFFINITY_BITS - 1): a membrane read with the gain r of its row.
module affinity_read #(
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8
) (
    input  logic [AFFINITY_BITS:0]   mantissa,         // the upper bits of u, the first of them one
    input  logic [EXPONENT_BITS-1:0] exponent,
    input  logic [EXPONENT_BITS-1:0] gain,
    output logic [AFFINITY_BITS-1:0] affinity
);
  logic [EXPONENT_BITS-1:0] shift;
  logic [AFFINITY_BITS:0] shifted;
  logic [AFFINITY_BITS+1:0] rounded;
  assign shift = exponent - gain;
  assign shifted = mantissa >> shift;
  assign rounded = {1'b0, shifted} + 1'b1;
  assign affinity = rounded[AFFINITY_BITS+1] ? '1 : rounded[AFFINITY_BITS:1];
endmodule

// The affinity of one pair from the table: look up the membrane at its distance, read it with the row's gain.
module affinity_lookup #(
    parameter int DISTANCE_BITS = 11,
    parameter int DISTANCES = 1921,
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8,
    parameter     FILE = "leak.hex"
) (
    input  logic                     clk,
    input  logic [DISTANCE_BITS-1:0] distance,
    input  logic [EXPONENT_BITS-1:0] gain,
    output logic [EXPONENT_BITS-1:0] exponent,         // of this distance, at once: the gain of a row whose nearest it is
    output logic [AFFINITY_BITS-1:0] affinity          // one clock later
);
  logic [AFFINITY_BITS:0] mantissa;
  logic [AFFINITY_BITS-1:0] now;
  leak_table #(
      .DISTANCE_BITS(DISTANCE_BITS), .DISTANCES(DISTANCES), .MANTISSA_BITS(AFFINITY_BITS + 1),
      .EXPONENT_BITS(EXPONENT_BITS), .FILE(FILE)
  ) membranes (.distance, .mantissa, .exponent);
  affinity_read #(.AFFINITY_BITS(AFFINITY_BITS), .EXPONENT_BITS(EXPONENT_BITS)) reader (
      .mantissa, .exponent, .gain, .affinity(now));
  always_ff @(posedge clk) affinity <= now;
endmodule

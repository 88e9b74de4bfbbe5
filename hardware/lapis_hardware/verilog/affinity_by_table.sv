// Affinities of a row by table: keeps the distances, finds the nearest key, whose exponent is the row's gain, then
// answers one key per clock.
module affinity_by_table #(
    parameter int KEYS = 65,
    parameter int INDEX_BITS = 7,
    parameter int DISTANCE_BITS = 11,
    parameter int DISTANCES = 1921,
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8,
    parameter     FILE = "leak.hex"
) (
    input  logic                     clk,
    input  logic                     start,
    input  logic                     store,            // the distance of key `index` is there
    input  logic [INDEX_BITS-1:0]    index,
    input  logic [DISTANCE_BITS-1:0] distance,
    input  logic                     prepare,          // all distances are there
    output logic                     ready,            // the gain is known
    input  logic [INDEX_BITS-1:0]    read_index,
    output logic [AFFINITY_BITS-1:0] affinity          // of `read_index`, one clock later
);
  logic [DISTANCE_BITS-1:0] kept[KEYS];
  logic [DISTANCE_BITS-1:0] nearest;
  logic [EXPONENT_BITS-1:0] gain, exponent;
  affinity_lookup #(
      .DISTANCE_BITS(DISTANCE_BITS), .DISTANCES(DISTANCES), .AFFINITY_BITS(AFFINITY_BITS),
      .EXPONENT_BITS(EXPONENT_BITS), .FILE(FILE)
  ) lookup (.clk, .distance(prepare ? nearest : kept[read_index]), .gain, .exponent, .affinity);
  always_ff @(posedge clk) begin
    ready <= prepare;
    if (store) kept[index] <= distance;
    if (start) nearest <= '1;
    else if (store && distance < nearest) nearest <= distance;
    if (prepare) gain <= exponent;
  end
endmodule

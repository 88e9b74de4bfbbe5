// Affinities of a row by leak: one membrane decays, step by step, and every key takes what is left when its distance
// has passed. The first key to take sets the row's gain. No table, but as many steps as the farthest key is away.
module affinity_by_leak #(
    parameter int KEYS = 65,
    parameter int INDEX_BITS = 7,
    parameter int DISTANCE_BITS = 11,
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8
) (
    input  logic                     clk,
    input  logic                     start,
    input  logic                     store,            // the distance of key `index` is there
    input  logic [INDEX_BITS-1:0]    index,
    input  logic [DISTANCE_BITS-1:0] distance,
    input  logic                     prepare,          // all distances are there
    output logic                     ready,            // every key has its affinity
    input  logic [31:0]              factor,
    input  logic [EXPONENT_BITS-1:0] factor_exponent,
    input  logic [INDEX_BITS-1:0]    read_index,
    output logic [AFFINITY_BITS-1:0] affinity          // of `read_index`, one clock later
);
  logic [DISTANCE_BITS-1:0] kept[KEYS];
  logic [AFFINITY_BITS-1:0] taken_affinity[KEYS];
  logic [KEYS-1:0] taken, due;
  logic [DISTANCE_BITS-1:0] elapsed;
  logic [31:0] mantissa;
  logic [EXPONENT_BITS-1:0] exponent, gain;
  logic [AFFINITY_BITS-1:0] now;
  logic unused;
  leak_register #(.EXPONENT_BITS(EXPONENT_BITS)) membrane (
      .clk, .start, .step(prepare), .factor, .factor_exponent, .mantissa, .exponent);
  affinity_read #(.AFFINITY_BITS(AFFINITY_BITS), .EXPONENT_BITS(EXPONENT_BITS)) reader (
      .mantissa(mantissa[31-:AFFINITY_BITS+1]), .exponent, .gain(|taken ? gain : exponent), .affinity(now));
  assign unused = &mantissa[30-AFFINITY_BITS:0];
  for (genvar j = 0; j < KEYS; j++) begin : pair
    leak_latch #(.DISTANCE_BITS(DISTANCE_BITS), .AFFINITY_BITS(AFFINITY_BITS)) latch (
        .clk, .run(prepare), .elapsed, .distance(kept[j]), .now, .due(due[j]), .affinity(taken_affinity[j]));
  end
  always_ff @(posedge clk) begin
    if (store) kept[index] <= distance;
    if (start) begin
      taken <= '0;
      elapsed <= '0;
    end else if (prepare) begin
      taken <= taken | due;
      elapsed <= elapsed + 1'b1;
      if (taken == '0) gain <= exponent;
    end
    ready <= prepare && &(taken | due);
    affinity <= taken_affinity[read_index];
  end
endmodule

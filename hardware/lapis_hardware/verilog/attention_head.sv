// One head of Lapis attention, one query row at a time: distances to all keys, affinities, their sum and its power of
// two, mixed values, first spikes. Keys and values come from memories outside, addressed by `index` (and `step`).
module attention_head #(
    parameter int FORM = 0,                            // the score: 0 by minimum, 1 by difference, 2 temporal
    parameter bit LEAK = 0,                            // affinities: 0 by table, 1 by a leaking membrane
    parameter int CHANNELS = 64,
    parameter int KEYS = 65,
    parameter int WINDOW = 15,
    parameter int CODE_BITS = 5,
    parameter int OPERAND_BITS = 320,                  // codes of all channels, or in form 2 which wires have fired
    parameter int DISTANCES = 1921,
    parameter int DISTANCE_BITS = 11,
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8,
    parameter bit SIGNED_VALUES = 1,
    parameter int VALUE_BITS = 5,
    parameter int SUM_BITS = 26,
    parameter int MASS_BITS = 22,
    parameter bit SIGNED_READOUT = 1,
    parameter int LOWEST_SCALE = 14,
    parameter int SCALES = 8,
    parameter int INDEX_BITS = 7,
    parameter int STEP_BITS = 4,
    parameter int SCALE_BITS = 5,
    parameter     LEAK_FILE = "leak.hex",
    parameter     THRESHOLD_FILE = "thresholds.hex"
) (
    input  logic                           clk,
    input  logic                           start,
    output logic [INDEX_BITS-1:0]          index,
    output logic [STEP_BITS-1:0]           step,
    input  logic [OPERAND_BITS-1:0]        query,
    input  logic [OPERAND_BITS-1:0]        key,
    /* verilator lint_off UNUSEDSIGNAL */              // sums only by minimum, the factor only by leak
    input  logic [DISTANCE_BITS-1:0]       query_sum,
    input  logic [DISTANCE_BITS-1:0]       key_sum,
    input  logic [31:0]                    factor,
    input  logic [EXPONENT_BITS-1:0]       factor_exponent,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [CHANNELS*VALUE_BITS-1:0] values,
    output logic                           distance_valid,
    output logic [DISTANCE_BITS-1:0]       distance,
    output logic                           affinity_valid,
    output logic [AFFINITY_BITS-1:0]       affinity,
    output logic [INDEX_BITS-1:0]          stage_index,   // the key of `distance` or `affinity`
    output logic [MASS_BITS-1:0]           mass,
    output logic [SCALE_BITS-1:0]          scale,
    output logic [CHANNELS*SUM_BITS-1:0]   sums,
    output logic                           spikes_valid,
    output logic [CHANNELS-1:0]            spikes_on,
    output logic [CHANNELS-1:0]            spikes_off,
    output logic                           done
);
  /* verilator lint_off UNUSEDSIGNAL */                // only the temporal score looks at the first step
  logic score_first;
  /* verilator lint_on UNUSEDSIGNAL */
  logic score_last, prepare, ready, mix, fire;
  logic [CHANNELS*VALUE_BITS-1:0] values_held;
  logic [SUM_BITS-1:0] threshold_on, threshold_off;

  sequencer #(
      .KEYS(KEYS), .INDEX_BITS(INDEX_BITS), .STEPS(FORM == 2 ? WINDOW : 1), .WINDOW(WINDOW), .STEP_BITS(STEP_BITS)
  ) control (.clk, .start, .ready, .index, .step, .score_first, .score_last, .prepare, .mix, .fire, .done);

  if (FORM == 0) begin : by_minimum
    score_minimum #(.CHANNELS(CHANNELS), .CODE_BITS(CODE_BITS), .DISTANCE_BITS(DISTANCE_BITS)) score (
        .clk, .query, .key, .query_sum, .key_sum, .distance);
  end else if (FORM == 1) begin : by_difference
    score_difference #(.CHANNELS(CHANNELS), .CODE_BITS(CODE_BITS), .DISTANCE_BITS(DISTANCE_BITS)) score (
        .clk, .query, .key, .distance);
  end else begin : temporal
    score_temporal #(.WIRES(OPERAND_BITS), .DISTANCE_BITS(DISTANCE_BITS)) score (
        .clk, .first(score_first), .query_fired(query), .key_fired(key), .distance);
  end

  if (LEAK) begin : by_leak
    affinity_by_leak #(
        .KEYS(KEYS), .INDEX_BITS(INDEX_BITS), .DISTANCE_BITS(DISTANCE_BITS), .AFFINITY_BITS(AFFINITY_BITS),
        .EXPONENT_BITS(EXPONENT_BITS)
    ) affinities (
        .clk, .start, .store(distance_valid), .index(stage_index), .distance, .prepare, .ready, .factor,
        .factor_exponent, .read_index(index), .affinity);
  end else begin : by_table
    affinity_by_table #(
        .KEYS(KEYS), .INDEX_BITS(INDEX_BITS), .DISTANCE_BITS(DISTANCE_BITS), .DISTANCES(DISTANCES),
        .AFFINITY_BITS(AFFINITY_BITS), .EXPONENT_BITS(EXPONENT_BITS), .FILE(LEAK_FILE)
    ) affinities (
        .clk, .start, .store(distance_valid), .index(stage_index), .distance, .prepare, .ready, .read_index(index),
        .affinity);
  end

  row_sum #(.AFFINITY_BITS(AFFINITY_BITS), .MASS_BITS(MASS_BITS)) row (
      .clk, .start, .add(affinity_valid), .affinity, .mass);
  row_exponent #(.MASS_BITS(MASS_BITS), .SCALE_BITS(SCALE_BITS)) power (.clk, .mass, .scale);
  value_sum #(
      .CHANNELS(CHANNELS), .AFFINITY_BITS(AFFINITY_BITS), .VALUE_BITS(VALUE_BITS), .SUM_BITS(SUM_BITS),
      .IS_SIGNED(SIGNED_VALUES)
  ) mixed (.clk, .start, .add(affinity_valid), .affinity, .values(values_held), .sums);
  threshold_table #(
      .SUM_BITS(SUM_BITS), .SCALE_BITS(SCALE_BITS), .STEP_BITS(STEP_BITS), .WINDOW(WINDOW),
      .LOWEST_SCALE(LOWEST_SCALE), .SCALES(SCALES), .FILE(THRESHOLD_FILE)
  ) thresholds (.scale, .step, .threshold_on, .threshold_off);
  readout #(.CHANNELS(CHANNELS), .SUM_BITS(SUM_BITS), .IS_SIGNED(SIGNED_READOUT)) neurons (
      .clk, .start, .fire, .threshold_on, .threshold_off, .sums, .spikes_on, .spikes_off);

  always_ff @(posedge clk) begin
    distance_valid <= score_last;
    affinity_valid <= mix;
    stage_index <= index;
    values_held <= values;
    spikes_valid <= fire;
  end
endmodule
